"""What an examination says of a file, brought about with the file itself."""

import os
import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest

from dovetail.engines.sqlite import SqliteEngine, examining
from dovetail.engines.sqlite.session import Session
from dovetail.model import Finding, Limit, NewRun, Severity, new_id
from tests.engines.sqlite.words import Opened, by_hand

LEASE = timedelta(seconds=30)


async def found(engine: SqliteEngine) -> dict[str, Finding]:
    return {each.check: each for each in await engine.examine()}


async def test_a_file_as_it_should_be(opened: Opened) -> None:
    findings = await found(await opened(durability="durable"))
    checks = (
        "version",
        "journal",
        "synchronous",
        "file_system",
        "disk",
        "log",
        "free_pages",
        "permissions",
        "integrity",
    )
    assert {findings[f"sqlite.{name}"].severity for name in checks} == {Severity.OK}


async def test_a_store_in_memory_is_worth_a_note(opened: Opened) -> None:
    assert (await found(await opened("memory://x")))["sqlite.memory"].severity is Severity.NOTE


async def test_less_durability_is_worth_a_note(opened: Opened) -> None:
    assert (await found(await opened(durability="process")))["sqlite.synchronous"].severity is Severity.NOTE


def test_another_journal_mode_is_a_problem(path: Path) -> None:
    # A file that is open here is kept in its mode; so it takes one that is not.
    with by_hand(path) as db:
        db.execute("CREATE TABLE anything (n)")
        finding = examining.journal(Session(db, 0, 0, frozenset()))
    assert (finding.severity, "delete" in finding.found) == (Severity.PROBLEM, True)


async def test_a_file_that_others_may_open(engine: SqliteEngine, path: Path) -> None:
    path.chmod(0o644)
    finding = (await found(engine))["sqlite.permissions"]
    assert (finding.severity, "the world may open" in finding.found) == (Severity.NOTE, True)
    path.chmod(0o660)
    assert "its group may open" in (await found(engine))["sqlite.permissions"].found


async def test_a_disk_without_room(engine: SqliteEngine, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = os.statvfs(path.parent).f_bavail * os.statvfs(path.parent).f_frsize
    monkeypatch.setattr(examining, "SHORT", free * 2)
    assert (await found(engine))["sqlite.disk"].severity is Severity.WARNING
    Path(f"{path}-ballast").unlink()
    assert (await found(engine))["sqlite.disk"].severity is Severity.PROBLEM


async def test_a_log_that_a_reader_keeps_long(
    engine: SqliteEngine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examining, "LONG_LOG", 100_000)
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT COUNT(*) FROM dovetail_run").fetchall()
    await engine.schedule([NewRun(new_id(), f"{n}", "task", b"x" * 1000) for n in range(200)])
    assert (await found(engine))["sqlite.log"].severity is Severity.WARNING
    reader.close()


async def test_free_pages(engine: SqliteEngine, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examining, "BLOAT", 100_000)
    with by_hand(path) as other:
        other.execute("CREATE TABLE ballast AS SELECT randomblob(1000000) AS bytes")
        other.execute("DROP TABLE ballast")
    assert (await found(engine))["sqlite.free_pages"].severity is Severity.NOTE


async def test_a_file_too_large_to_be_read_through(engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examining, "CHECKED", 10)
    assert (await found(engine))["sqlite.integrity"].severity is Severity.NOTE


async def test_a_damaged_file(opened: Opened, path: Path) -> None:
    engine = await opened()
    await engine.schedule([NewRun(new_id(), f"{n}", "task", b"x" * 1000) for n in range(200)])
    with by_hand(path) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        (root,) = other.execute("SELECT rootpage FROM sqlite_master WHERE name = 'dovetail_run'").fetchone()
    with path.open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(b"\xff" * 500)
    # A process that comes later: one that had the page in memory would not see it.
    late = await opened(lane="late")
    finding = (await found(late))["sqlite.integrity"]
    assert (finding.severity, "damaged" in finding.found) == (Severity.PROBLEM, True)
    assert "runs.orphaned" not in await found(late)  # nothing can be said of what cannot be read


async def test_a_limit_with_room_is_found_and_swept_right(engine: SqliteEngine, path: Path) -> None:
    one = (Limit("slots", 1),)
    await engine.schedule([NewRun(new_id(), f"{n}", "task", limits=one) for n in range(2)])
    await engine.claim("worker", 2, lease=LEASE)
    with by_hand(path) as other:  # somebody removes a run that is running
        other.execute("DELETE FROM dovetail_run WHERE state = 'running'")
        other.execute("DELETE FROM dovetail_slot")
    assert (await found(engine))["limits.stuck"].severity is Severity.WARNING
    assert (await engine.sweep()).repaired == 1
    assert (await found(engine))["limits.stuck"].severity is Severity.OK


async def test_a_run_whose_parent_is_gone(engine: SqliteEngine, path: Path) -> None:
    await engine.schedule([NewRun(new_id(), "parent", "task"), NewRun(new_id(), "child", "task", after=("parent",))])
    with by_hand(path) as other:
        other.execute("DELETE FROM dovetail_run WHERE key = 'parent'")
    finding = (await found(engine))["runs.orphaned"]
    assert (finding.severity, "'child'" in finding.found) == (Severity.PROBLEM, True)
