"""cancel: a pending run ends for good, a running one is asked to stop."""

from __future__ import annotations

import pytest

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.model import Cancelled, Conflict, Finished, Limit, Requeue, Settle, State
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import (
    AT_ONCE,
    HOUR,
    LEASE,
    MINUTE,
    SECOND,
    Another,
    a_run,
    all_runs,
    beat,
    complete,
    completed,
    fail,
    keys,
    newest,
    place,
    run_of,
    start_one,
    state_of,
    take,
    take_one,
)


class Cancelling(Fixtures):
    # The four answers

    @pytest.mark.parametrize("due", [-SECOND, MINUTE], ids=["queued", "scheduled"])
    async def test_a_pending_run_is_cancelled_for_good(self, engine: Engine, clock: VirtualClock, due: object) -> None:
        await place(engine, a_run(due=due))
        assert await engine.cancel(["a"]) == [Cancelled.CANCELLED]
        run = await newest(engine, "a")
        assert (run.state, run.finished, run.doomed_by) == (State.CANCELLED, clock.now(), None)
        clock.jump(2 * MINUTE)
        assert await take(engine) == []

    async def test_a_waiting_run_is_cancelled_for_good(self, engine: Engine) -> None:
        await place(engine, a_run("parent"), a_run("child", after=("parent",)))
        assert await engine.cancel(["child"]) == [Cancelled.CANCELLED]
        await complete(engine, await take_one(engine))
        assert await take(engine) == []

    async def test_a_parked_run_is_cancelled_for_good(self, engine: Engine) -> None:
        one = (Limit("slots", 1),)
        await place(engine, a_run("a", limits=one), a_run("b", limits=one))
        (first,) = await take(engine)
        assert await engine.cancel(["b"]) == [Cancelled.CANCELLED]
        await complete(engine, first)
        assert await take(engine) == []
        assert (await newest(engine, "b")).parked_on is None

    async def test_a_running_run_is_asked_to_stop(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        assert await engine.cancel(["a"]) == [Cancelled.STOPPING]
        run = await newest(engine, "a")
        assert (run.state, run.stopping) == (State.RUNNING, True)
        assert (await beat(engine, claim)).stopping == {claim.id}

    @pytest.mark.parametrize("state", [State.COMPLETED, State.FAILED, State.CANCELLED])
    async def test_a_run_that_ended_is_over(self, engine: Engine, state: State) -> None:
        claim = await start_one(engine, a_run())
        await engine.finish([Settle(claim, state)])
        assert await engine.cancel(["a"]) == [Cancelled.OVER]
        assert await state_of(engine, "a") is state

    async def test_a_key_that_nobody_used_is_unknown(self, engine: Engine) -> None:
        assert await engine.cancel(["nobody"]) == [Cancelled.UNKNOWN]

    async def test_a_key_whose_record_was_dropped_is_unknown(self, engine: Engine) -> None:
        await complete(engine, await start_one(engine, a_run(retention=AT_ONCE)))
        assert await engine.cancel(["a"]) == [Cancelled.UNKNOWN]

    async def test_a_key_past_its_retention_is_unknown(self, engine: Engine, clock: VirtualClock) -> None:
        await complete(engine, await start_one(engine, a_run()))
        clock.jump(HOUR)
        assert await engine.cancel(["a"]) == [Cancelled.UNKNOWN]

    async def test_a_batch_of_keys_is_answered_in_its_order(self, engine: Engine) -> None:
        await fail(engine, await start_one(engine, a_run("over")))
        await start_one(engine, a_run("running"))
        await place(engine, a_run("pending"))
        assert await engine.cancel(["nobody", "running", "pending", "over"]) == [
            Cancelled.UNKNOWN,
            Cancelled.STOPPING,
            Cancelled.CANCELLED,
            Cancelled.OVER,
        ]

    async def test_cancelling_nothing_is_nothing(self, engine: Engine) -> None:
        assert await engine.cancel([]) == []

    # Which run is meant

    async def test_the_newest_live_run_is_meant(self, engine: Engine) -> None:
        running = await start_one(engine, a_run())
        pending = a_run(conflict=Conflict.REPLACE)
        await place(engine, pending)
        assert await engine.cancel(["a"]) == [Cancelled.CANCELLED]
        assert (await beat(engine, running)).stopping == frozenset()
        run = await run_of(engine, pending.id)
        assert run is not None
        assert run.state is State.CANCELLED

    async def test_an_older_run_that_still_runs_is_meant_once_the_newer_is_over(self, engine: Engine) -> None:
        running = await start_one(engine, a_run())
        await place(engine, a_run(conflict=Conflict.REPLACE))
        assert await engine.cancel(["a"]) == [Cancelled.CANCELLED]
        assert await engine.cancel(["a"]) == [Cancelled.STOPPING]
        assert (await beat(engine, running)).stopping == {running.id}

    async def test_of_two_running_the_newer_is_meant(self, engine: Engine) -> None:
        older = await start_one(engine, a_run())
        newer = await start_one(engine, a_run(conflict=Conflict.KEEP_PENDING))
        assert await engine.cancel(["a"]) == [Cancelled.STOPPING]
        assert (await beat(engine, older, newer)).stopping == {newer.id}

    async def test_a_cancelled_run_frees_its_key(self, engine: Engine) -> None:
        await place(engine, a_run())
        await engine.cancel(["a"])
        again = a_run()
        await place(engine, again)
        assert [claim.id for claim in await take(engine)] == [again.id]

    async def test_cancelling_one_key_harms_no_other(self, engine: Engine) -> None:
        await place(engine, a_run("a"), a_run("aa"), a_run("b"))
        await engine.cancel(["a"])
        assert keys(await take(engine)) == ["aa", "b"]

    # Sparing those that run

    async def test_a_running_run_may_be_left_in_peace(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        assert await engine.cancel(["a"], running=False) == [Cancelled.OVER]
        assert (await beat(engine, claim)).stopping == frozenset()
        assert not (await newest(engine, "a")).stopping

    async def test_sparing_those_that_run_spares_no_pending_one(self, engine: Engine) -> None:
        running = await start_one(engine, a_run("a"))
        await place(engine, a_run("a", conflict=Conflict.REPLACE), a_run("b", due=MINUTE))
        answers = await engine.cancel(["a", "b", "nobody"], running=False)
        assert answers == [Cancelled.CANCELLED, Cancelled.CANCELLED, Cancelled.UNKNOWN]
        assert (await beat(engine, running)).stopping == frozenset()

    async def test_sparing_a_running_run_takes_no_earlier_request_back(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        await engine.cancel(["a"])
        await engine.cancel(["a"], running=False)
        assert (await beat(engine, claim)).stopping == {claim.id}

    # Asked to stop

    async def test_the_request_to_stop_is_in_every_later_pulse(self, engine: Engine, clock: VirtualClock) -> None:
        claim = await start_one(engine, a_run())
        await engine.cancel(["a"])
        for _ in range(3):
            clock.jump(SECOND)
            assert (await beat(engine, claim)).stopping == {claim.id}

    async def test_the_request_to_stop_reaches_other_connections(self, engine: Engine, another: Another) -> None:
        claim = await start_one(engine, a_run())
        await (await another()).cancel(["a"])
        assert (await beat(await another(), claim)).stopping == {claim.id}

    async def test_a_run_that_was_asked_to_stop_may_still_complete(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        await engine.cancel(["a"])
        assert await engine.finish([completed(claim, result=b"in time")]) == [Finished.DONE]
        run = await newest(engine, "a")
        assert (run.state, run.result) == (State.COMPLETED, b"in time")

    async def test_a_run_that_was_asked_to_stop_ends_cancelled_when_its_worker_says_so(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        await engine.cancel(["a"])
        assert await engine.finish([Settle(claim, State.CANCELLED)]) == [Finished.DONE]
        assert await state_of(engine, "a") is State.CANCELLED

    async def test_a_run_that_was_asked_to_stop_keeps_its_lease(self, engine: Engine, clock: VirtualClock) -> None:
        claim = await start_one(engine, a_run())
        await engine.cancel(["a"])
        clock.jump(LEASE - SECOND)
        assert (await beat(engine, claim)).lost == frozenset()

    async def test_a_requeue_of_a_run_that_was_asked_to_stop_ends_it(self, engine: Engine, clock: VirtualClock) -> None:
        claim = await start_one(engine, a_run())
        await place(engine, a_run("child", after=("a",)))
        await engine.cancel(["a"])
        assert await engine.finish([Requeue(claim, attempt=2)]) == [Finished.DONE]
        run = await newest(engine, "a")
        assert (run.state, run.finished) == (State.CANCELLED, clock.now())
        assert await state_of(engine, "child") is State.CANCELLED
        assert await take(engine) == []

    async def test_such_a_requeue_may_be_repeated(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        await engine.cancel(["a"])
        verdict = Requeue(claim, attempt=2)
        assert await engine.finish([verdict, verdict]) == [Finished.DONE, Finished.ALREADY]

    async def test_the_request_to_stop_does_not_reach_the_next_run_of_the_key(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        await engine.cancel(["a"])
        await engine.finish([Settle(claim, State.CANCELLED)])
        again = await start_one(engine, a_run())
        assert (await beat(engine, again)).stopping == frozenset()

    # Retention

    async def test_a_cancelled_run_is_kept_for_its_retention(self, engine: Engine, clock: VirtualClock) -> None:
        run = a_run()
        await place(engine, run)
        await engine.cancel(["a"])
        clock.jump(run.retention.cancelled - SECOND)
        assert await state_of(engine, "a") is State.CANCELLED
        clock.jump(HOUR)
        assert await state_of(engine, "a") is None

    async def test_a_cancelled_run_with_no_retention_is_gone(self, engine: Engine) -> None:
        await place(engine, a_run(retention=AT_ONCE))
        assert await engine.cancel(["a"]) == [Cancelled.CANCELLED]
        assert await all_runs(engine) == []
