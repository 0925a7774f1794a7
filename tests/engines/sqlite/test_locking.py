"""One writer at a time: whoever wants to write says so first, and waits. No caller sees 'database is locked'."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from dovetail.clock import VirtualClock
from dovetail.engines.sqlite import SqliteEngine
from dovetail.errors import EngineUnavailable
from dovetail.model import EventKind, Hold, HoldKind, ProgressReport, RunQuery, Topic
from dovetail.testing.conformance.vocabulary import (
    HOUR,
    LEASE,
    a_run,
    all_runs,
    beat,
    complete,
    complete_one_by_one,
    fail,
    place,
    requeue,
    revive,
    start,
    start_one,
    take_one,
)
from tests.engines.sqlite.conftest import Trace
from tests.engines.sqlite.words import Opened, Program, assert_sound, by_hand, url_of, write_lock
from tests.waiting import PATIENCE, soon

WRITES = ("INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "REPLACE")


async def use_every_verb(engine: SqliteEngine) -> None:
    first, second, third = await start(engine, a_run("a"), a_run("b"), a_run("c"))
    await place(engine, a_run("d", due=HOUR), a_run("e", after=("d",)))
    await beat(engine, first, second, third)
    await engine.report([ProgressReport("a", increment=1)])
    await complete(engine, first)
    await fail(engine, second)
    await requeue(engine, third)
    await engine.cancel(["d", "c"])
    await revive(engine, second.id)
    pause = Hold(HoldKind.PAUSE, queue="default")
    await engine.hold([pause])
    await engine.holds()
    await engine.lift([pause])
    await engine.find(RunQuery())
    await engine.survey()
    await engine.sweep()
    await engine.migrate()


# Transactions


async def test_every_write_begins_by_taking_the_lock(opened: Opened, trace: Trace) -> None:
    engine = await opened()
    await use_every_verb(engine)
    assert set(trace.statements("BEGIN", "dovetail-writer")) == {"BEGIN IMMEDIATE"}
    outside = True
    for text in trace.statements(thread="dovetail-writer"):
        statement = text.partition("\n")[2] if text.startswith("--") else text
        if statement.startswith(("BEGIN", "COMMIT", "ROLLBACK")) and not statement.startswith("ROLLBACK TO"):
            outside = not statement.startswith("BEGIN")
        assert not (outside and statement.startswith(WRITES)), statement


async def test_the_schema_is_made_under_the_lock(opened: Opened, trace: Trace) -> None:
    await opened()
    made = [text for text in trace.statements() if "CREATE TABLE" in text]
    assert made
    texts = trace.statements()
    assert "BEGIN IMMEDIATE" in texts[: texts.index(made[0])]


async def test_reading_never_writes(opened: Opened, trace: Trace) -> None:
    engine = await opened()
    await use_every_verb(engine)
    read = trace.statements(thread="dovetail-reader")
    assert read
    assert all(text.lstrip("-").strip().startswith(("BEGIN", "SELECT", "ROLLBACK", "takes")) for text in read)


async def test_nobody_can_write_between_a_look_and_the_write_that_rests_on_it(
    opened: Opened, path: Path, trace: Trace
) -> None:
    """A deferred transaction that read first would fail at its first write, however long it is willing to wait."""
    engine = await opened()
    await place(engine, a_run("a"))
    refused: list[str] = []

    def intrude(text: str) -> None:
        if "dovetail_run" in text:
            with by_hand(path) as db:
                db.execute("PRAGMA busy_timeout = 0")
                try:
                    db.execute("UPDATE dovetail_run SET queue = 'stolen'")
                except sqlite3.OperationalError as error:
                    refused.append(str(error))

    (writer,) = [db for db in trace.connections if not db.execute("PRAGMA query_only").fetchone()[0]]
    writer.set_trace_callback(intrude)
    claim = await take_one(engine)
    writer.set_trace_callback(None)
    assert claim.queue == "default"
    assert len(refused) >= 3
    assert set(refused) == {"database is locked"}


# Waiting

HOLDER = """
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
say("held")
sys.stdin.readline()
db.execute("COMMIT")
"""


async def test_callers_wait_for_another_process_that_writes_for_long(engine: SqliteEngine, path: Path) -> None:
    claim = await start_one(engine, a_run("running"))
    with Program(HOLDER, path, bare=True) as holder:
        assert holder.line() == "held"
        asked = asyncio.gather(complete(engine, claim), place(engine, a_run("b")), engine.claim("w", 1, lease=LEASE))
        await asyncio.wait([asked], timeout=1.5)
        assert not asked.done()
        holder.go_on()
        await soon(asked)
    assert len(await all_runs(engine)) == 2


async def test_reading_waits_for_no_writer(engine: SqliteEngine, path: Path) -> None:
    await place(engine, a_run("a"))
    with write_lock(path):
        assert len(await soon(all_runs(engine))) == 1
        await soon(engine.survey())


async def test_watching_waits_for_no_writer(engine: SqliteEngine, path: Path) -> None:
    with write_lock(path):
        async with asyncio.timeout(PATIENCE), engine.watch(Topic(EventKind.WORK)):
            pass


async def test_opening_waits_for_a_writer(opened: Opened, path: Path) -> None:
    await opened()
    with write_lock(path):
        opening = asyncio.ensure_future(opened(docket="another"))
        await asyncio.sleep(0.2)
        assert not opening.done()
    await opening


@pytest.mark.usefixtures("impatient")
async def test_a_caller_whose_patience_ends_is_told_what_to_look_for(engine: SqliteEngine, path: Path) -> None:
    with write_lock(path), pytest.raises(EngineUnavailable) as refused:
        await place(engine, a_run("a"))
    assert str(refused.value) == (
        f"{path} was kept busy by other writers for 0 s; look for a process that holds a transaction open on it"
    )


@pytest.mark.usefixtures("impatient")
async def test_a_caller_who_was_refused_may_try_again(engine: SqliteEngine, path: Path) -> None:
    run = a_run("a")
    with write_lock(path), pytest.raises(EngineUnavailable):
        await place(engine, run)
    assert await all_runs(engine) == []
    await place(engine, run)
    assert [each.id for each in await all_runs(engine)] == [run.id]


@pytest.mark.usefixtures("impatient")
async def test_everyone_who_shares_the_transaction_is_told(engine: SqliteEngine, path: Path) -> None:
    with write_lock(path):
        answers = await asyncio.gather(*(place(engine, a_run(f"{n}")) for n in range(5)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [EngineUnavailable] * 5


@pytest.mark.usefixtures("impatient")
async def test_a_new_engine_on_a_busy_file_is_told(opened: Opened, path: Path) -> None:
    with by_hand(path) as db:
        db.execute("BEGIN EXCLUSIVE")
        with pytest.raises(EngineUnavailable, match="kept busy"):
            await opened()
        db.execute("ROLLBACK")
    await opened()


# Many writers


def test_many_threads_write_to_one_file(path: Path, clock: VirtualClock) -> None:
    """Each with connections of its own, so that they contend for the file's lock and not for a thread of ours."""
    done: list[int] = []
    waits: list[float] = []

    async def work(lane: str) -> None:
        async with SqliteEngine(url_of(path), "tests", clock=clock, durability="process", lane=lane) as engine:
            for n in range(25):
                began = time.monotonic()
                await place(engine, a_run(f"{lane} {n}"))
                waits.append(time.monotonic() - began)
            done.append(len(await complete_one_by_one(engine, want=5)))

    threads = [threading.Thread(target=lambda n=n: asyncio.run(work(f"{n}"))) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 8
    assert sum(done) == 8 * 25
    assert max(waits) < PATIENCE
    assert_sound(path)


WORKER = """
async def main():
    async with engine_at(sys.argv[1]) as engine:
        say("ready")
        sys.stdin.readline()
        for n in range(50):
            await place(engine, a_run(f"{os.getpid()} {n}"))
        say("\\t".join(await complete_one_by_one(engine, want=5)))
asyncio.run(main())
"""


def test_many_processes_write_to_one_file(path: Path) -> None:
    with ExitStack() as stack:
        workers = [stack.enter_context(Program(WORKER, url_of(path))) for _ in range(4)]
        assert [worker.line() for worker in workers] == ["ready"] * 4
        for worker in workers:
            worker.go_on()
        done = [key for worker in workers for line in worker.rest() for key in line.split("\t") if key]
    assert len(done) == len(set(done)) == 4 * 50
    assert_sound(path)
