"""Rows that somebody altered by hand, under a running engine: healthy runs go on, and nobody hangs.

What becomes of the altered run is not promised. That it stops no other is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable
from datetime import timedelta
from typing import TypeVar

import pytest

from dovetail.clock import VirtualClock
from dovetail.engines.sqlite import SqliteEngine
from dovetail.errors import DovetailError
from dovetail.model import Cancelled, Conflict, Finished, Limit, Requeue, RunQuery, State, new_id
from dovetail.testing.conformance.vocabulary import (
    HOUR,
    LEASE,
    MINUTE,
    a_run,
    beat,
    completed,
    keys,
    place,
    run_of,
    start_one,
    state_of,
    take,
)
from tests.engines.sqlite.words import Opened, writer_of

T = TypeVar("T")

TAMPERED = {
    "an unknown state": "state = 'dancing'",
    "an empty state": "state = ''",
    "limits that are not JSON": "limits = '{'",
    "limits of another shape": "limits = '[1, 2]'",
    "limits without a capacity": """limits = '[{"key": "a"}]'""",
    "a limit of nothing": """limits = '[{"key": "a", "capacity": 0}]'""",
    "a limit of less than nothing": """limits = '[{"key": "a", "capacity": -5, "window": "PT1S"}]'""",
    "limits that are bytes": "limits = x'ff00'",
    "headers that are not JSON": "headers = '{'",
    "headers of another shape": "headers = '[1]'",
    "a negative attempt": "attempt = -1",
    "an attempt that is text": "attempt = 'first'",
    "a negative epoch": "epoch = -7",
    "the greatest epoch": "epoch = 9223372036854775807",
    "a crash limit of nothing": "crash_limit = 0",
    "a due time beyond the calendar": "due = 4611686018427387904",
    "a due time before the calendar": "due = -4611686018427387904",
    "a due time that is text": "due = 'soon'",
    "a creation beyond the calendar": "created = 4611686018427387904",
    "a priority that is text": "priority = 'high'",
    "the least priority": "priority = -9223372036854775808",
    "a place that is text": "place = 'first'",
    "a place at infinity": "place = 9e999",
    "a payload that is a number": "payload = 7",
    "a payload that is text": "payload = 'text'",
    "a task that is bytes": "task = x'ff'",
    "a key that is bytes": "key = x'ff'",
    "text that is no text": "message = CAST(x'ff' AS TEXT), error = CAST(x'ff' AS TEXT), task = CAST(x'ff' AS TEXT)",
    "a retention that is text": "keep_completed = 'long', keep_cancelled = 'long', keep_failed = 'long'",
    "the greatest retention": "keep_completed = 9223372036854775807",
    "a weight of nothing": "tribe = 'group', weight = 0",
    "a negative weight": "tribe = 'group', weight = -1",
    "a weight that is text": "tribe = 'group', weight = 'heavy'",
    "an end to come for a run that has not begun": "expires = 9000000000000000",
    "parents that are not there": "state = 'waiting', waits_for = 5",
    "children that are not there": "children = 5",
    "parked on a limit that is not its own": "state = 'scheduled', parked_on = 'ghost'",
    "parked although it is queued": "parked_on = 'ghost'",
    "a turn for a limit that is not there": "turn = 'ghost'",
    "running with nobody": "state = 'running', lease = NULL, worker = NULL",
    "running with a lease beyond the calendar": "state = 'running', lease = 4611686018427387904, worker = 'w'",
    "running with a lease long gone": "state = 'running', lease = -1, worker = 'w'",
    "over without an end": "state = 'completed', expires = NULL, finished = NULL",
    "over at a moment beyond the calendar": "state = 'failed', expires = 9e15, finished = 4611686018427387904",
    "failures that are not there": "failures = 99, error = 'Nothing'",
}
EVERY_WAY = pytest.mark.parametrize("change", TAMPERED.values(), ids=TAMPERED.keys())


@pytest.fixture
async def engine(opened: Opened) -> SqliteEngine:
    return await opened(f"memory://{new_id()}")


def alter(engine: SqliteEngine, statement: str, *values: object) -> None:
    writer_of(engine).execute(statement, values)


@pytest.fixture
async def tampered(engine: SqliteEngine, change: str) -> SqliteEngine:
    """A store with a run that was altered, and would be the first to start."""
    run = a_run("tampered", priority=9)
    await place(engine, run)
    alter(engine, f"UPDATE dovetail_run SET {change} WHERE id = ?", run.id)
    return engine


async def answer_or_complaint(asked: Awaitable[T]) -> T | None:
    """The answer, or nothing if the engine says in its own words that something is wrong."""
    with contextlib.suppress(DovetailError):
        return await asked
    return None


@EVERY_WAY
async def test_healthy_runs_are_still_claimed(tampered: SqliteEngine) -> None:
    await place(tampered, a_run("healthy"), a_run("elsewhere", queue="another"))
    assert {"healthy", "elsewhere"} <= set(keys(await take(tampered, 5)))


@EVERY_WAY
async def test_a_healthy_run_is_still_seen_through(tampered: SqliteEngine, clock: VirtualClock) -> None:
    """By a worker of its queue: one that vanished, and the next."""
    await place(tampered, a_run("healthy", queue="healthy"))
    await take(tampered, 1, queues=["healthy"])
    clock.jump(LEASE + MINUTE)
    (claim,) = await take(tampered, 1, queues=["healthy"])
    assert claim.redelivered
    assert (await beat(tampered, claim)).lost == frozenset()
    assert await tampered.finish([completed(claim)]) == [Finished.DONE]
    assert await state_of(tampered, "healthy") is State.COMPLETED
    clock.jump(HOUR)
    await tampered.sweep()
    assert await run_of(tampered, claim.id) is None


@EVERY_WAY
async def test_all_can_be_looked_at_and_put_away(tampered: SqliteEngine) -> None:
    """An operator finds the healthy run, sees the others or is told what is wrong, and gets rid of the altered one."""
    run = a_run("healthy", queue="healthy")
    await place(tampered, run)
    assert await run_of(tampered, run.id)
    page = await answer_or_complaint(tampered.find(RunQuery()))
    assert page is None or "healthy" in keys(page)
    survey = await answer_or_complaint(tampered.survey())
    assert survey is None or [each.count for each in survey.counts if each.queue == "healthy"] == [1]
    await answer_or_complaint(place(tampered, a_run("tampered", conflict=Conflict.REPLACE)))
    await answer_or_complaint(tampered.cancel(["tampered"]))
    assert await tampered.cancel(["healthy"]) == [Cancelled.CANCELLED]


# Moments that no calendar has


@pytest.mark.parametrize("due", [timedelta.max, -timedelta(days=900_000), timedelta.min])
@pytest.mark.parametrize("count", [1, 20], ids=["alone", "in bulk"])
async def test_a_due_time_beyond_the_calendar_stops_nobody(engine: SqliteEngine, due: timedelta, count: int) -> None:
    ids = [new_id() for _ in range(count)]
    await answer_or_complaint(place(engine, *(a_run(id, due=due).but(id=id) for id in ids)))
    await place(engine, a_run("healthy"))
    assert "healthy" in keys(await take(engine, 50))
    assert "healthy" in keys(await engine.find(RunQuery()))
    assert (await engine.survey()).counts


@pytest.mark.parametrize("due", [timedelta.max, -timedelta(days=900_000), timedelta.min])
async def test_a_retry_beyond_the_calendar_stops_nobody(engine: SqliteEngine, due: timedelta) -> None:
    claim = await start_one(engine, a_run("a"))
    await answer_or_complaint(engine.finish([Requeue(claim, 2, due)]))
    await place(engine, a_run("healthy"))
    assert "healthy" in keys(await take(engine, 50))
    assert "healthy" in keys(await engine.find(RunQuery()))


# Other tables


async def test_a_slot_that_belongs_to_nobody_is_given_back(engine: SqliteEngine) -> None:
    limit = Limit("slots", 1)
    await place(engine, a_run("a", limits=(limit,)))
    alter(engine, "INSERT INTO dovetail_slot SELECT docket, 'slots', 999 FROM dovetail_run")
    assert await take(engine, 1) == []
    await engine.sweep()
    assert keys(await take(engine, 1)) == ["a"]


async def test_a_parked_run_whose_limit_has_room_is_woken(engine: SqliteEngine) -> None:
    await place(engine, a_run("a", limits=(Limit("slots", 1),)))
    alter(engine, "UPDATE dovetail_run SET state = 'scheduled', parked_on = 'slots'")
    assert await take(engine, 1) == []
    await engine.sweep()
    assert keys(await take(engine, 1)) == ["a"]


async def test_a_worker_that_cannot_be_read_does_not_hide_the_others(engine: SqliteEngine) -> None:
    await beat(engine, worker="healthy")
    await beat(engine, worker="tampered")
    alter(engine, "UPDATE dovetail_worker SET info = '{' WHERE id = 'tampered'")
    survey = await answer_or_complaint(engine.survey())
    assert survey is None or "healthy" in [worker.name for worker in survey.workers]


async def test_a_parent_that_cannot_be_read_stops_no_claim(engine: SqliteEngine) -> None:
    parent = await start_one(engine, a_run("parent"))
    await engine.finish([completed(parent, result=b"1")])
    alter(engine, "UPDATE dovetail_run SET task = CAST(x'ff' AS TEXT) WHERE id = ?", parent.id)
    await place(engine, a_run("receiver", after=(parent.id,), wants_results=True), a_run("healthy"))
    assert {claim.key: claim.results for claim in await take(engine, 2)} == {"receiver": (), "healthy": ()}


async def test_a_run_whose_error_history_is_gone_is_still_found(engine: SqliteEngine) -> None:
    claim = await start_one(engine, a_run("a"))
    await engine.finish([completed(claim)])
    alter(engine, "UPDATE dovetail_run SET failures = 3, error = 'Boom: gone'")
    run = await run_of(engine, claim.id)
    assert run is not None
    assert run.errors == ()


async def test_a_docket_whose_row_is_gone_is_told(engine: SqliteEngine) -> None:
    alter(engine, "DELETE FROM dovetail_docket")
    await answer_or_complaint(beat(engine))


async def test_tables_that_are_gone_are_told(engine: SqliteEngine) -> None:
    alter(engine, "DROP TABLE dovetail_run")
    with pytest.raises(DovetailError):
        await place(engine, a_run("a"))
