"""schedule: the four answers to a key that is taken."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.errors import InvalidArgument
from dovetail.model import Conflict, Limit, NewRun, Placing, State
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import (
    HOUR,
    MINUTE,
    SECOND,
    a_run,
    all_runs,
    complete,
    complete_one_by_one,
    completed,
    fail,
    keys,
    newest,
    place,
    run_of,
    start,
    start_one,
    state_of,
    take,
    take_one,
)

ONE_AT_A_TIME = (Limit("slots", 1),)
Holder = Callable[[Engine], Awaitable[NewRun]]
"""Brings a run of the key `a` into a state."""


async def _scheduled(engine: Engine) -> NewRun:
    run = a_run(due=MINUTE, payload=b"first")
    await place(engine, run)
    return run


async def _queued(engine: Engine) -> NewRun:
    run = a_run(payload=b"first")
    await place(engine, run)
    return run


async def _waiting(engine: Engine) -> NewRun:
    run = a_run(after=("parent",), payload=b"first")
    await place(engine, a_run("parent", due=HOUR), run)
    return run


async def _parked(engine: Engine) -> NewRun:
    await start_one(engine, a_run("blocker", limits=ONE_AT_A_TIME))
    run = a_run(limits=ONE_AT_A_TIME, payload=b"first")
    await place(engine, run)
    assert await take(engine) == []
    return run


async def _running(engine: Engine) -> NewRun:
    run = a_run(payload=b"first")
    await start_one(engine, run)
    return run


async def _completed(engine: Engine) -> NewRun:
    run = a_run(payload=b"first")
    await complete(engine, *await start(engine, run))
    return run


async def _failed(engine: Engine) -> NewRun:
    run = a_run(payload=b"first")
    await fail(engine, *await start(engine, run))
    return run


async def _cancelled(engine: Engine) -> NewRun:
    run = await _queued(engine)
    await engine.cancel(["a"])
    return run


PENDING = pytest.mark.parametrize(
    "holder", [_scheduled, _queued, _waiting, _parked], ids=["scheduled", "queued", "waiting", "parked"]
)
TERMINAL = pytest.mark.parametrize(
    "holder", [_completed, _failed, _cancelled], ids=["completed", "failed", "cancelled"]
)
EVERY_RULE = pytest.mark.parametrize("conflict", list(Conflict))
BESIDE = pytest.mark.parametrize("conflict", [Conflict.KEEP_PENDING, Conflict.REPLACE, Conflict.POSTPONE])
KEEPING = pytest.mark.parametrize("conflict", [Conflict.KEEP, Conflict.KEEP_PENDING])


class Conflicts(Fixtures):
    # A pending run holds the key

    @PENDING
    @KEEPING
    async def test_a_pending_run_keeps_its_key(self, engine: Engine, holder: Holder, conflict: Conflict) -> None:
        first = await holder(engine)
        before = await run_of(engine, first.id)
        (placement,) = await place(engine, a_run(payload=b"second", conflict=conflict))
        assert (placement.placing, placement.id) == (Placing.KEPT, first.id)
        assert before is not None
        assert placement.state is before.state
        assert await all_runs(engine, keys=("a",)) == [before]

    @PENDING
    async def test_a_pending_run_gives_way_to_its_replacement(self, engine: Engine, holder: Holder) -> None:
        first = await holder(engine)
        second = a_run(payload=b"second", due=2 * MINUTE, conflict=Conflict.REPLACE)
        (placement,) = await place(engine, second)
        assert (placement.placing, placement.id) == (Placing.REPLACED, second.id)
        assert placement.state is State.SCHEDULED
        assert await run_of(engine, first.id) is None
        (run,) = await all_runs(engine, keys=("a",))
        assert (run.id, run.payload, run.attempt) == (second.id, b"second", 1)

    @PENDING
    async def test_only_the_replacement_starts(self, engine: Engine, holder: Holder) -> None:
        await holder(engine)
        second = a_run(payload=b"second", conflict=Conflict.REPLACE)
        await place(engine, second)
        (claim,) = await take(engine)
        assert (claim.id, claim.payload) == (second.id, b"second")

    @PENDING
    async def test_postponing_moves_the_due_time_and_nothing_else(
        self, engine: Engine, clock: VirtualClock, holder: Holder
    ) -> None:
        first = await holder(engine)
        (placement,) = await place(
            engine, a_run(payload=b"second", due=5 * MINUTE, priority=9, conflict=Conflict.POSTPONE)
        )
        assert (placement.placing, placement.id) == (Placing.POSTPONED, first.id)
        (run,) = await all_runs(engine, keys=("a",))
        assert (run.id, run.payload, run.priority) == (first.id, b"first", 0)
        assert run.due == clock.now() + 5 * MINUTE
        assert run.state is placement.state

    async def test_a_postponed_run_waits_for_its_new_time(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, a_run(due=MINUTE))
        clock.jump(50 * SECOND)
        await place(engine, a_run(due=MINUTE, conflict=Conflict.POSTPONE))
        clock.jump(59 * SECOND)
        assert await take(engine) == []
        clock.jump(SECOND)
        assert keys(await take(engine)) == ["a"]

    async def test_a_queued_run_that_is_postponed_no_longer_starts(self, engine: Engine) -> None:
        await place(engine, a_run())
        (placement,) = await place(engine, a_run(due=MINUTE, conflict=Conflict.POSTPONE))
        assert placement.state is State.SCHEDULED
        assert await take(engine) == []

    async def test_a_postponement_may_move_a_run_forward(self, engine: Engine) -> None:
        first = a_run(due=HOUR)
        await place(engine, first)
        (placement,) = await place(engine, a_run(conflict=Conflict.POSTPONE))
        assert (placement.id, placement.state) == (first.id, State.QUEUED)
        assert [claim.id for claim in await take(engine)] == [first.id]

    async def test_a_waiting_run_that_is_postponed_goes_on_waiting(self, engine: Engine, clock: VirtualClock) -> None:
        parent = await start_one(engine, a_run("parent"))
        await place(engine, a_run(after=("parent",)))
        await place(engine, a_run(due=MINUTE, conflict=Conflict.POSTPONE))
        assert await state_of(engine, "a") is State.WAITING
        await complete(engine, parent)
        assert await state_of(engine, "a") is State.SCHEDULED
        clock.jump(MINUTE)
        assert keys(await take(engine)) == ["a"]

    async def test_a_parked_run_that_is_postponed_still_starts(self, engine: Engine, clock: VirtualClock) -> None:
        blocker = await start_one(engine, a_run("blocker", limits=ONE_AT_A_TIME))
        await place(engine, a_run(limits=ONE_AT_A_TIME))
        assert await take(engine) == []
        await place(engine, a_run(due=10 * SECOND, conflict=Conflict.POSTPONE))
        await complete(engine, blocker)
        assert await take(engine) == []
        clock.jump(10 * SECOND)
        assert keys(await take(engine)) == ["a"]

    # A running run holds the key

    async def test_a_running_run_keeps_its_key(self, engine: Engine) -> None:
        first = await _running(engine)
        (placement,) = await place(engine, a_run(conflict=Conflict.KEEP))
        assert (placement.placing, placement.id, placement.state) == (Placing.KEPT, first.id, State.RUNNING)
        assert len(await all_runs(engine)) == 1

    @BESIDE
    async def test_a_new_run_waits_beside_a_running_one(self, engine: Engine, conflict: Conflict) -> None:
        first = await _running(engine)
        second = a_run(payload=b"second", conflict=conflict)
        (placement,) = await place(engine, second)
        placing = Placing.REPLACED if conflict is Conflict.REPLACE else Placing.PLACED
        assert (placement.placing, placement.id, placement.state) == (placing, second.id, State.QUEUED)
        assert [(run.id, run.state) for run in await all_runs(engine)] == [
            (first.id, State.RUNNING),
            (second.id, State.QUEUED),
        ]
        assert (await newest(engine, "a")).id == second.id

    @BESIDE
    async def test_a_run_and_its_successor_finish_independently(self, engine: Engine, conflict: Conflict) -> None:
        first = await start_one(engine, a_run())
        second = await start_one(engine, a_run(conflict=conflict))
        await engine.finish([completed(second, result=b"2")])
        earlier = await run_of(engine, first.id)
        assert earlier is not None
        assert (earlier.state, earlier.result) == (State.RUNNING, None)
        await fail(engine, first)
        later = await run_of(engine, second.id)
        assert later is not None
        assert (later.state, later.result, later.error) == (State.COMPLETED, b"2", None)

    @EVERY_RULE
    async def test_at_most_one_run_of_a_key_is_pending(self, engine: Engine, conflict: Conflict) -> None:
        await start_one(engine, a_run())
        await place(engine, a_run(due=SECOND, conflict=Conflict.KEEP_PENDING))
        await place(engine, a_run(due=MINUTE, conflict=conflict))
        assert [run.state for run in await all_runs(engine)] == [State.RUNNING, State.SCHEDULED]

    async def test_keep_sees_the_pending_run_beside_a_running_one(self, engine: Engine) -> None:
        await start_one(engine, a_run())
        beside = a_run(conflict=Conflict.KEEP_PENDING)
        await place(engine, beside)
        (placement,) = await place(engine, a_run(conflict=Conflict.KEEP))
        assert (placement.placing, placement.id) == (Placing.KEPT, beside.id)

    async def test_a_replacement_beside_a_running_run_can_be_replaced_too(self, engine: Engine) -> None:
        running = await start_one(engine, a_run())
        second, third = a_run(conflict=Conflict.REPLACE), a_run(conflict=Conflict.REPLACE)
        await place(engine, second)
        (placement,) = await place(engine, third)
        assert placement.placing is Placing.REPLACED
        assert [run.id for run in await all_runs(engine)] == [running.id, third.id]
        await complete(engine, running)

    # Nobody holds the key

    @TERMINAL
    @EVERY_RULE
    async def test_a_terminal_run_does_not_hold_its_key(
        self, engine: Engine, holder: Holder, conflict: Conflict
    ) -> None:
        await holder(engine)
        second = a_run(payload=b"second", conflict=conflict)
        (placement,) = await place(engine, second)
        assert (placement.placing, placement.id, placement.state) == (Placing.PLACED, second.id, State.QUEUED)
        assert (await newest(engine, "a")).id == second.id
        assert [claim.id for claim in await take(engine)] == [second.id]

    @EVERY_RULE
    async def test_a_free_key_is_simply_taken(self, engine: Engine, conflict: Conflict) -> None:
        run = a_run(due=timedelta(), conflict=conflict)
        (placement,) = await place(engine, run)
        assert (placement.placing, placement.id) == (Placing.PLACED, run.id)

    # What hangs on a run that gives way

    async def test_a_replacement_does_not_wait_for_the_parents_of_the_replaced(self, engine: Engine) -> None:
        parent = await start_one(engine, a_run("parent"))
        await place(engine, a_run(after=("parent",)))
        replacement = a_run(conflict=Conflict.REPLACE)
        await place(engine, replacement)
        assert (await take_one(engine)).id == replacement.id
        await complete(engine, parent)
        assert await take(engine) == []

    async def test_a_replacement_may_wait_for_parents_of_its_own(self, engine: Engine) -> None:
        parent = await start_one(engine, a_run("parent"))
        await place(engine, a_run())
        (placement,) = await place(engine, a_run(after=("parent",), conflict=Conflict.REPLACE))
        assert (placement.placing, placement.state) == (Placing.REPLACED, State.WAITING)
        await complete(engine, parent)
        assert keys(await take(engine)) == ["a"]

    async def test_what_hung_on_a_replaced_run_hangs_on_its_replacement(self, engine: Engine) -> None:
        replacement = a_run("parent", conflict=Conflict.REPLACE)
        await place(engine, a_run("parent"), a_run("child", after=("parent",)))
        await place(engine, replacement)
        child = await newest(engine, "child")
        assert (child.state, child.parents) == (State.WAITING, (replacement.id,))
        await complete(engine, await take_one(engine))
        assert keys(await take(engine)) == ["child"]

    @pytest.mark.parametrize("awaited", ["child", "grandchild"])
    async def test_a_replacement_cannot_wait_for_what_hangs_on_it(self, engine: Engine, awaited: str) -> None:
        runs = [a_run(), a_run("child", after=("a",)), a_run("grandchild", after=("child",))]
        await place(engine, *runs)
        with pytest.raises(InvalidArgument, match="run 'a' is to wait for runs that hang on the one it replaces"):
            await place(engine, a_run("other"), a_run(after=(awaited,), conflict=Conflict.REPLACE))
        assert sorted(run.id for run in await all_runs(engine)) == sorted(run.id for run in runs)
        assert await complete_one_by_one(engine) == ["a", "child", "grandchild"]

    async def test_a_replacement_may_wait_for_what_hung_on_it_and_is_over(self, engine: Engine) -> None:
        await place(engine, a_run(due=HOUR), a_run("child", after=("a",)))
        await engine.cancel(["child"])
        await place(engine, a_run(after=("child",), after_failure=True, conflict=Conflict.REPLACE))
        assert keys(await take(engine)) == ["a"]

    async def test_what_hung_on_a_replaced_run_falls_with_its_replacement(self, engine: Engine) -> None:
        await place(engine, a_run("parent"), a_run("child", after=("parent",)))
        await place(engine, a_run("parent", conflict=Conflict.REPLACE))
        await fail(engine, await take_one(engine))
        assert await state_of(engine, "child") is State.CANCELLED
