"""revive: what is over may go again, and what fell with it."""

from __future__ import annotations

import pytest

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.model import Conflict, EventKind, Limit, Revival, Settle, State, Topic
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import (
    AT_ONCE,
    BOOM,
    HOUR,
    SECOND,
    a_run,
    all_runs,
    beat,
    complete,
    complete_one_by_one,
    crash,
    fail,
    keys,
    newest,
    place,
    requeue,
    revive,
    run_of,
    start,
    start_one,
    state_of,
    states_of,
    take,
    take_one,
)
from dovetail.testing.conformance.watching import hear


class Reviving(Fixtures):
    # A clean slate

    @pytest.mark.parametrize("state", [State.COMPLETED, State.FAILED, State.CANCELLED])
    async def test_a_run_that_is_over_goes_again(self, engine: Engine, clock: VirtualClock, state: State) -> None:
        claim = await start_one(engine, a_run(payload=b"arguments"))
        await engine.finish([Settle(claim, state)])
        clock.jump(SECOND)
        assert await revive(engine, claim.id) == [True]
        assert await state_of(engine, "a") is State.QUEUED
        again = await take_one(engine)
        assert (again.id, again.attempt, again.payload) == (claim.id, 1, b"arguments")

    async def test_a_revived_run_has_a_clean_slate(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, a_run(attempt=1))
        await crash(engine, clock)
        claim = await take_one(engine)
        await requeue(engine, claim, attempt=5, failure=BOOM)
        await fail(engine, await take_one(engine))
        await revive(engine, claim.id)
        run = await newest(engine, "a")
        assert (run.attempt, run.crashes, run.finished) == (1, 0, None)
        again = await take_one(engine)
        assert (again.attempt, again.crashes, again.redelivered) == (1, 0, False)

    async def test_a_poisoned_run_may_crash_as_often_again(self, engine: Engine, clock: VirtualClock) -> None:
        run = a_run(crash_limit=2)
        await place(engine, run)
        await crash(engine, clock, times=2)
        await take(engine)
        assert await revive(engine, run.id) == [True]
        await crash(engine, clock, times=1)
        assert (await take_one(engine)).crashes == 1

    async def test_a_revival_may_change_the_arguments(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run(payload=b"1"))
        await fail(engine, claim)
        assert await engine.revive([Revival(claim.id, b"2")]) == [True]
        assert (await take_one(engine)).payload == b"2"

    async def test_a_revived_run_is_no_longer_asked_to_stop(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        await engine.cancel(["a"])
        await engine.finish([Settle(claim, State.CANCELLED)])
        await revive(engine, claim.id)
        again = await take_one(engine)
        assert (await beat(engine, again)).stopping == frozenset()

    async def test_a_run_cancelled_before_its_start_may_be_revived(self, engine: Engine) -> None:
        run = a_run(due=HOUR)
        await place(engine, run)
        await engine.cancel(["a"])
        assert await revive(engine, run.id) == [True]
        assert await state_of(engine, "a") in {State.QUEUED, State.SCHEDULED}

    async def test_a_revived_run_is_not_pruned(self, engine: Engine, clock: VirtualClock) -> None:
        claim = await start_one(engine, a_run())
        await fail(engine, claim)
        await revive(engine, claim.id)
        clock.jump(HOUR)
        await engine.sweep()
        assert keys(await take(engine)) == ["a"]

    async def test_a_revived_run_has_its_retention_anew(self, engine: Engine, clock: VirtualClock) -> None:
        run = a_run()
        await fail(engine, await start_one(engine, run))
        clock.jump(run.retention.failed - SECOND)
        await revive(engine, run.id)
        await fail(engine, await take_one(engine))
        clock.jump(run.retention.failed - SECOND)
        assert await state_of(engine, "a") is State.FAILED

    async def test_a_revived_run_minds_its_limits(self, engine: Engine) -> None:
        one = (Limit("slots", 1),)
        claim = await start_one(engine, a_run(limits=one))
        await fail(engine, claim)
        other = await start_one(engine, a_run("other", limits=one))
        await revive(engine, claim.id)
        assert await take(engine) == []
        await complete(engine, other)
        assert keys(await take(engine)) == ["a"]

    # What is not revived

    async def test_an_unknown_run_is_not_revived(self, engine: Engine) -> None:
        assert await revive(engine, "nobody") == [False]

    async def test_a_pending_run_is_not_revived(self, engine: Engine) -> None:
        run = a_run()
        await place(engine, run)
        assert await engine.revive([Revival(run.id, b"other")]) == [False]
        assert (await newest(engine, "a")).payload == b""

    async def test_a_running_run_is_not_revived(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        assert await revive(engine, claim.id) == [False]
        await complete(engine, claim)

    async def test_a_run_whose_record_was_dropped_is_not_revived(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run(retention=AT_ONCE))
        await fail(engine, claim)
        assert await revive(engine, claim.id) == [False]

    async def test_a_dependent_past_its_retention_is_not_revived(self, engine: Engine, clock: VirtualClock) -> None:
        parent = await start_one(engine, a_run("parent"))
        child = a_run("child", after=("parent",))
        await place(engine, child)
        await fail(engine, parent)
        clock.jump(2 * child.retention.cancelled)
        assert await revive(engine, child.id) == [False]

    async def test_a_run_past_its_retention_is_not_revived(self, engine: Engine, clock: VirtualClock) -> None:
        claim = await start_one(engine, a_run())
        await fail(engine, claim)
        clock.jump(HOUR)
        assert await revive(engine, claim.id) == [False]

    async def test_a_run_whose_key_a_pending_run_took_is_not_revived(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        await fail(engine, claim)
        await place(engine, a_run(due=HOUR))
        assert await revive(engine, claim.id) == [False]
        run = await run_of(engine, claim.id)
        assert run is not None
        assert run.state is State.FAILED

    async def test_a_run_whose_key_a_running_run_took_is_not_revived(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        await fail(engine, claim)
        await start_one(engine, a_run())
        assert await revive(engine, claim.id) == [False]

    async def test_of_two_runs_of_a_key_only_one_is_revived(self, engine: Engine) -> None:
        first = await start_one(engine, a_run())
        await fail(engine, first)
        second = await start_one(engine, a_run())
        await fail(engine, second)
        assert await revive(engine, first.id, second.id) == [True, False]
        assert len(await take(engine)) == 1

    async def test_a_revived_run_holds_its_key(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        await fail(engine, claim)
        await revive(engine, claim.id)
        (placement,) = await place(engine, a_run(conflict=Conflict.KEEP))
        assert placement.id == claim.id

    async def test_a_batch_of_revivals_is_answered_in_its_order(self, engine: Engine) -> None:
        one, two = await start(engine, a_run("1"), a_run("2"))
        await fail(engine, one)
        assert await revive(engine, two.id, one.id, "nobody") == [False, True, False]

    async def test_a_large_batch_of_all_kinds_is_revived(self, engine: Engine) -> None:
        slots = (Limit("slots", 100),)
        runs = [a_run(f"{n}", group="g" if n % 3 else None, limits=slots if n % 2 else ()) for n in range(60)]
        claims = await start(engine, *runs)
        await place(engine, a_run("child", after=(runs[5].id,)))
        await fail(engine, *claims)
        await place(engine, a_run("7"))
        ids = [run.id for run in runs]
        expected = [n != 7 for n in range(60)]
        assert await revive(engine, *ids, ids[0], "nobody") == [*expected, False, False]
        again = await take(engine, 100)
        assert sorted(keys(again), key=int) == [f"{n}" for n in range(60)]
        assert await state_of(engine, "child") is State.WAITING

    async def test_whoever_watches_hears_of_a_revival(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        await fail(engine, claim)
        async with engine.watch(Topic(EventKind.STATE)) as events:
            await revive(engine, claim.id)
            event = await hear(events)
        assert (event.key, event.id, event.state) == ("a", claim.id, State.QUEUED)

    async def test_reviving_nothing_is_nothing(self, engine: Engine) -> None:
        assert await engine.revive([]) == []

    # What fell with it

    async def test_dependents_come_back_to_wait(self, engine: Engine) -> None:
        parent = await start_one(engine, a_run("parent"))
        await place(engine, a_run("child", after=("parent",)))
        await fail(engine, parent)
        await revive(engine, parent.id)
        run = await newest(engine, "child")
        assert (run.state, run.doomed_by, run.finished) == (State.WAITING, None, None)
        assert await complete_one_by_one(engine) == ["parent", "child"]

    async def test_dependents_come_back_from_any_depth(self, engine: Engine) -> None:
        chain = [a_run("0"), *(a_run(f"{n}", after=(f"{n - 1}",)) for n in range(1, 21))]
        await engine.schedule(chain)
        await fail(engine, await take_one(engine))
        await revive(engine, chain[0].id)
        assert {run.state for run in await all_runs(engine) if run.key != "0"} == {State.WAITING}
        assert await complete_one_by_one(engine) == [f"{n}" for n in range(21)]

    async def test_a_diamond_comes_back_whole(self, engine: Engine) -> None:
        top = a_run("top")
        await place(
            engine,
            top,
            a_run("left", after=("top",)),
            a_run("right", after=("top",)),
            a_run("bottom", after=("left", "right")),
        )
        await fail(engine, await take_one(engine))
        await revive(engine, top.id)
        assert await states_of(engine, "left", "right", "bottom") == [State.WAITING] * 3
        assert await complete_one_by_one(engine, want=1) == ["top", "left", "right", "bottom"]

    async def test_dependents_fall_again_when_the_revived_run_does(self, engine: Engine) -> None:
        parent = await start_one(engine, a_run("parent"))
        await place(engine, a_run("child", after=("parent",)))
        await fail(engine, parent)
        await revive(engine, parent.id)
        await fail(engine, await take_one(engine))
        assert await state_of(engine, "child") is State.CANCELLED

    async def test_a_dependent_that_was_cancelled_on_its_own_stays_so(self, engine: Engine) -> None:
        parent = await start_one(engine, a_run("parent"))
        await place(engine, a_run("child", after=("parent",)))
        await engine.cancel(["child"])
        await fail(engine, parent)
        await revive(engine, parent.id)
        assert await state_of(engine, "child") is State.CANCELLED

    async def test_a_dependent_whose_key_is_taken_stays_as_it_is(self, engine: Engine) -> None:
        parent = await start_one(engine, a_run("parent"))
        child = a_run("child", after=("parent",))
        await place(engine, child)
        await fail(engine, parent)
        await place(engine, a_run("child", due=HOUR))
        assert await revive(engine, parent.id) == [True]
        run = await run_of(engine, child.id)
        assert run is not None
        assert run.state is State.CANCELLED

    async def test_a_dependent_with_a_parent_that_still_runs_waits_for_it_too(self, engine: Engine) -> None:
        bad, good = await start(engine, a_run("bad"), a_run("good"))
        await place(engine, a_run("child", after=("bad", "good")))
        await fail(engine, bad)
        await revive(engine, bad.id)
        await complete(engine, await take_one(engine))
        assert await state_of(engine, "child") is State.WAITING
        await complete(engine, good)
        assert keys(await take(engine)) == ["child"]

    async def test_a_dependent_with_a_parent_that_completed_does_not_wait_for_that(self, engine: Engine) -> None:
        bad, good = await start(engine, a_run("bad"), a_run("good"))
        await place(engine, a_run("child", after=("bad", "good")))
        await complete(engine, good)
        await fail(engine, bad)
        await revive(engine, bad.id)
        assert await complete_one_by_one(engine) == ["bad", "child"]

    async def test_a_parent_that_completes_twice_counts_once(self, engine: Engine) -> None:
        one, two = await start(engine, a_run("1"), a_run("2"))
        await place(engine, a_run("child", after=("1", "2")))
        await complete(engine, one)
        await revive(engine, one.id)
        await complete(engine, await take_one(engine))
        assert await state_of(engine, "child") is State.WAITING
        await complete(engine, two)
        assert keys(await take(engine)) == ["child"]

    async def test_reviving_a_completed_parent_leaves_its_children_alone(self, engine: Engine) -> None:
        parent = await start_one(engine, a_run("parent"))
        await place(engine, a_run("child", after=("parent",)))
        await complete(engine, parent)
        child = await take_one(engine)
        await revive(engine, parent.id)
        assert await state_of(engine, "child") is State.RUNNING
        await complete(engine, child)
