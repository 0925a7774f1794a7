"""Requests that come together share a transaction, and nothing else."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dovetail.clock import VirtualClock
from dovetail.engines.sqlite import SqliteEngine, store
from dovetail.errors import UnknownParent
from dovetail.model import EventKind, Finished, NewRun, Placing, Topic
from dovetail.testing.conformance.vocabulary import a_run, all_runs, completed, keys, place, start, take
from tests.engines.sqlite.conftest import Trace
from tests.engines.sqlite.words import Opened, store_of, url_of, write_lock


@asynccontextmanager
async def gathered(engine: SqliteEngine, path: Path) -> AsyncIterator[None]:
    """Whatever is asked for meanwhile is done together: the writer waits for the file, with one request in its hand."""
    with write_lock(path):
        first = asyncio.ensure_future(engine.lift([]))
        await asyncio.sleep(0)
        await asyncio.to_thread(taken_in_hand, engine)
        yield
    await first


def taken_in_hand(engine: SqliteEngine) -> None:
    """Wait until the writer is at work on what was asked for, and looks for no more company."""
    store = store_of(engine)
    while not (store._requests.empty() and store._writing.locked()):
        time.sleep(0.001)


async def together(engine: SqliteEngine, path: Path, *requests: Awaitable[Any]) -> list[Any]:
    """Make these requests so that they share a transaction; what became of each."""
    async with gathered(engine, path):
        asked = [asyncio.ensure_future(request) for request in requests]
        await asyncio.sleep(0)
    return await asyncio.gather(*asked, return_exceptions=True)


async def test_requests_that_come_together_share_a_commit(opened: Opened, path: Path, trace: Trace) -> None:
    engine = await opened()
    trace.forget()
    await together(engine, path, *(place(engine, a_run(f"{n}")) for n in range(50)))
    assert len(trace.statements("COMMIT")) == 2
    assert len(await all_runs(engine)) == 50


async def test_a_transaction_is_shared_by_a_bounded_number(
    opened: Opened, path: Path, trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "GATHERED", 10)
    engine = await opened()
    trace.forget()
    await together(engine, path, *(place(engine, a_run(f"{n}")) for n in range(50)))
    assert len(trace.statements("COMMIT")) == 6
    assert len(await all_runs(engine)) == 50


async def test_requests_under_load_share_commits_by_themselves(opened: Opened, trace: Trace) -> None:
    engine = await opened()
    trace.forget()

    async def one_by_one(name: int) -> None:
        for n in range(20):
            await place(engine, a_run(f"{name} {n}"))

    await asyncio.gather(*(one_by_one(name) for name in range(20)))
    assert len(trace.statements("COMMIT")) < 200


async def test_a_request_alone_is_not_kept_waiting_for_company(opened: Opened, trace: Trace) -> None:
    engine = await opened()
    trace.forget()
    for n in range(5):
        await place(engine, a_run(f"{n}"))
    assert len(trace.statements("COMMIT")) == 5
    assert trace.statements("SAVEPOINT") == []


async def test_later_requests_of_a_group_see_the_earlier_ones(engine: SqliteEngine, path: Path) -> None:
    answers = await together(engine, path, *(place(engine, a_run("a")) for _ in range(3)))
    assert [answer[0].placing for answer in answers] == [Placing.PLACED, Placing.KEPT, Placing.KEPT]


async def test_a_claim_sees_what_was_scheduled_in_its_group(engine: SqliteEngine, path: Path) -> None:
    _, claims, none = await together(engine, path, place(engine, a_run("a")), take(engine, 1), take(engine, 1))
    assert keys(claims) == ["a"]
    assert none == []


# One that fails


def broken() -> NewRun:
    return a_run("broken", after=("nobody",))


async def test_a_request_that_fails_takes_back_only_its_own_work(engine: SqliteEngine, path: Path) -> None:
    good, bad, also_good = await together(
        engine, path, place(engine, a_run("a")), place(engine, a_run("taken back"), broken()), place(engine, a_run("b"))
    )
    assert isinstance(bad, UnknownParent)
    assert [good[0].placing, also_good[0].placing] == [Placing.PLACED] * 2
    assert keys(await all_runs(engine)) == ["a", "b"]


async def test_a_request_that_fails_alone_takes_back_its_work(engine: SqliteEngine) -> None:
    with pytest.raises(UnknownParent):
        await place(engine, a_run("taken back"), broken())
    assert await all_runs(engine) == []
    await place(engine, a_run("a"))


async def test_all_of_a_group_may_fail(engine: SqliteEngine, path: Path) -> None:
    answers = await together(engine, path, *(place(engine, broken()) for _ in range(3)))
    assert [type(answer) for answer in answers] == [UnknownParent] * 3
    assert await all_runs(engine) == []


IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "a payload that is an object": {"payload": object()},
    "no payload": {"payload": None},
    "no task": {"task": None},
    "half a character": {"task": "\ud800"},
    "a number too large": {"priority": 2**70},
    "a duration too long": {"crash_limit": 2**70},
}


@pytest.mark.parametrize("fields", IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
async def test_a_request_that_sqlite_refuses_takes_back_only_its_own_work(
    engine: SqliteEngine, path: Path, fields: dict[str, Any]
) -> None:
    bad = a_run("bad").but(**fields)
    good, refused, also_good = await together(
        engine, path, place(engine, a_run("a")), place(engine, bad), place(engine, a_run("b"))
    )
    assert isinstance(refused, Exception)
    assert not isinstance(good, Exception)
    assert not isinstance(also_good, Exception)
    assert keys(await all_runs(engine)) == ["a", "b"]


@pytest.mark.parametrize("error", [StopIteration, KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError])
async def test_whatever_one_request_raises_all_of_the_group_are_answered(
    engine: SqliteEngine, path: Path, error: type[BaseException]
) -> None:
    def fail(_: object) -> None:
        raise error

    good, bad, also_good = await together(
        engine, path, place(engine, a_run("a")), guarded(engine._write(fail)), place(engine, a_run("b"))
    )
    assert bad
    assert [good[0].placing, also_good[0].placing] == [Placing.PLACED] * 2


async def guarded(asked: Awaitable[Any]) -> BaseException | None:
    """What was raised, if anything: an exit is not to leave the test."""
    try:
        await asked
    except BaseException as error:
        return error
    return None


async def test_a_failure_in_the_group_tells_nobody_of_what_was_taken_back(opened: Opened, path: Path) -> None:
    engine = await opened()
    async with engine.watch(Topic(EventKind.STATE)) as events:
        await together(engine, path, place(engine, a_run("taken back"), broken()), place(engine, a_run("a")))
        assert (await anext(events)).key == "a"


# Those who do not wait


async def test_a_waiter_who_is_cancelled_harms_nobody(engine: SqliteEngine, path: Path) -> None:
    async with gathered(engine, path):
        asked = [asyncio.ensure_future(place(engine, a_run(f"{n}"))) for n in range(6)]
        await asyncio.sleep(0)
        for each in asked[::2]:
            each.cancel()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [isinstance(answer, asyncio.CancelledError) for answer in answers] == [True, False] * 3
    await place(engine, a_run("next"))
    assert "next" in keys(await all_runs(engine))


async def test_a_finish_whose_waiter_is_cancelled_can_be_repeated(engine: SqliteEngine, path: Path) -> None:
    (claim,) = await start(engine, a_run("a"))
    async with gathered(engine, path):
        finishing = asyncio.ensure_future(engine.finish([completed(claim)]))
        await asyncio.sleep(0)
        finishing.cancel()
    assert await engine.finish([completed(claim)]) == [Finished.ALREADY]


async def test_an_event_loop_that_is_gone_harms_nobody(engine: SqliteEngine, path: Path, clock: VirtualClock) -> None:
    def ask_and_go() -> None:
        async def ask() -> None:
            await SqliteEngine(url_of(path), "tests", clock=clock, durability="process").__aenter__()

        loop = asyncio.new_event_loop()
        asking = loop.create_task(ask())
        loop.run_until_complete(asyncio.wait([asking], timeout=0.1))
        asking.cancel()
        loop.run_until_complete(asyncio.wait([asking]))
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()

    with write_lock(path):
        thread = threading.Thread(target=ask_and_go)
        thread.start()
        await asyncio.to_thread(thread.join)
    await place(engine, a_run("a"))
    assert keys(await all_runs(engine)) == ["a"]
    store_of(engine).users -= 1  # the one who went without a word
