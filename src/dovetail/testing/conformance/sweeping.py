"""sweep: bounded upkeep that takes only what is past its time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.model import Hold, HoldKind, Retention, State, Swept, WorkerInfo
from dovetail.testing.conformance.finding import one_of_each_state
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import (
    HOUR,
    LEASE,
    MINUTE,
    SECOND,
    Another,
    a_run,
    all_runs,
    assert_empty,
    complete,
    fail,
    keys,
    place,
    start,
    start_one,
    state_of,
    sweep_all,
    take,
)


class Sweeping(Fixtures):
    async def test_an_empty_store_needs_no_sweeping(self, engine: Engine) -> None:
        assert await engine.sweep() == Swept()

    async def test_runs_past_their_retention_are_pruned(self, engine: Engine, clock: VirtualClock) -> None:
        await complete(engine, *await start(engine, *(a_run(f"{n}") for n in range(3))))
        clock.jump(HOUR)
        assert await engine.sweep() == Swept(runs=3)
        await assert_empty(engine)

    async def test_runs_within_their_retention_stay(self, engine: Engine, clock: VirtualClock) -> None:
        await complete(engine, await start_one(engine, a_run("short", retention=Retention.of(MINUTE))))
        await complete(engine, await start_one(engine, a_run("long", retention=Retention.of(HOUR))))
        clock.jump(2 * MINUTE)
        assert (await engine.sweep()).runs == 1
        assert await state_of(engine, "long") is State.COMPLETED

    async def test_live_runs_stay_however_old(self, engine: Engine, clock: VirtualClock) -> None:
        await one_of_each_state(engine)
        clock.jump(timedelta(days=365))
        await sweep_all(engine)
        assert sorted(keys(await all_runs(engine))) == ["queued", "running", "scheduled", "waiting"]

    async def test_a_sweep_is_bounded(self, engine: Engine, clock: VirtualClock) -> None:
        await complete(engine, *await start(engine, *(a_run(f"{n}") for n in range(5))))
        clock.jump(HOUR)
        first = await engine.sweep(at_most=2)
        assert (first.runs, first.more) == (2, True)
        assert (await sweep_all(engine, at_most=2)).runs == 3
        await assert_empty(engine)

    async def test_silent_workers_are_forgotten(self, engine: Engine, clock: VirtualClock) -> None:
        await engine.heartbeat(WorkerInfo("silent", id="1"), [], lease=LEASE)
        clock.jump(2 * MINUTE)
        await engine.heartbeat(WorkerInfo("present", id="2"), [], lease=LEASE)
        assert (await engine.sweep()).workers == 1
        assert [worker.name for worker in (await engine.survey()).workers] == ["present"]

    @pytest.mark.parametrize(("silent_for", "forgotten"), [(MINUTE, 0), (10 * SECOND, 1)])
    async def test_how_long_is_silent_may_be_said(
        self, engine: Engine, clock: VirtualClock, silent_for: timedelta, forgotten: int
    ) -> None:
        await engine.heartbeat(WorkerInfo("ann", id="1"), [], lease=LEASE)
        clock.jump(30 * SECOND)
        assert (await engine.sweep(silent_for=silent_for)).workers == forgotten

    async def test_forgetting_a_worker_leaves_its_runs_to_their_leases(
        self, engine: Engine, clock: VirtualClock
    ) -> None:
        claim = await start_one(engine, a_run(), worker="ann")
        await engine.heartbeat(WorkerInfo("ann", id="1"), [claim], lease=HOUR)
        clock.jump(10 * MINUTE)
        await engine.sweep()
        await complete(engine, claim)

    async def test_holds_past_their_time_are_forgotten(self, engine: Engine, clock: VirtualClock) -> None:
        await engine.hold(
            [Hold(HoldKind.PAUSE, queue="x", until=clock.now() + MINUTE), Hold(HoldKind.PAUSE, queue="y")]
        )
        clock.jump(HOUR)
        assert (await engine.sweep()).holds == 1
        assert [hold.queue for hold in await engine.holds()] == ["y"]

    async def test_sweeping_twice_finds_nothing_more(self, engine: Engine, clock: VirtualClock) -> None:
        await fail(engine, await start_one(engine, a_run()))
        clock.jump(HOUR)
        await engine.sweep()
        assert await engine.sweep() == Swept()

    async def test_any_connection_may_sweep(self, engine: Engine, another: Another, clock: VirtualClock) -> None:
        await complete(engine, await start_one(engine, a_run()))
        clock.jump(HOUR)
        assert (await (await another()).sweep()).runs == 1
        await assert_empty(engine)

    async def test_a_pruned_key_is_free(self, engine: Engine, clock: VirtualClock) -> None:
        await complete(engine, await start_one(engine, a_run()))
        clock.jump(HOUR)
        await engine.sweep()
        await place(engine, a_run())
        assert keys(await take(engine)) == ["a"]

    async def test_a_parent_that_is_pruned_leaves_its_children_as_they_were(
        self, engine: Engine, clock: VirtualClock
    ) -> None:
        parent = await start_one(engine, a_run("parent", retention=Retention.of(MINUTE)))
        await place(engine, a_run("child", after=("parent",), due=2 * HOUR))
        await complete(engine, parent)
        clock.jump(HOUR)
        await engine.sweep()
        assert await state_of(engine, "child") is State.SCHEDULED
