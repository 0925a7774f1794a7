"""The work of a call is bounded, and what one call leaves undone the next ones do.

Nothing here measures time: these tests show that a bound never costs a run. A worker that follows `wait` must
not be told to sleep while there is something for it to do.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.model import Hold, HoldKind, Limit, State
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import (
    AT_ONCE,
    HOUR,
    LEASE,
    SECOND,
    a_run,
    all_runs,
    assert_empty,
    complete,
    complete_one_by_one,
    fail,
    keys,
    place,
    requeue,
    start_one,
    sweep_all,
    take,
    take_once,
    take_one,
)


class Bounds(Fixtures):
    async def test_a_backlog_that_became_due_is_worked_off_in_order(self, engine: Engine, clock: VirtualClock) -> None:
        runs = [a_run(f"{n}", due=SECOND + timedelta(microseconds=n), retention=AT_ONCE) for n in range(3000)]
        await engine.schedule(runs)
        clock.jump(HOUR)
        claims = await take_once(engine, 5)
        assert keys(claims) == ["0", "1", "2", "3", "4"]
        await complete(engine, *claims)
        order = await complete_one_by_one(engine, want=500)
        assert order == [f"{n}" for n in range(5, 3000)]

    async def test_a_backlog_that_is_queued_is_worked_off_in_order(self, engine: Engine) -> None:
        await engine.schedule([a_run(f"{n}", retention=AT_ONCE) for n in range(2000)])
        assert await complete_one_by_one(engine, want=500) == [f"{n}" for n in range(2000)]

    async def test_a_future_far_ahead_does_not_hide_the_present(self, engine: Engine) -> None:
        await engine.schedule([a_run(f"{n}", due=HOUR, priority=9) for n in range(2000)])
        await place(engine, a_run("now"))
        assert keys(await take_once(engine, 1)) == ["now"]

    @pytest.mark.parametrize("due", [timedelta.max, datetime.max.replace(tzinfo=timezone(-12 * HOUR))], ids=str)
    async def test_a_time_past_the_end_of_the_calendar_is_never_and_hides_nothing(
        self, engine: Engine, due: timedelta | datetime
    ) -> None:
        await place(engine, a_run("never", due=due, priority=9))
        await requeue(engine, await start_one(engine, a_run("later")), due=due)
        await place(engine, a_run("now"))
        assert keys(await take(engine)) == ["now"]
        assert {run.key: run.due.year for run in await all_runs(engine) if run.key != "now"} == dict.fromkeys(
            ("never", "later"), 9999
        )
        assert {count.state for count in (await engine.survey()).counts} == {State.SCHEDULED, State.RUNNING}

    async def test_a_large_claim_is_answered_in_full(self, engine: Engine) -> None:
        await engine.schedule([a_run(f"{n}") for n in range(1000)])
        assert len(await take(engine, 1000)) == 1000

    async def test_many_runs_on_a_limit_drain_in_order(self, engine: Engine) -> None:
        await engine.schedule([a_run(f"{n}", limits=(Limit("slots", 3),)) for n in range(300)])
        order: list[str] = []
        while claims := await take(engine):
            assert len(claims) <= 3
            order += keys(claims)
            await complete(engine, *claims)
        assert order == [f"{n}" for n in range(300)]

    async def test_runs_that_are_refused_do_not_hide_the_one_that_may_start(self, engine: Engine) -> None:
        await start_one(engine, a_run("holder", limits=(Limit("slots", 1),)))
        await engine.schedule([a_run(f"{n}", limits=(Limit("slots", 1),)) for n in range(500)])
        await place(engine, a_run("free"))
        assert keys(await take(engine, 1)) == ["free"]

    async def test_runs_that_are_dropped_do_not_hide_the_one_that_may_start(self, engine: Engine) -> None:
        cooldown = Limit("cooldown", 1, HOUR, drop=True)
        await start_one(engine, a_run("hot", limits=(cooldown,)))
        await engine.schedule([a_run(f"{n}", limits=(cooldown,)) for n in range(500)])
        await place(engine, a_run("free"))
        assert keys(await take(engine, 1)) == ["free"]
        assert len(await all_runs(engine, states=(State.CANCELLED,))) == 500

    async def test_runs_on_many_full_limits_do_not_hide_the_one_that_may_start(self, engine: Engine) -> None:
        for n in range(20):
            await start_one(engine, a_run(f"holder {n}", limits=(Limit(f"{n}", 1),)))
        await engine.schedule([a_run(f"{n}", limits=(Limit(f"{n % 20}", 1),)) for n in range(400)])
        await place(engine, a_run("free"))
        assert keys(await take(engine, 1)) == ["free"]

    async def test_a_window_that_opens_wakes_no_more_than_may_start(self, engine: Engine, clock: VirtualClock) -> None:
        rate = Limit("rate", 10, SECOND)
        await engine.schedule([a_run(f"{n}", limits=(rate,)) for n in range(200)])
        order: list[str] = []
        for _ in range(20):
            claims = await take(engine, 50)
            assert len(claims) == 10
            order += keys(claims)
            await complete(engine, *claims)
            clock.jump(SECOND)
        assert order == [f"{n}" for n in range(200)]

    async def test_a_paused_backlog_does_not_hide_another_queue(self, engine: Engine) -> None:
        await engine.hold([Hold(HoldKind.PAUSE, queue="paused")])
        await engine.schedule([a_run(f"{n}", queue="paused", priority=9) for n in range(1000)])
        await place(engine, a_run("free"))
        assert keys(await take(engine, 1)) == ["free"]

    async def test_a_paused_backlog_that_became_due_does_not_hide_another_queue(
        self, engine: Engine, clock: VirtualClock
    ) -> None:
        await engine.hold([Hold(HoldKind.PAUSE, queue="paused")])
        await engine.schedule([a_run(f"{n}", queue="paused", due=SECOND) for n in range(2000)])
        await place(engine, a_run("free", due=2 * SECOND))
        clock.jump(HOUR)
        assert keys(await take(engine, 1)) == ["free"]

    async def test_a_backlog_of_other_queues_that_became_due_does_not_hide_mine(
        self, engine: Engine, clock: VirtualClock
    ) -> None:
        await engine.schedule([a_run(f"{n}", queue="other", due=SECOND) for n in range(2000)])
        await place(engine, a_run("mine", queue="mine", due=2 * SECOND))
        clock.jump(HOUR)
        assert keys(await take(engine, 1, queues=["mine"])) == ["mine"]

    async def test_many_lapsed_leases_are_all_taken_over(self, engine: Engine, clock: VirtualClock) -> None:
        await engine.schedule([a_run(f"{n}") for n in range(500)])
        assert len(await take(engine, 500, worker="dead")) == 500
        clock.jump(LEASE + SECOND)
        assert len(await take_once(engine, 5)) == 5
        claims = await take(engine, 500)
        assert len(claims) == 495
        assert all(claim.redelivered for claim in claims)

    async def test_lapsed_leases_of_other_queues_do_not_hide_mine(self, engine: Engine, clock: VirtualClock) -> None:
        await engine.schedule([a_run(f"{n}", queue="other") for n in range(1000)])
        assert len(await take(engine, 1000, worker="dead")) == 1000
        clock.jump(SECOND)
        await start_one(engine, a_run("mine", queue="mine"), worker="dead")
        clock.jump(LEASE + SECOND)
        assert keys(await take(engine, 1, queues=["mine"])) == ["mine"]

    async def test_many_poisoned_runs_do_not_hide_the_one_that_may_start(
        self, engine: Engine, clock: VirtualClock
    ) -> None:
        await engine.schedule([a_run(f"{n}", crash_limit=1) for n in range(500)])
        assert len(await take(engine, 500, worker="dead")) == 500
        clock.jump(LEASE + SECOND)
        await place(engine, a_run("good"))
        assert keys(await take(engine, 500)) == ["good"]
        assert len(await all_runs(engine, states=(State.FAILED,))) == 500

    async def test_many_children_go_with_their_parent(self, engine: Engine) -> None:
        await place(engine, a_run("parent"), *(a_run(f"{n}", after=("parent",)) for n in range(500)))
        await complete(engine, await take_one(engine))
        assert keys(await take(engine, 500)) == [f"{n}" for n in range(500)]

    async def test_many_children_fall_with_their_parent(self, engine: Engine) -> None:
        await place(engine, a_run("parent"), *(a_run(f"{n}", after=("parent",)) for n in range(500)))
        await fail(engine, await take_one(engine))
        assert len(await all_runs(engine, states=(State.CANCELLED,))) == 500

    async def test_waiting_runs_cost_a_claim_nothing(self, engine: Engine) -> None:
        await place(engine, a_run("parent", due=HOUR))
        await engine.schedule([a_run(f"{n}", after=("parent",), priority=9) for n in range(1000)])
        await place(engine, a_run("free"))
        assert keys(await take_once(engine, 1)) == ["free"]

    async def test_a_large_store_is_swept_in_steps(self, engine: Engine, clock: VirtualClock) -> None:
        await engine.schedule([a_run(f"{n}") for n in range(1000)])
        await complete_one_by_one(engine, want=500)
        clock.jump(HOUR)
        swept = await engine.sweep(at_most=100)
        assert 0 < swept.runs <= 100
        assert swept.more
        assert (await sweep_all(engine, at_most=100)).runs == 1000 - swept.runs
        await assert_empty(engine)

    async def test_a_group_of_thousands_does_not_hide_another(self, engine: Engine) -> None:
        await engine.schedule([a_run(f"{n}", group="large") for n in range(2000)])
        await place(engine, a_run("small", group="small"))
        assert "small" in keys(await take_once(engine, 2))
