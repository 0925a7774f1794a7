"""Leases: renewed by a heartbeat, lost by silence, taken over by whoever claims next."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.model import Hold, HoldKind, Pulse, State, WorkerInfo
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import (
    AT_ONCE,
    BOOM,
    HOUR,
    LEASE,
    MINUTE,
    MOMENT,
    SECOND,
    Another,
    a_run,
    beat,
    complete,
    crash,
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


class Leases(Fixtures):
    # Lapsing

    async def test_a_run_under_a_lease_is_left_alone(self, engine: Engine, clock: VirtualClock) -> None:
        await start_one(engine, a_run())
        clock.jump(LEASE - MOMENT)
        assert await take_once(engine) == []

    async def test_a_lease_that_lapsed_is_taken_over(self, engine: Engine, clock: VirtualClock) -> None:
        first = await start_one(engine, a_run(payload=b"arguments"), worker="ann")
        clock.jump(LEASE + MOMENT)
        (again,) = await take_once(engine, worker="bob")
        assert (again.id, again.payload, again.redelivered, again.crashes) == (
            first.id,
            b"arguments",
            True,
            1,
        )
        assert again.epoch > first.epoch
        run = await newest(engine, "a")
        assert (run.state, run.worker, run.lease_until) == (State.RUNNING, "bob", clock.now() + LEASE)

    async def test_a_crash_costs_no_attempt(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, a_run(attempt=2))
        await crash(engine, clock)
        assert (await take_one(engine)).attempt == 2

    async def test_a_first_claim_is_no_redelivery(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        assert (claim.redelivered, claim.crashes) == (False, 0)

    async def test_a_worker_may_take_over_from_itself(self, engine: Engine, clock: VirtualClock) -> None:
        await start_one(engine, a_run(), worker="ann")
        clock.jump(LEASE + SECOND)
        assert (await take_one(engine, worker="ann")).redelivered

    async def test_taking_over_brings_no_more_than_was_wanted(self, engine: Engine, clock: VirtualClock) -> None:
        await start(engine, *(a_run(f"{n}") for n in range(3)))
        clock.jump(LEASE + SECOND)
        assert [len(await take_once(engine, 2)) for _ in range(3)] == [2, 1, 0]

    async def test_taking_over_minds_the_queues(self, engine: Engine, clock: VirtualClock) -> None:
        await start(engine, a_run("x", queue="x"), a_run("y", queue="y"))
        clock.jump(LEASE + SECOND)
        assert keys(await take(engine, queues=["y"])) == ["y"]
        assert keys(await take(engine, queues=["x"])) == ["x"]

    async def test_taking_over_minds_paused_queues(self, engine: Engine, clock: VirtualClock) -> None:
        pause = Hold(HoldKind.PAUSE, queue="x")
        await start_one(engine, a_run(queue="x"))
        await engine.hold([pause])
        clock.jump(LEASE + SECOND)
        assert await take(engine) == []
        await engine.lift([pause])
        assert keys(await take(engine)) == ["a"]

    async def test_leases_may_differ(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, a_run("short"))
        await take_one(engine, lease=SECOND)
        await place(engine, a_run("long"))
        await take_one(engine, lease=HOUR)
        clock.jump(MINUTE)
        assert keys(await take(engine)) == ["short"]

    # The crash limit

    async def test_a_run_that_lapses_three_times_is_poisoned(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, a_run(attempt=2))
        await crash(engine, clock, times=3)
        assert await take(engine) == []
        run = await newest(engine, "a")
        assert (run.state, run.crashes, run.attempt) == (State.FAILED, 3, 2)
        assert run.finished == clock.now()
        assert "poison" in (run.error or "").lower()

    @pytest.mark.parametrize("crash_limit", [1, 2, 5])
    async def test_a_run_may_have_a_crash_limit_of_its_own(
        self, engine: Engine, clock: VirtualClock, crash_limit: int
    ) -> None:
        await place(engine, a_run(crash_limit=crash_limit))
        await crash(engine, clock, times=crash_limit)
        assert await take(engine) == []
        assert await state_of(engine, "a") is State.FAILED

    async def test_the_crash_count_rises_by_one(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, a_run(crash_limit=10))
        counts: list[int] = []
        for _ in range(4):
            counts.append((await take_one(engine)).crashes)
            clock.jump(LEASE + SECOND)
        assert counts == [0, 1, 2, 3]

    async def test_a_poisoned_run_harms_no_other(self, engine: Engine, clock: VirtualClock) -> None:
        await start(engine, a_run("bad", crash_limit=1), a_run("good"))
        clock.jump(LEASE + SECOND)
        assert keys(await take(engine)) == ["good"]
        assert await state_of(engine, "bad") is State.FAILED

    async def test_a_poisoned_run_keeps_its_earlier_errors(self, engine: Engine, clock: VirtualClock) -> None:
        claim = await start_one(engine, a_run(crash_limit=1))
        await requeue(engine, claim, attempt=2, failure=BOOM)
        await crash(engine, clock)
        await take(engine)
        assert BOOM in [each.failure for each in (await newest(engine, "a")).errors]

    async def test_a_claim_says_what_had_lapsed_and_what_was_poisoned(
        self, engine: Engine, clock: VirtualClock
    ) -> None:
        await start(
            engine,
            a_run("goes on"), a_run("stops"), a_run("bad", task="crasher", crash_limit=1, retention=AT_ONCE),
        )  # fmt: skip
        await engine.cancel(["stops"])
        first = await engine.claim("worker", 1, lease=LEASE)
        assert (first.lapsed, first.poisoned) == (0, ())
        clock.jump(LEASE + SECOND)
        claimed = await engine.claim("worker", 10, lease=LEASE)
        assert keys(claimed.claims) == ["goes on"]
        assert (claimed.lapsed, claimed.poisoned) == (3, ("crasher",))
        await requeue(engine, claimed.claims[0])
        again = await engine.claim("worker", 10, lease=LEASE)
        assert (keys(again.claims), again.lapsed, again.poisoned) == (["goes on"], 0, ())

    async def test_what_lapsed_and_is_left_for_later_is_counted_later(
        self, engine: Engine, clock: VirtualClock
    ) -> None:
        await start(engine, *(a_run(f"{n}") for n in range(3)))
        clock.jump(LEASE + SECOND)
        claimed = [await engine.claim("worker", 2, lease=LEASE) for _ in range(3)]
        assert [(len(each.claims), each.lapsed) for each in claimed] == [(2, 2), (1, 1), (0, 0)]

    async def test_a_requeue_neither_adds_nor_forgives_a_crash(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, a_run())
        await crash(engine, clock)
        await requeue(engine, await take_one(engine))
        assert (await take_one(engine)).crashes == 1

    async def test_a_poisoned_run_frees_its_key(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, a_run(crash_limit=1))
        await crash(engine, clock)
        await take(engine)
        assert (await start_one(engine, a_run())).crashes == 0

    # Asked to stop, and silent

    async def test_a_run_that_was_asked_to_stop_is_cancelled_when_its_worker_died(
        self, engine: Engine, clock: VirtualClock
    ) -> None:
        await start_one(engine, a_run())
        await engine.cancel(["a"])
        clock.jump(LEASE + SECOND)
        assert await take(engine) == []
        run = await newest(engine, "a")
        assert (run.state, run.finished) == (State.CANCELLED, clock.now())

    async def test_a_run_that_was_asked_to_stop_is_cancelled_rather_than_poisoned(
        self, engine: Engine, clock: VirtualClock
    ) -> None:
        await start_one(engine, a_run(crash_limit=1))
        await engine.cancel(["a"])
        clock.jump(LEASE + SECOND)
        await take(engine)
        assert await state_of(engine, "a") is State.CANCELLED

    # The heartbeat

    async def test_a_heartbeat_renews_the_lease(self, engine: Engine, clock: VirtualClock) -> None:
        claim = await start_one(engine, a_run())
        for _ in range(3):
            clock.jump(LEASE - SECOND)
            assert (await beat(engine, claim)).lost == frozenset()
            assert (await newest(engine, "a")).lease_until == clock.now() + LEASE
        assert await take_once(engine, worker="bob") == []

    async def test_a_heartbeat_renews_all_claims_of_a_worker(self, engine: Engine, clock: VirtualClock) -> None:
        claims = await start(engine, *(a_run(f"{n}") for n in range(5)))
        clock.jump(LEASE - SECOND)
        await beat(engine, *claims)
        clock.jump(LEASE - SECOND)
        assert await take_once(engine, worker="bob") == []

    async def test_a_heartbeat_renews_only_the_claims_it_names(self, engine: Engine, clock: VirtualClock) -> None:
        named, _ = await start(engine, a_run("named"), a_run("forgotten"))
        clock.jump(LEASE - SECOND)
        await beat(engine, named)
        clock.jump(2 * SECOND)
        assert keys(await take(engine)) == ["forgotten"]

    async def test_a_heartbeat_leaves_the_epoch(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        await beat(engine, claim)
        await complete(engine, claim)

    async def test_a_heartbeat_may_ask_for_another_lease(self, engine: Engine, clock: VirtualClock) -> None:
        claim = await start_one(engine, a_run())
        await beat(engine, claim, lease=HOUR)
        clock.jump(HOUR - MOMENT)
        assert await take_once(engine) == []

    async def test_a_lease_that_lapsed_but_was_not_taken_over_is_renewed(
        self, engine: Engine, clock: VirtualClock
    ) -> None:
        claim = await start_one(engine, a_run())
        clock.jump(2 * LEASE)
        assert (await beat(engine, claim)).lost == frozenset()
        assert await take_once(engine, worker="bob") == []
        await complete(engine, claim)
        assert (await newest(engine, "a")).crashes == 0

    async def test_a_lease_that_lapsed_but_was_not_taken_over_can_finish(
        self, engine: Engine, clock: VirtualClock
    ) -> None:
        claim = await start_one(engine, a_run())
        clock.jump(2 * LEASE)
        await complete(engine, claim)

    async def test_a_heartbeat_says_which_claims_are_lost(self, engine: Engine, clock: VirtualClock) -> None:
        lost, kept = await start(engine, a_run("lost", queue="x"), a_run("kept", queue="y"), worker="ann")
        clock.jump(LEASE + SECOND)
        await take(engine, worker="bob", queues=["x"])
        pulse = await beat(engine, lost, kept, worker="ann")
        assert (pulse.lost, pulse.stopping) == ({lost.id}, frozenset())

    async def test_a_claim_that_was_finished_is_lost(self, engine: Engine) -> None:
        over, going = await start(engine, a_run("over"), a_run("going"))
        await complete(engine, over)
        assert (await beat(engine, over, going)).lost == {over.id}

    async def test_a_heartbeat_through_another_connection_counts(
        self, engine: Engine, another: Another, clock: VirtualClock
    ) -> None:
        claim = await start_one(engine, a_run())
        clock.jump(LEASE - SECOND)
        await beat(await another(), claim)
        clock.jump(LEASE - SECOND)
        assert await take_once(engine) == []

    async def test_a_heartbeat_without_claims_is_a_sign_of_life(self, engine: Engine, clock: VirtualClock) -> None:
        info = WorkerInfo(
            "ann",
            id="ann-1",
            tasks=frozenset({"send", "receive"}),
            queues=("x", "y"),
            concurrency=10,
            running=3,
            host="host",
            pid=42,
            started=clock.now() - HOUR,
        )
        pulse = await engine.heartbeat(info, [], lease=LEASE)
        assert pulse == Pulse(holds=pulse.holds, origin=pulse.origin)
        (worker,) = (await engine.survey()).workers
        assert worker == info.but(last_seen=clock.now())

    async def test_a_worker_is_seen_anew_with_each_heartbeat(self, engine: Engine, clock: VirtualClock) -> None:
        await beat(engine)
        clock.jump(SECOND)
        await engine.heartbeat(WorkerInfo("worker", id="worker", running=7), [], lease=LEASE)
        (worker,) = (await engine.survey()).workers
        assert (worker.last_seen, worker.running) == (clock.now(), 7)

    async def test_workers_of_one_name_are_told_apart_by_their_id(self, engine: Engine) -> None:
        for id in ("1", "2"):
            await engine.heartbeat(WorkerInfo("ann", id=id), [], lease=LEASE)
        assert sorted(worker.id for worker in (await engine.survey()).workers) == ["1", "2"]

    async def test_a_worker_that_leaves_is_forgotten(self, engine: Engine) -> None:
        for id in ("stays", "leaves"):
            await engine.heartbeat(WorkerInfo("ann", id=id), [], lease=LEASE)
        await engine.heartbeat(WorkerInfo("ann", id="leaves", leaving=True), [], lease=LEASE)
        assert [worker.id for worker in (await engine.survey()).workers] == ["stays"]

    async def test_a_worker_that_leaves_may_renew_what_it_still_runs(self, engine: Engine, clock: VirtualClock) -> None:
        claim = await start_one(engine, a_run())
        clock.jump(LEASE - SECOND)
        info = WorkerInfo("worker", id="worker", leaving=True)
        assert (await engine.heartbeat(info, [claim], lease=LEASE)).lost == frozenset()
        clock.jump(2 * SECOND)
        assert await take_once(engine) == []

    async def test_the_origin_stays_while_any_worker_is_there(self, engine: Engine, clock: VirtualClock) -> None:
        async def origin(worker: str, *, leaving: bool = False) -> int:
            return (await engine.heartbeat(WorkerInfo("ann", id=worker, leaving=leaving), [], lease=LEASE)).origin

        first = await origin("first")
        clock.jump(MINUTE)
        assert await origin("second") == first
        await origin("first", leaving=True)
        assert await origin("second") == first
        clock.jump(MINUTE)
        assert await origin("third") == first
        assert (await engine.sweep(silent_for=SECOND)).workers == 1
        assert await origin("second") == first

    async def test_lapses_of_many_runs_are_independent(self, engine: Engine, clock: VirtualClock) -> None:
        await start(engine, a_run("1"))
        clock.jump(timedelta(seconds=20))
        await start(engine, a_run("2"))
        clock.jump(timedelta(seconds=20))
        assert keys(await take(engine)) == ["1"]
        assert await states_of(engine, "1", "2") == [State.RUNNING, State.RUNNING]
