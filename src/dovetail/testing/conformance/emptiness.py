"""After everything has finished and retention has passed, the store is as empty as it was."""

from __future__ import annotations

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.model import (
    Conflict,
    EventKind,
    Hold,
    HoldKind,
    Limit,
    ProgressReport,
    Requeue,
    Settle,
    State,
    Topic,
    WorkerInfo,
)
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import (
    AT_ONCE,
    BOOM,
    HOUR,
    LEASE,
    MINUTE,
    SECOND,
    Another,
    a_run,
    assert_empty,
    assert_leaves_nothing,
    beat,
    complete,
    complete_one_by_one,
    crash,
    fail,
    place,
    requeue,
    revive,
    start,
    start_one,
    take,
    take_one,
)


class Emptiness(Fixtures):
    async def test_a_new_store_is_empty(self, engine: Engine) -> None:
        await assert_empty(engine)

    async def test_looking_leaves_nothing(self, engine: Engine) -> None:
        await take(engine)
        await engine.survey()
        await engine.holds()
        await engine.cancel(["nobody"])
        await revive(engine, "nobody")
        await assert_empty(engine)

    async def test_runs_dropped_at_their_end_leave_nothing(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, *(a_run(f"{n}", retention=AT_ONCE) for n in range(5)))
        await complete_one_by_one(engine)
        await assert_leaves_nothing(engine, clock)

    async def test_every_end_leaves_nothing(self, engine: Engine, clock: VirtualClock) -> None:
        claims = await start(engine, *(a_run(f"{n}", queue=f"{n}") for n in range(3)))
        ends = (State.COMPLETED, State.FAILED, State.CANCELLED)
        await engine.finish([Settle(claim, end, b"result", BOOM) for claim, end in zip(claims, ends, strict=True)])
        await place(engine, a_run("pending", due=HOUR))
        await engine.cancel(["pending"])
        await assert_leaves_nothing(engine, clock)

    async def test_retries_and_crashes_leave_nothing(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, a_run("poisoned", crash_limit=2))
        await crash(engine, clock, times=2)
        assert await take(engine) == []
        claim = await start_one(engine, a_run("retried"))
        await requeue(engine, claim, attempt=2, due=SECOND, failure=BOOM)
        clock.jump(SECOND)
        await complete_one_by_one(engine)
        await assert_leaves_nothing(engine, clock)

    async def test_replaced_and_postponed_runs_leave_nothing(self, engine: Engine, clock: VirtualClock) -> None:
        old = await start_one(engine, a_run())
        for conflict in (Conflict.REPLACE, Conflict.POSTPONE, Conflict.KEEP_PENDING, Conflict.REPLACE):
            await place(engine, a_run(due=SECOND, conflict=conflict, limits=(Limit("slots", 1),)))
        await engine.finish([Requeue(old, attempt=2)])
        clock.jump(SECOND)
        await complete_one_by_one(engine)
        await assert_leaves_nothing(engine, clock)

    async def test_limits_leave_nothing(self, engine: Engine, clock: VirtualClock) -> None:
        limits = (Limit("slots", 2), Limit("rate", 3, MINUTE))
        await place(engine, *(a_run(f"{n}", limits=limits) for n in range(7)))
        for _ in range(3):
            await complete_one_by_one(engine)
            clock.jump(MINUTE)
        await assert_leaves_nothing(engine, clock)

    async def test_limits_of_runs_dropped_at_their_end_leave_nothing(self, engine: Engine, clock: VirtualClock) -> None:
        limits = (Limit("slots", 1), Limit("rate", 2, MINUTE, drop=True))
        await place(engine, *(a_run(f"{n}", limits=limits, retention=AT_ONCE) for n in range(4)))
        await complete_one_by_one(engine)
        await assert_leaves_nothing(engine, clock)

    async def test_parked_runs_that_never_start_leave_nothing(self, engine: Engine, clock: VirtualClock) -> None:
        limits = (Limit("slots", 1), Limit("rate", 1, MINUTE))
        first, *parked = [a_run(f"{n}", limits=limits) for n in range(4)]
        claim = await start_one(engine, first)
        await engine.schedule(parked)
        await take(engine)
        await engine.cancel([run.key for run in parked])
        await complete(engine, claim)
        await assert_leaves_nothing(engine, clock)

    async def test_groups_leave_nothing(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, *(a_run(f"{n}", group=f"{n % 3}", weight=1.0 + n, queue=f"{n % 2}") for n in range(12)))
        await complete_one_by_one(engine)
        await assert_leaves_nothing(engine, clock)

    async def test_families_leave_nothing(self, engine: Engine, clock: VirtualClock) -> None:
        await place(
            engine,
            a_run("good"),
            a_run("bad"),
            a_run("child", after=("good",)),
            a_run("fallen", after=("good", "bad")),
            a_run("rescue", after=("bad", "fallen"), after_failure=True),
            a_run("short", after=("bad",), retention=AT_ONCE),
        )
        good, bad = await take(engine)
        await complete(engine, good)
        await fail(engine, bad)
        await complete_one_by_one(engine)
        await assert_leaves_nothing(engine, clock)

    async def test_a_family_whose_record_was_dropped_leaves_nothing(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, a_run("a", retention=AT_ONCE), a_run("b", after=("a",), retention=AT_ONCE))
        await complete_one_by_one(engine)
        await assert_leaves_nothing(engine, clock)

    async def test_revived_runs_leave_nothing(self, engine: Engine, clock: VirtualClock) -> None:
        parent = await start_one(engine, a_run("parent", limits=(Limit("slots", 1),)))
        await place(engine, a_run("child", after=("parent",), group="g"))
        await fail(engine, parent)
        await revive(engine, parent.id)
        await complete_one_by_one(engine)
        await assert_leaves_nothing(engine, clock)

    async def test_progress_and_requests_to_stop_leave_nothing(self, engine: Engine, clock: VirtualClock) -> None:
        claim = await start_one(engine, a_run())
        await engine.report([ProgressReport("a", claim.id, claim.epoch, 1, 2, "message")])
        await engine.cancel(["a"])
        await engine.finish([Settle(claim, State.CANCELLED)])
        silent = await start_one(engine, a_run("silent"))
        await engine.report([ProgressReport("silent", silent.id, silent.epoch, 1, 2, "message")])
        await engine.cancel(["silent"])
        clock.jump(LEASE + SECOND)
        assert await take(engine) == []
        await assert_leaves_nothing(engine, clock)

    async def test_workers_leave_nothing(self, engine: Engine, clock: VirtualClock) -> None:
        await beat(engine, worker="silent")
        await beat(engine, worker="leaving")
        await engine.heartbeat(WorkerInfo("leaving", id="leaving", leaving=True), [], lease=LEASE)
        await assert_leaves_nothing(engine, clock)

    async def test_holds_leave_nothing(self, engine: Engine, clock: VirtualClock) -> None:
        lifted = Hold(HoldKind.STRIKE, task="task", parameter="x", value=b"1")
        await engine.hold([lifted, Hold(HoldKind.PAUSE, queue="x", until=clock.now() + HOUR)])
        await engine.lift([lifted])
        await assert_leaves_nothing(engine, clock)

    async def test_events_leave_nothing(self, engine: Engine, another: Another, clock: VirtualClock) -> None:
        other = await another()
        async with engine.watch(*(Topic(kind) for kind in EventKind)):
            await complete(other, await start_one(other, a_run()))
        await assert_leaves_nothing(engine, clock)

    async def test_successors_leave_nothing(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, a_run())
        for _ in range(5):
            await complete(engine, await take_one(engine), then=(a_run(),))
        await complete(engine, await take_one(engine))
        await assert_leaves_nothing(engine, clock)
