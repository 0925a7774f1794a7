"""The write-ahead log is written back by us alone, under the write lock, and does not grow for ever."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path

import pytest

from dovetail.clock import VirtualClock
from dovetail.engines.sqlite import SqliteEngine, store
from dovetail.model import EventKind, RunQuery, Topic
from dovetail.testing.conformance.vocabulary import a_run, all_runs, place, sweep_all
from tests.engines.sqlite.conftest import Trace
from tests.engines.sqlite.words import (
    Opened,
    Program,
    assert_sound,
    by_hand,
    log_size,
    setting,
    store_of,
    url_of,
    write_lock,
    writer_of,
)
from tests.waiting import soon

LIMIT = 512 * 1024
UNDER_LOCK = {"PRAGMA wal_checkpoint(PASSIVE)"}
"""Those that take the write lock, unless it is busy."""


@pytest.fixture
def small_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the log back after a few pages, not after megabytes."""
    monkeypatch.setattr(store, "CHECKPOINT_AT", LIMIT)


async def write(engine: SqliteEngine, times: int, payload: bytes = bytes(100)) -> None:
    for _ in range(times):
        await place(engine, a_run("same", payload=payload))
        await engine.cancel(["same"])


async def sizes_while_writing(engine: SqliteEngine, path: Path, times: int, payload: bytes = bytes(100)) -> list[int]:
    sizes: list[int] = []
    for _ in range(times):
        await write(engine, 1, payload)
        sizes.append(log_size(path))
    return sizes


# When


async def test_no_connection_of_ours_writes_back_by_itself(opened: Opened, trace: Trace) -> None:
    engine = await opened()
    async with engine.twin() as twin, twin.watch(Topic(EventKind.WORK)), engine.watch(Topic(EventKind.STATE)):
        await place(twin, a_run("a"))
        assert len(trace.connections) == 6  # of each engine: one that writes, one that reads, one that looks for change
        assert [setting(db, "wal_autocheckpoint") for db in trace.connections] == [0] * 6


@pytest.mark.usefixtures("small_log")
async def test_the_log_is_written_back_once_it_is_long(opened: Opened, path: Path, trace: Trace) -> None:
    engine = await opened()
    sizes = await sizes_while_writing(engine, path, 100)
    assert max(sizes) < 4 * LIMIT
    assert 0 < len(trace.statements("PRAGMA wal_checkpoint")) < 40


@pytest.mark.usefixtures("small_log")
async def test_the_log_is_only_written_back_under_the_write_lock(opened: Opened, trace: Trace) -> None:
    engine = await opened()
    await write(engine, 60)
    await engine.find(RunQuery())
    await sweep_all(engine)
    asked = [text for text in trace.statements() if "checkpoint" in text or text in ("BEGIN IMMEDIATE", "ROLLBACK")]
    written_back = [n for n, text in enumerate(asked) if "checkpoint" in text and "auto" not in text]
    assert written_back
    assert {asked[n] for n in written_back} <= UNDER_LOCK
    assert all((asked[n - 1], asked[n + 1]) == ("BEGIN IMMEDIATE", "ROLLBACK") for n in written_back)


async def test_a_short_log_is_left_alone(opened: Opened, path: Path, trace: Trace) -> None:
    engine = await opened()
    await write(engine, 40)
    assert trace.statements("PRAGMA wal_checkpoint") == []
    assert log_size(path) > LIMIT


@pytest.mark.usefixtures("small_log")
async def test_a_log_of_large_payloads_is_written_back_in_time(engine: SqliteEngine, path: Path) -> None:
    sizes = await sizes_while_writing(engine, path, 20, bytes(2 * LIMIT))
    assert max(sizes) < 10 * LIMIT


@pytest.mark.usefixtures("small_log")
async def test_a_log_that_many_wrote_a_little_to_is_written_back(opened: Opened, path: Path) -> None:
    """Processes that come, add a run and go, beside one that only waits."""
    await opened()
    for n in range(60):
        async with SqliteEngine(
            url_of(path), "tests", clock=VirtualClock(), durability="process", lane=f"{n}"
        ) as brief:
            await write(brief, 1, bytes(50_000))
    assert log_size(path) < 4 * LIMIT


# Against a long reader


@pytest.mark.usefixtures("small_log")
async def test_a_long_reader_makes_the_log_grow_until_it_ends(engine: SqliteEngine, path: Path) -> None:
    writer_of(engine).execute(f"PRAGMA journal_size_limit = {LIMIT}")
    with by_hand(path) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM dovetail_run").fetchall()
        assert max(await sizes_while_writing(engine, path, 100)) > 4 * LIMIT
    assert min(await sizes_while_writing(engine, path, 30)) <= LIMIT
    assert log_size(path) < 2 * LIMIT


async def test_the_log_is_cut_off_at_a_bound_of_its_own(opened: Opened, trace: Trace) -> None:
    await opened()
    bounds = {setting(db, "journal_size_limit") for db in trace.connections}
    assert len(bounds) == 1
    assert 0 < bounds.pop() <= 64 * 1024 * 1024


@pytest.mark.usefixtures("small_log")
async def test_a_long_reader_keeps_nobody_from_writing(engine: SqliteEngine, path: Path) -> None:
    with by_hand(path) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM dovetail_run").fetchall()
        await soon(write(engine, 60))
        assert reader.execute("SELECT COUNT(*) FROM dovetail_run").fetchone() == (0,)
    assert len(await all_runs(engine)) > 0


# Against another writer


async def test_nothing_is_written_back_while_another_process_writes(
    engine: SqliteEngine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite turns a checkpoint that cannot have the write lock into a passive one, the kind that may race a commit."""
    await write(engine, 40)
    monkeypatch.setattr(store, "CHECKPOINT_AT", 1)
    with write_lock(path):
        before = path.stat()  # no earlier: the engine tends its file after it has answered
        writing_back = asyncio.ensure_future(asyncio.to_thread(store_of(engine)._checkpoint))
        await asyncio.sleep(0.2)
        assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    await writing_back


HAMMER = """
store.CHECKPOINT_AT = 64 * 1024
async def main():
    async with engine_at(sys.argv[1]) as engine:
        say("ready")
        sys.stdin.readline()
        for n in range(100):
            await place(engine, a_run(f"{os.getpid()} {n}", payload=bytes(4000)))
        say(len(await complete_one_by_one(engine, want=5)))
asyncio.run(main())
"""


def test_a_file_that_several_processes_write_back_stays_sound(path: Path) -> None:
    with ExitStack() as stack:
        hammers = [stack.enter_context(Program(HAMMER, url_of(path))) for _ in range(3)]
        assert [hammer.line() for hammer in hammers] == ["ready"] * 3
        for hammer in hammers:
            hammer.go_on()
        assert sum(int(line) for hammer in hammers for line in hammer.rest()) == 300
    assert_sound(path)
