"""limits: so many at once."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.model import Limit, NewRun, RunQuery, Settle, State
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import (
    AT_ONCE,
    LEASE,
    MINUTE,
    SECOND,
    a_run,
    beat,
    complete,
    complete_one_by_one,
    fail,
    keys,
    newest,
    place,
    requeue,
    start,
    start_one,
    state_of,
    states_of,
    take,
    take_once,
    take_one,
)

ONE = Limit("slots", 1)


def limited(count: int, *limits: Limit, **fields: object) -> list[NewRun]:
    """So many runs, called 0, 1, 2 and so on, under these limits."""
    return [a_run(f"{n}", limits=limits, **fields) for n in range(count)]


class Limits(Fixtures):
    # Room, and none

    @pytest.mark.parametrize("capacity", [1, 2, 5])
    async def test_no_more_than_the_capacity_run_at_once(self, engine: Engine, capacity: int) -> None:
        await place(engine, *limited(8, Limit("slots", capacity)))
        assert keys(await take_once(engine)) == [f"{n}" for n in range(capacity)]
        assert await take(engine) == []

    async def test_a_refused_run_is_parked_on_its_limit(self, engine: Engine) -> None:
        await start(engine, *limited(1, ONE))
        await place(engine, a_run(limits=(ONE,)))
        await take(engine)
        run = await newest(engine, "a")
        assert (run.state, run.parked_on) == (State.SCHEDULED, "slots")
        assert (run.attempt, run.crashes, run.started, run.worker) == (1, 0, None, None)

    async def test_a_limit_holds_up_nobody_else(self, engine: Engine) -> None:
        await place(engine, *limited(3, ONE), a_run("free"))
        assert sorted(keys(await take(engine))) == ["0", "free"]

    async def test_a_limit_is_told_by_its_key(self, engine: Engine) -> None:
        await place(engine, a_run("a", limits=(Limit("x", 1),)), a_run("b", limits=(Limit("y", 1),)))
        assert keys(await take(engine)) == ["a", "b"]

    async def test_tasks_may_share_a_limit(self, engine: Engine) -> None:
        await place(engine, a_run("a", task="send", limits=(ONE,)), a_run("b", task="receive", limits=(ONE,)))
        assert keys(await take(engine)) == ["a"]

    async def test_queues_may_share_a_limit(self, engine: Engine) -> None:
        await place(engine, a_run("a", queue="x", limits=(ONE,)), a_run("b", queue="y", limits=(ONE,)))
        assert keys(await take(engine)) == ["a"]

    async def test_each_run_states_its_own_capacity(self, engine: Engine) -> None:
        await start(engine, *limited(1, ONE))
        await place(engine, a_run("narrow", limits=(Limit("slots", 1),)), a_run("wide", limits=(Limit("slots", 2),)))
        assert keys(await take(engine)) == ["wide"]

    async def test_all_limits_of_a_run_must_have_room(self, engine: Engine) -> None:
        both = (Limit("wide", 3), Limit("narrow", 1))
        await place(engine, a_run("a", limits=both), a_run("b", limits=both), a_run("c", limits=(Limit("wide", 3),)))
        assert keys(await take(engine)) == ["a", "c"]
        assert (await newest(engine, "b")).parked_on == "narrow"

    async def test_a_refused_run_takes_no_slot_elsewhere(self, engine: Engine) -> None:
        await start(engine, a_run("blocker", limits=(Limit("narrow", 1),)))
        await place(engine, a_run("refused", limits=(Limit("wide", 1), Limit("narrow", 1))))
        assert await take(engine) == []
        await place(engine, a_run("other", limits=(Limit("wide", 1),)))
        assert keys(await take(engine)) == ["other"]

    # A slot set free

    async def test_a_finish_wakes_the_next(self, engine: Engine) -> None:
        await place(engine, *limited(3, ONE))
        assert await complete_one_by_one(engine, want=1) == ["0", "1", "2"]

    @pytest.mark.parametrize("state", [State.COMPLETED, State.FAILED, State.CANCELLED])
    async def test_every_end_frees_the_slot(self, engine: Engine, state: State) -> None:
        await place(engine, *limited(2, ONE))
        first = await take_one(engine)
        await engine.finish([Settle(first, state)])
        assert keys(await take(engine)) == ["1"]

    async def test_a_woken_run_is_queued(self, engine: Engine) -> None:
        await place(engine, *limited(3, ONE))
        (first,) = await take(engine)
        await complete(engine, first)
        assert await states_of(engine, "1", "2") == [State.QUEUED, State.SCHEDULED]
        assert (await newest(engine, "1")).parked_on is None

    async def test_the_first_in_claim_order_is_woken(self, engine: Engine) -> None:
        (first,) = await start(engine, *limited(1, ONE))
        await place(engine, a_run("low", limits=(ONE,)), a_run("high", limits=(ONE,), priority=5))
        assert await take(engine) == []
        await complete(engine, first)
        assert await states_of(engine, "low", "high") == [State.SCHEDULED, State.QUEUED]

    async def test_parked_runs_wake_in_claim_order(self, engine: Engine, clock: VirtualClock) -> None:
        (first,) = await start(engine, *limited(1, ONE))
        await place(
            engine,
            a_run("later", limits=(ONE,)),
            a_run("earlier", limits=(ONE,), due=clock.now() - MINUTE),
            a_run("urgent", limits=(ONE,), priority=5),
        )
        assert await take(engine) == []
        await complete(engine, first)
        assert await complete_one_by_one(engine, want=1) == ["urgent", "earlier", "later"]

    async def test_a_requeue_frees_the_slot(self, engine: Engine) -> None:
        await place(engine, *limited(2, ONE))
        (first,) = await take(engine)
        await requeue(engine, first, due=MINUTE)
        assert keys(await take(engine)) == ["1"]

    async def test_a_run_that_was_requeued_needs_a_slot_again(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, *limited(2, ONE))
        (first,) = await take(engine)
        await requeue(engine, first, due=SECOND)
        (second,) = await take(engine)
        clock.jump(2 * SECOND)
        assert await take(engine) == []
        await complete(engine, second)
        assert keys(await take(engine)) == ["0"]

    async def test_several_slots_wake_several_runs(self, engine: Engine) -> None:
        await place(engine, *limited(7, Limit("slots", 3)))
        first = await take(engine)
        await complete(engine, *first)
        assert keys(await take(engine)) == ["3", "4", "5"]

    async def test_a_run_dropped_at_its_end_frees_its_slot(self, engine: Engine) -> None:
        await place(engine, *limited(2, ONE, retention=AT_ONCE))
        assert await complete_one_by_one(engine) == ["0", "1"]

    async def test_a_fenced_finish_frees_no_slot(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, *limited(3, ONE))
        (first,) = await take(engine, worker="ann")
        clock.jump(LEASE + SECOND)
        (again,) = await take(engine, worker="bob")
        await engine.finish([Settle(first, State.COMPLETED)])
        assert await take(engine) == []
        await complete(engine, again)
        assert keys(await take(engine)) == ["1"]

    async def test_a_repeated_finish_frees_no_second_slot(self, engine: Engine) -> None:
        await place(engine, *limited(4, ONE))
        (first,) = await take(engine)
        await engine.finish([Settle(first, State.COMPLETED)] * 2)
        await engine.finish([Settle(first, State.COMPLETED)])
        assert keys(await take(engine)) == ["1"]

    # Slots and leases

    async def test_a_redelivered_run_keeps_its_slot(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, *limited(2, ONE))
        await take(engine, worker="ann")
        clock.jump(LEASE + SECOND)
        (again,) = await take(engine, worker="bob")
        assert (again.key, again.redelivered) == ("0", True)
        await complete(engine, again)
        assert keys(await take(engine)) == ["1"]

    async def test_a_lapsed_run_keeps_its_slot_until_it_is_taken_over(
        self, engine: Engine, clock: VirtualClock
    ) -> None:
        await place(engine, a_run("a", queue="x", limits=(ONE,)), a_run("b", queue="y", limits=(ONE,)))
        assert keys(await take(engine, queues=["x"])) == ["a"]
        clock.jump(LEASE + SECOND)
        assert await take(engine, queues=["y"]) == []
        assert keys(await take(engine, queues=["x"])) == ["a"]

    async def test_a_renewed_run_keeps_its_slot(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, *limited(2, ONE))
        claims = await take(engine)
        for _ in range(3):
            clock.jump(LEASE - SECOND)
            await beat(engine, *claims)
        assert await take(engine) == []

    async def test_a_poisoned_run_frees_its_slot(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, a_run("bad", limits=(ONE,), crash_limit=1), a_run("good", limits=(ONE,)))
        assert keys(await take(engine)) == ["bad"]
        clock.jump(LEASE + SECOND)
        assert keys(await take(engine)) == ["good"]

    async def test_a_stopped_run_whose_worker_died_frees_its_slot(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, *limited(2, ONE))
        await take(engine)
        await engine.cancel(["0"])
        assert await take(engine) == []
        clock.jump(LEASE + SECOND)
        assert keys(await take(engine)) == ["1"]

    # Dropping

    async def test_a_dropping_limit_cancels_what_it_refuses(self, engine: Engine) -> None:
        await place(engine, *limited(2, Limit("slots", 1, drop=True)))
        assert keys(await take(engine)) == ["0"]
        assert await state_of(engine, "1") is State.CANCELLED

    @pytest.mark.parametrize("key", ["slots", "rate:task:send", "ä \x01 % ' {}"])
    @pytest.mark.parametrize("window", [None, MINUTE])
    async def test_a_dropped_run_says_which_limit_had_no_room(
        self, engine: Engine, key: str, window: timedelta | None
    ) -> None:
        dropping = Limit(key, 1, window, drop=True)
        await start(engine, a_run("a", limits=(dropping,)))
        await place(engine, a_run("b", limits=(Limit("other", 5), dropping)))
        assert await take(engine) == []
        run = await newest(engine, "b")
        assert run.error == f"Dropped: the limit {key} had no room, and cancels what it does not admit"
        assert run.errors == ()
        assert [each.id for each in await engine.find(RunQuery(error_contains="had no room"))] == [run.id]

    async def test_a_dropped_run_cancels_what_hangs_on_it(self, engine: Engine) -> None:
        await place(engine, *limited(2, Limit("slots", 1, drop=True)), a_run("child", after=("1",)))
        await take(engine)
        assert await state_of(engine, "child") is State.CANCELLED

    async def test_a_child_that_a_drop_sets_free_is_not_slept_through(self, engine: Engine) -> None:
        await place(engine, *limited(2, Limit("slots", 1, drop=True)))
        await place(engine, a_run("rescue", after=("1",), after_failure=True, queue="another"))
        assert keys(await take(engine)) == ["0", "rescue"]

    async def test_a_worker_that_looks_once_is_told_of_what_a_drop_set_free(self, engine: Engine) -> None:
        await start_one(engine, a_run("holder", limits=(Limit("slots", 1),)))
        await place(engine, a_run("dropped", limits=(Limit("slots", 1, drop=True),)))
        await place(engine, a_run("rescue", after=("dropped",), after_failure=True, queue="another"))
        claimed = await engine.claim("worker", 1, lease=LEASE)
        assert keys(claimed.claims) == ["rescue"] or claimed.wait == timedelta()

    async def test_a_dropping_limit_with_room_drops_nothing(self, engine: Engine) -> None:
        dropping = Limit("slots", 1, drop=True)
        await complete(engine, await start_one(engine, a_run("a", limits=(dropping,))))
        assert (await start_one(engine, a_run("b", limits=(dropping,)))).key == "b"

    async def test_a_failed_run_with_limits_can_be_followed_by_another(self, engine: Engine) -> None:
        await fail(engine, await start_one(engine, a_run(limits=(ONE,))))
        assert (await start_one(engine, a_run(limits=(ONE,)))).key == "a"
