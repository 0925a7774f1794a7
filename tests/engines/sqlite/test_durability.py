"""What is asked of the disk, and who may read what is on it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.clock import VirtualClock
from dovetail.engines.sqlite import SqliteEngine
from dovetail.engines.sqlite.doorbell import bells_of
from dovetail.errors import InvalidArgument
from dovetail.model import EventKind, RunQuery, Topic
from dovetail.testing.conformance.vocabulary import a_run, place
from tests.engines.sqlite.conftest import Trace
from tests.engines.sqlite.words import Opened, by_hand, mode_of, reader_of, setting, writer_of

FULL, NORMAL = 2, 1


# How hard a commit is


@pytest.mark.parametrize(("durability", "synchronous"), [("durable", FULL), ("process", NORMAL)])
async def test_commits_are_as_durable_as_was_asked(opened: Opened, durability: str, synchronous: int) -> None:
    engine = await opened(durability=durability)
    assert setting(writer_of(engine), "synchronous") == synchronous


async def test_a_commit_is_durable_unless_something_else_is_asked_for(path: Path, clock: VirtualClock) -> None:
    async with SqliteEngine(f"sqlite:///{path}", "tests", clock=clock) as engine:
        assert setting(writer_of(engine), "synchronous") == FULL


async def test_two_engines_on_one_file_may_ask_for_different_durability(opened: Opened) -> None:
    durable, process = await opened(durability="durable"), await opened(durability="process")
    assert setting(writer_of(durable), "synchronous") == FULL
    assert setting(writer_of(process), "synchronous") == NORMAL


async def test_a_twin_is_as_durable_as_its_original(opened: Opened) -> None:
    engine = await opened(durability="durable")
    async with engine.twin() as twin:
        assert setting(writer_of(twin), "synchronous") == FULL


@pytest.mark.parametrize("durability", ["", "none", "FULL", "replicated", None])
def test_an_unknown_durability_is_refused_with_those_that_are_known(clock: VirtualClock, durability: str) -> None:
    with pytest.raises(InvalidArgument, match="durability must be 'durable' or 'process' for SQLite"):
        SqliteEngine("sqlite://", "tests", clock=clock, durability=durability)


async def test_the_answer_comes_after_the_commit(opened: Opened, trace: Trace) -> None:
    engine = await opened()
    for n in range(5):
        trace.forget()
        await place(engine, a_run(f"{n}"))
        assert trace.statements()[-1] == "COMMIT"


# How connections are set up


async def test_every_connection_writes_ahead(opened: Opened, trace: Trace) -> None:
    await opened()
    assert [setting(db, "journal_mode") for db in trace.connections] == ["wal"] * len(trace.connections)


async def test_no_connection_trusts_the_schema(opened: Opened, trace: Trace) -> None:
    await opened()
    for db in trace.connections:
        assert setting(db, "trusted_schema") == 0
        assert setting(db, "cell_size_check") == 1


async def test_no_connection_maps_the_file_into_memory(opened: Opened, trace: Trace) -> None:
    await opened()
    assert [setting(db, "mmap_size") for db in trace.connections] == [0] * len(trace.connections)


async def test_no_connection_loads_extensions(opened: Opened, trace: Trace) -> None:
    await opened()
    for db in trace.connections:
        with pytest.raises(sqlite3.OperationalError, match="not authorized"):
            db.execute("SELECT load_extension('mischief')")


async def test_a_reader_cannot_write(engine: SqliteEngine) -> None:
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader_of(engine).execute("DELETE FROM dovetail_run")


async def test_a_database_of_ours_can_give_room_back(engine: SqliteEngine) -> None:
    incremental = 2
    assert setting(writer_of(engine), "auto_vacuum") == incremental


# Who may read it


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=["umask 000", "umask 022", "umask 077"])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
async def test_only_the_owner_can_read_the_files(opened: Opened, path: Path, folder: Path) -> None:
    engine = await opened()
    await place(engine, a_run("a"))
    await engine.find(RunQuery())
    modes = {file.name: mode_of(file) for file in folder.iterdir()}
    assert modes == dict.fromkeys(("store.db", "store.db-wal", "store.db-shm", "store.db-ballast"), 0o600)


@pytest.mark.usefixtures("umask")
async def test_only_the_owner_can_ring_the_bells(engine: SqliteEngine, path: Path) -> None:
    async with engine.watch(Topic(EventKind.WORK)):
        assert mode_of(bells_of(path)) == 0o700


async def test_a_file_that_was_there_keeps_its_mode(opened: Opened, path: Path) -> None:
    with by_hand(path) as db:
        db.execute("CREATE TABLE own (x)")
    path.chmod(0o640)
    await opened()
    assert mode_of(path) == 0o640


async def test_nothing_but_the_database_and_its_ballast_stays(opened: Opened, folder: Path, path: Path) -> None:
    async with SqliteEngine(f"sqlite:///{path}", "tests", clock=VirtualClock()) as engine:
        await place(engine, a_run("a"))
        async with engine.watch(Topic(EventKind.WORK)):
            assert bells_of(path).exists()
    assert sorted(file.name for file in folder.iterdir()) == ["store.db", "store.db-ballast"]
