"""Runs that were given no key are called by their id, and keep to the same rules."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.model import Cancelled, Conflict, EventKind, Finished, NewRun, Placing, Requeue, State, Topic
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import (
    HOUR,
    MINUTE,
    a_run,
    all_runs,
    assert_leaves_nothing,
    complete,
    fail,
    newest,
    place,
    requeue,
    revive,
    start_one,
    state_of,
    take,
    take_one,
)
from dovetail.testing.conformance.watching import hear

EVERY_RULE = pytest.mark.parametrize("conflict", list(Conflict))
BESIDE = pytest.mark.parametrize("conflict", [Conflict.KEEP_PENDING, Conflict.REPLACE, Conflict.POSTPONE])


def nameless(**fields: Any) -> NewRun:
    """A run whose key is its id."""
    run = a_run(**fields)
    return run.but(key=run.id)


class Naming(Fixtures):
    async def test_a_nameless_run_lives_like_any_other(self, engine: Engine, clock: VirtualClock) -> None:
        run = nameless()
        assert (await place(engine, run))[0].id == run.id
        claim = await take_one(engine)
        assert (claim.id, claim.key) == (run.id, run.id)
        await complete(engine, claim, result=b"1")
        assert (await newest(engine, run.id)).result == b"1"
        await assert_leaves_nothing(engine, clock)

    async def test_a_repeated_request_for_a_nameless_run_is_one(self, engine: Engine) -> None:
        run = nameless()
        for _ in range(2):
            assert (await place(engine, run))[0].id == run.id
        await complete(engine, await take_one(engine))
        (placement,) = await place(engine, run)
        assert (placement.id, placement.state) == (run.id, State.COMPLETED)
        assert await take(engine) == []

    async def test_a_nameless_run_keeps_its_key(self, engine: Engine) -> None:
        run = nameless(due=MINUTE)
        await place(engine, run)
        (placement,) = await place(engine, a_run(run.id))
        assert (placement.placing, placement.id) == (Placing.KEPT, run.id)

    async def test_a_nameless_run_gives_way_to_its_replacement(self, engine: Engine) -> None:
        run = nameless(due=MINUTE)
        await place(engine, run)
        replacement = a_run(run.id, conflict=Conflict.REPLACE)
        (placement,) = await place(engine, replacement)
        assert placement.placing is Placing.REPLACED
        assert [each.id for each in await all_runs(engine)] == [replacement.id]

    async def test_a_nameless_run_can_be_postponed(self, engine: Engine, clock: VirtualClock) -> None:
        run = nameless(due=MINUTE)
        await place(engine, run)
        await place(engine, a_run(run.id, due=HOUR, conflict=Conflict.POSTPONE))
        (only,) = await all_runs(engine)
        assert (only.id, only.due) == (run.id, clock.now() + HOUR)

    @BESIDE
    async def test_the_newest_of_a_nameless_key_is_its_successor(self, engine: Engine, conflict: Conflict) -> None:
        first = await start_one(engine, nameless())
        successor = a_run(first.key, conflict=conflict)
        await place(engine, successor)
        assert (await newest(engine, first.key)).id == successor.id
        await complete(engine, first)
        assert [run.id for run in await all_runs(engine, latest=True)] == [successor.id]

    @EVERY_RULE
    async def test_a_nameless_run_that_is_over_does_not_hold_its_key(self, engine: Engine, conflict: Conflict) -> None:
        first = await start_one(engine, nameless())
        await complete(engine, first)
        successor = a_run(first.key, conflict=conflict)
        (placement,) = await place(engine, successor)
        assert (placement.placing, placement.id) == (Placing.PLACED, successor.id)
        assert (await newest(engine, first.key)).id == successor.id

    async def test_a_requeue_of_a_nameless_run_gives_way(self, engine: Engine) -> None:
        first = await start_one(engine, nameless())
        successor = a_run(first.key, conflict=Conflict.REPLACE)
        await place(engine, successor)
        assert await engine.finish([Requeue(first, attempt=2)]) == [Finished.YIELDED]
        assert [run.id for run in await all_runs(engine)] == [successor.id]

    async def test_a_nameless_run_can_be_cancelled(self, engine: Engine) -> None:
        pending, running = nameless(due=MINUTE), nameless()
        await place(engine, pending, running)
        claim = await take_one(engine)
        answers = await engine.cancel([pending.key, running.key])
        assert answers == [Cancelled.CANCELLED, Cancelled.STOPPING]
        await complete(engine, claim)
        assert await engine.cancel([pending.key, running.key]) == [Cancelled.OVER, Cancelled.OVER]

    async def test_a_nameless_run_can_be_a_parent(self, engine: Engine) -> None:
        parent = nameless()
        child = nameless(after=(parent.key,))
        await place(engine, parent, child)
        await complete(engine, await take_one(engine))
        assert (await take_one(engine)).id == child.id

    async def test_a_nameless_run_can_be_tried_again(self, engine: Engine) -> None:
        claim = await start_one(engine, nameless())
        await requeue(engine, claim, attempt=2)
        assert (await take_one(engine)).attempt == 2

    async def test_a_nameless_run_can_be_revived(self, engine: Engine) -> None:
        claim = await start_one(engine, nameless())
        await fail(engine, claim)
        assert await revive(engine, claim.id) == [True]
        assert await state_of(engine, claim.key) is State.QUEUED

    async def test_a_nameless_run_whose_key_is_taken_is_not_revived(self, engine: Engine) -> None:
        claim = await start_one(engine, nameless())
        await fail(engine, claim)
        await place(engine, a_run(claim.key))
        assert await revive(engine, claim.id) == [False]

    async def test_a_nameless_run_is_heard_by_its_id(self, engine: Engine) -> None:
        run = nameless()
        async with engine.watch(Topic(EventKind.STATE, run.id)) as events:
            await place(engine, a_run("other"), run)
            event = await hear(events)
            assert (event.key, event.id) == (run.id, run.id)
