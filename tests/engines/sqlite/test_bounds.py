"""The work of a call does not grow with what is kept, counted in steps of SQLite's machine: no clock is asked."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from datetime import timedelta
from typing import Any

import pytest

from dovetail.clock import VirtualClock, duration_to_microseconds
from dovetail.engines.sqlite import SqliteEngine
from dovetail.model import Claim, Conflict, Limit, Requeue, RunQuery, new_id
from dovetail.testing.conformance.vocabulary import HOUR, LEASE, a_run, beat, complete, completed, fail, place, take
from tests.engines.sqlite.words import fill, writer_of

SLACK = 200
"""Steps by which two calls of the same kind may differ."""

Stocked = Callable[[str, int], Awaitable[SqliteEngine]]


class Stock:
    """A kind of run to fill a store with."""

    def __init__(self, state: str, *, later: tuple[str, ...] = (), now: tuple[str, ...] = (), **columns: Any) -> None:
        self._state, self._later, self._now, self._columns = state, later, now, columns

    def put(self, db: sqlite3.Connection, rows: int, now: int) -> None:
        moments = dict.fromkeys(("due", *self._now), now) | dict.fromkeys(self._later, now + HOURS)
        fill(db, rows, self._state, **moments, **self._columns)


HOURS = duration_to_microseconds(HOUR)
STOCKS = {
    "queued": Stock("queued"),
    "future": Stock("scheduled", later=("due",)),
    "parked": Stock("scheduled", parked_on="full", limits='[{"key":"full","capacity":1}]'),
    "became due": Stock("scheduled"),
    "waiting": Stock("waiting", waits_for=1),
    "running": Stock("running", later=("lease",), worker="other"),
    "lapsed": Stock("running", now=("lease",), worker="other"),
    "over": Stock("completed", later=("expires",)),
    "expired": Stock("completed", now=("expires",)),
}


@pytest.fixture
async def stocked(clock: VirtualClock) -> AsyncIterator[Stocked]:
    """Opens an engine on a store that holds so many runs of a kind."""
    async with AsyncExitStack() as stack:

        async def make(kind: str, rows: int) -> SqliteEngine:
            engine = await stack.enter_async_context(SqliteEngine(f"memory://{new_id()}", "bounds", clock=clock))
            STOCKS[kind].put(writer_of(engine), rows, clock.microseconds())
            return engine

        yield make


class Steps:
    count = 0

    def note(self) -> None:
        self.count += 1


@contextmanager
def counted(engine: SqliteEngine) -> Iterator[Steps]:
    """Counts the steps of SQLite's machine."""
    steps = Steps()
    db = writer_of(engine)
    db.set_progress_handler(steps.note, 1)
    yield steps
    db.set_progress_handler(None, 1)


async def nothing(_: SqliteEngine) -> None: ...


Prepare = Callable[[SqliteEngine], Awaitable[Any]]
Act = Callable[[SqliteEngine, Any], Awaitable[Any]]


async def steps_of(engine: SqliteEngine, act: Act, prepare: Prepare = nothing) -> int:
    given = await prepare(engine)
    with counted(engine) as steps:
        await act(engine, given)
    assert steps.count
    return steps.count


# Claiming


async def claim_any(engine: SqliteEngine, _: Any) -> None:
    await engine.claim("worker", 10, lease=LEASE)


async def claim_from_a_queue(engine: SqliteEngine, _: Any) -> None:
    await engine.claim("worker", 10, queues=("queue-1",), lease=LEASE)


async def claim_from_another_queue(engine: SqliteEngine, _: Any) -> None:
    await engine.claim("worker", 10, queues=("mine",), lease=LEASE)


@pytest.mark.parametrize("claim", [claim_any, claim_from_a_queue, claim_from_another_queue])
@pytest.mark.parametrize("kind", ["queued", "future", "parked"])
async def test_a_claim_costs_no_more_with_a_hundred_thousand_runs(kind: str, claim: Act, stocked: Stocked) -> None:
    few, many = [await steps_of(await stocked(kind, rows), claim) for rows in (1_000, 100_000)]
    assert many <= few * 1.1 + SLACK


@pytest.mark.parametrize("claim", [claim_any, claim_from_a_queue, claim_from_another_queue])
@pytest.mark.parametrize("kind", sorted(STOCKS.keys() - {"queued", "future", "parked"}))
async def test_a_claim_costs_no_more_with_many_runs_of_any_kind(kind: str, claim: Act, stocked: Stocked) -> None:
    few, many = [await steps_of(await stocked(kind, rows), claim) for rows in (2_000, 20_000)]
    assert many <= few * 1.1 + SLACK


async def test_a_window_with_many_starts_behind_it_costs_no_more(stocked: Stocked, clock: VirtualClock) -> None:
    rate = Limit("rate", 5, timedelta(minutes=1))
    past = clock.microseconds() - HOURS

    async def prepare(engine: SqliteEngine) -> None:
        writer_of(engine).execute(
            "INSERT INTO dovetail_start SELECT 1, 'rate', ?1 - seq, ?1, seq FROM dovetail_run", (past,)
        )
        await place(engine, a_run("mine", limits=(rate,), queue="mine"))

    few, many = [
        await steps_of(await stocked("over", rows), claim_from_another_queue, prepare) for rows in (1_000, 10_000)
    ]
    assert many <= few * 1.1 + SLACK


# The other verbs


async def running(engine: SqliteEngine) -> list[Claim]:
    """Claims from a queue where nothing else is."""
    await place(engine, *(a_run(f"mine {n}", queue="mine", priority=9) for n in range(20)))
    return await take(engine, 20, queues=["mine"])


async def pending(engine: SqliteEngine) -> None:
    await place(engine, a_run("mine", due=HOUR))


VERBS: dict[str, tuple[Prepare, Act]] = {
    "schedule": (nothing, lambda engine, _: place(engine, a_run(), a_run())),
    "replace": (pending, lambda engine, _: place(engine, a_run("mine", conflict=Conflict.REPLACE))),
    "schedule many": (nothing, lambda engine, _: place(engine, *(a_run(id).but(id=id) for id in IDS))),
    "complete": (running, lambda engine, claims: complete(engine, claims[0])),
    "complete many": (running, lambda engine, claims: engine.finish([completed(claim) for claim in claims])),
    "fail": (running, lambda engine, claims: fail(engine, claims[0])),
    "requeue": (running, lambda engine, claims: engine.finish([Requeue(claims[0], 2, HOUR)])),
    "heartbeat": (running, lambda engine, claims: beat(engine, *claims)),
    "cancel": (pending, lambda engine, _: engine.cancel(["mine", "nobody's"])),
    "find by key": (pending, lambda engine, _: engine.find(RunQuery(keys=("mine",), newest_first=True, limit=1))),
    "sweep": (nothing, lambda engine, _: engine.sweep(at_most=100)),
}
IDS = [new_id() for _ in range(100)]


@pytest.mark.parametrize("kind", STOCKS)
async def test_no_verb_costs_more_with_many_runs(kind: str, stocked: Stocked) -> None:
    few, many = await stocked(kind, 500), await stocked(kind, 10_000)
    dearer: dict[str, tuple[int, int]] = {}
    for verb, (prepare, act) in VERBS.items():
        counts = await steps_of(few, act, prepare), await steps_of(many, act, prepare)
        if counts[1] > counts[0] * 1.1 + SLACK:
            dearer[verb] = counts
    assert dearer == {}
