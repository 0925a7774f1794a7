"""limits: a turn is never lost, whatever takes a woken run away."""

from __future__ import annotations

from datetime import timedelta

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.model import Conflict, Hold, HoldKind, Limit, Settle, State
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.limits import ONE, limited
from dovetail.testing.conformance.vocabulary import (
    LEASE,
    MINUTE,
    SECOND,
    a_run,
    complete,
    complete_one_by_one,
    keys,
    newest,
    place,
    start_one,
    states_of,
    sweep_all,
    take,
)

WINDOW = timedelta(seconds=10)


async def wake_the_first(engine: Engine, *more: Limit) -> None:
    """Three runs want the only slot of a run that ends now; the first of them, with more limits, is woken."""
    before = await start_one(engine, a_run("before", limits=(ONE,)))
    await place(
        engine,
        a_run("first", limits=(ONE, *more)),
        *(a_run(key, limits=(ONE,)) for key in ("second", "third")),
    )
    assert await take(engine) == []
    await complete(engine, before)
    assert await states_of(engine, "first", "second") == [State.QUEUED, State.SCHEDULED]


class Turns(Fixtures):
    async def test_cancelling_a_woken_run_passes_its_turn_on(self, engine: Engine) -> None:
        await wake_the_first(engine)
        await engine.cancel(["first"])
        assert keys(await take(engine)) == ["second"]

    async def test_cancelling_one_woken_run_after_another_reaches_the_last(self, engine: Engine) -> None:
        await wake_the_first(engine)
        await engine.cancel(["first"])
        await engine.cancel(["second"])
        assert keys(await take(engine)) == ["third"]

    async def test_cancelling_several_woken_runs_at_once_reaches_the_last(self, engine: Engine) -> None:
        await wake_the_first(engine)
        await engine.cancel(["first", "second"])
        assert keys(await take(engine)) == ["third"]

    async def test_cancelling_a_parked_run_leaves_the_woken_one_alone(self, engine: Engine) -> None:
        await wake_the_first(engine)
        await engine.cancel(["second"])
        assert await complete_one_by_one(engine, want=1) == ["first", "third"]

    async def test_replacing_a_woken_run_passes_its_turn_on(self, engine: Engine) -> None:
        await wake_the_first(engine)
        await place(engine, a_run("first", due=MINUTE, limits=(ONE,), conflict=Conflict.REPLACE))
        assert keys(await take(engine)) == ["second"]

    async def test_replacing_a_woken_run_by_one_without_limits_passes_its_turn_on(self, engine: Engine) -> None:
        await wake_the_first(engine)
        await place(engine, a_run("first", conflict=Conflict.REPLACE))
        assert sorted(keys(await take(engine))) == ["first", "second"]

    async def test_replacing_a_woken_run_by_another_that_is_due_wastes_nothing(self, engine: Engine) -> None:
        await wake_the_first(engine)
        await place(engine, a_run("first", limits=(ONE,), conflict=Conflict.REPLACE))
        assert sorted(await complete_one_by_one(engine)) == ["first", "second", "third"]

    async def test_postponing_a_woken_run_passes_its_turn_on(self, engine: Engine) -> None:
        await wake_the_first(engine)
        await place(engine, a_run("first", due=MINUTE, conflict=Conflict.POSTPONE))
        assert keys(await take(engine)) == ["second"]

    async def test_a_postponed_run_gets_a_turn_later(self, engine: Engine, clock: VirtualClock) -> None:
        await wake_the_first(engine)
        await place(engine, a_run("first", due=MINUTE, conflict=Conflict.POSTPONE))
        assert await complete_one_by_one(engine) == ["second", "third"]
        clock.jump(MINUTE)
        assert keys(await take(engine)) == ["first"]

    async def test_dropping_a_woken_run_passes_its_turn_on(self, engine: Engine) -> None:
        cooldown = Limit("cooldown", 1, WINDOW, drop=True)
        await wake_the_first(engine, cooldown)
        await place(engine, a_run("hot", limits=(cooldown,), priority=1))
        assert keys(await take(engine)) == ["hot", "second"]
        assert (await newest(engine, "first")).state is State.CANCELLED

    async def test_parking_a_woken_run_on_another_limit_passes_its_turn_on(self, engine: Engine) -> None:
        other = Limit("other", 1)
        await wake_the_first(engine, other)
        await place(engine, a_run("holder", limits=(other,), priority=1))
        assert keys(await take(engine)) == ["holder", "second"]
        assert (await newest(engine, "first")).parked_on == "other"

    async def test_a_run_parked_on_another_limit_starts_when_both_have_room(self, engine: Engine) -> None:
        other = Limit("other", 1)
        await wake_the_first(engine, other)
        await place(engine, a_run("holder", limits=(other,), priority=1))
        holder, second = await take(engine)
        await complete(engine, holder)
        assert await take(engine) == []
        await complete(engine, second)
        assert sorted(await complete_one_by_one(engine)) == ["first", "third"]

    async def test_deferring_a_woken_run_to_a_window_passes_its_turn_on(
        self, engine: Engine, clock: VirtualClock
    ) -> None:
        rate = Limit("rate", 1, WINDOW)
        await wake_the_first(engine, rate)
        await place(engine, a_run("hot", limits=(rate,), priority=1))
        claims = await take(engine)
        assert keys(claims) == ["hot", "second"]
        await complete(engine, *claims)
        clock.jump(WINDOW)
        assert sorted(await complete_one_by_one(engine)) == ["first", "third"]

    async def test_a_child_that_its_parent_cancels_takes_no_turn(self, engine: Engine) -> None:
        parent = await start_one(engine, a_run("parent"))
        before = await start_one(engine, a_run("before", limits=(ONE,)))
        await place(engine, a_run("child", after=("parent",), limits=(ONE,)), a_run("other", limits=(ONE,)))
        assert await take(engine) == []
        await engine.finish([Settle(parent, State.FAILED), Settle(before, State.COMPLETED)])
        assert keys(await take(engine)) == ["other"]

    async def test_a_turn_taken_by_priority_leaves_the_rest_in_order(self, engine: Engine) -> None:
        await wake_the_first(engine)
        await place(engine, a_run("urgent", limits=(ONE,), priority=5))
        assert await complete_one_by_one(engine, want=1) == ["urgent", "first", "second", "third"]

    async def test_a_turn_taken_by_priority_starves_nobody(self, engine: Engine) -> None:
        await wake_the_first(engine)
        await place(engine, a_run("urgent", limits=(ONE,), priority=5))
        assert sorted(await complete_one_by_one(engine)) == ["first", "second", "third", "urgent"]

    async def test_a_stopped_run_that_is_taken_over_passes_its_turn_on(
        self, engine: Engine, clock: VirtualClock
    ) -> None:
        await place(engine, *limited(2, ONE))
        await take(engine)
        await engine.cancel(["0"])
        clock.jump(LEASE + SECOND)
        assert keys(await take(engine)) == ["1"]

    async def test_cancelling_whom_a_window_would_wake_leaves_the_turn_to_the_next(
        self, engine: Engine, clock: VirtualClock
    ) -> None:
        await place(engine, *limited(3, Limit("rate", 1, WINDOW)))
        await complete(engine, *await take(engine))
        clock.jump(WINDOW)
        await engine.cancel(["1"])
        assert keys(await take(engine)) == ["2"]

    async def test_a_woken_run_of_a_paused_queue_does_not_keep_the_slot_from_others(self, engine: Engine) -> None:
        before = await start_one(engine, a_run("before", limits=(ONE,)))
        await place(engine, a_run("first", queue="x", limits=(ONE,)), a_run("second", queue="y", limits=(ONE,)))
        assert await take(engine) == []
        await complete(engine, before)
        await engine.hold([Hold(HoldKind.PAUSE, queue="x")])
        await sweep_all(engine)
        assert keys(await take(engine)) == ["second"]
