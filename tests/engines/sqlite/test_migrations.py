"""The schema: made once whoever comes first, and only ever added to."""

from __future__ import annotations

import asyncio
import multiprocessing
import sqlite3
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from dovetail.clock import SystemClock
from dovetail.engines.sqlite import SqliteEngine, connection
from dovetail.engines.sqlite.location import Location
from dovetail.errors import InvalidArgument
from dovetail.testing.conformance.vocabulary import a_run, all_runs, place
from tests.engines.sqlite.words import Opened, assert_sound, by_hand, url_of, writer_of

SNAPSHOT = Path(__file__).with_name("schema.sql")
NOWHERE = Location(None, "migrations")


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    db = connection.connect(NOWHERE, "process")
    yield db
    db.close()


def schema_of(db: sqlite3.Connection) -> str:
    """All that is declared, in an order that does not depend on when it was."""
    rows = db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY tbl_name, type DESC, name")
    return "".join(f"{sql};\n\n" for (sql,) in rows)


# What the schema is


def test_all_migrations_together_make_the_schema_that_is_written_down(db: sqlite3.Connection) -> None:
    """A schema that changes needs a migration of its own: one that was released is never edited. After adding one,
    `python -m tests.engines.sqlite.test_migrations` writes the schema down anew."""
    connection.migrate(db, NOWHERE)
    assert schema_of(db) == SNAPSHOT.read_text(encoding="utf-8")


def test_migrations_are_numbered_without_a_gap() -> None:
    numbers = [number for number, _ in connection.migrations()]
    assert numbers == list(range(1, len(numbers) + 1))


def test_step_by_step_the_migrations_make_the_same_schema(db: sqlite3.Connection) -> None:
    for number, _ in connection.migrations():
        db.execute("BEGIN IMMEDIATE")
        assert connection.migrate_within(db, NOWHERE, number) == number
        db.execute("COMMIT")
    assert schema_of(db) == SNAPSHOT.read_text(encoding="utf-8")


def test_migrating_twice_is_the_same_as_once(db: sqlite3.Connection) -> None:
    newest = connection.migrations()[-1][0]
    assert connection.migrate(db, NOWHERE) == newest
    before = db.total_changes
    assert connection.migrate(db, NOWHERE) == newest
    assert db.total_changes == before


def test_every_name_in_the_schema_is_marked_as_ours(db: sqlite3.Connection) -> None:
    connection.migrate(db, NOWHERE)
    names = [name for (name,) in db.execute("SELECT name FROM sqlite_master")]
    assert names
    assert [name for name in names if not name.startswith(("dovetail_", "sqlite_autoindex_dovetail_"))] == []


def test_a_migration_that_fails_changes_nothing(db: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [*connection.migrations(), (99, "CREATE TABLE dovetail_new (x);\nCREATE TABLE nonsense nonsense;")]
    monkeypatch.setattr(connection, "migrations", lambda: steps)
    with pytest.raises(sqlite3.OperationalError, match="nonsense"):
        connection.migrate(db, NOWHERE)
    assert not db.in_transaction
    assert schema_of(db) == ""


# The verb


async def test_migrate_says_which_version_the_store_has(engine: SqliteEngine) -> None:
    newest = connection.migrations()[-1][0]
    assert await engine.migrate() == newest
    assert await engine.migrate(newest) == newest


@pytest.mark.parametrize("to", [999, 0, -1])
async def test_migrate_refuses_a_version_that_does_not_exist(engine: SqliteEngine, to: int) -> None:
    with pytest.raises(InvalidArgument, match=f"there is no schema version {to}; the newest is"):
        await engine.migrate(to)


async def test_a_store_of_an_older_version_is_brought_up_when_it_is_opened(
    opened: Opened, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SqliteEngine(url_of(path), "tests", clock=SystemClock()) as engine:
        await place(engine, a_run("kept"))
    newest = connection.migrations()[-1][0] + 1
    steps = [*connection.migrations(), (newest, "ALTER TABLE dovetail_run ADD COLUMN mood TEXT DEFAULT 'good';")]
    monkeypatch.setattr(connection, "migrations", lambda: steps)
    engine = await opened()
    assert await engine.migrate() == newest
    assert writer_of(engine).execute("SELECT key, mood FROM dovetail_run").fetchall() == [("kept", "good")]


# Several at once


def open_and_place(url: str, name: str, start: Event) -> None:
    async def main() -> None:
        async with SqliteEngine(url, "tests", clock=SystemClock(), durability="process") as engine:
            await place(engine, a_run(name))

    start.wait()
    asyncio.run(main())


def test_several_processes_may_open_a_new_file_at_once(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    start = context.Event()
    processes = [context.Process(target=open_and_place, args=(url_of(path), f"{n}", start)) for n in range(6)]
    for process in processes:
        process.start()
    start.set()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 6
    for process in processes:
        process.close()
    assert_sound(path)
    with by_hand(path) as db:
        assert db.execute("SELECT COUNT(DISTINCT key) FROM dovetail_run").fetchone() == (6,)
        assert db.execute("SELECT COUNT(*) FROM dovetail_schema").fetchone() == (1,)
        assert db.execute("SELECT COUNT(*) FROM dovetail_docket").fetchone() == (1,)


async def test_several_engines_of_a_process_may_open_a_new_file_at_once(opened: Opened) -> None:
    engines = await asyncio.gather(*(opened(lane=f"{n}") for n in range(6)))
    await asyncio.gather(*(place(engine, a_run(f"{n}")) for n, engine in enumerate(engines)))
    assert len(await all_runs(engines[0])) == 6


if __name__ == "__main__":
    fresh = connection.connect(NOWHERE, "process")
    connection.migrate(fresh, NOWHERE)
    SNAPSHOT.write_text(schema_of(fresh), encoding="utf-8")
    fresh.close()
