"""finish: outcome, history, the next attempt and the successors, in one unit."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.model import (
    AttemptError,
    Conflict,
    Failure,
    Finished,
    Limit,
    Placing,
    Requeue,
    Retention,
    Settle,
    State,
)
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import (
    AT_ONCE,
    BOOM,
    HOUR,
    MINUTE,
    MOMENT,
    SECOND,
    a_run,
    all_runs,
    complete,
    completed,
    fail,
    failed,
    keys,
    newest,
    place,
    requeue,
    run_of,
    start,
    start_one,
    state_of,
    states_of,
    take,
    take_one,
)


class Finishing(Fixtures):
    # Settling

    async def test_a_completed_run_keeps_its_result(self, engine: Engine, clock: VirtualClock) -> None:
        claim = await start_one(engine, a_run(), worker="ann")
        started = clock.now()
        clock.jump(SECOND)
        assert await engine.finish([completed(claim, result=b"\x0042")]) == [Finished.DONE]
        run = await newest(engine, "a")
        assert (run.state, run.result, run.error, run.errors) == (State.COMPLETED, b"\x0042", None, ())
        assert (run.started, run.finished, run.worker) == (started, clock.now(), "ann")

    async def test_no_result_is_not_an_empty_result(self, engine: Engine) -> None:
        nothing, empty = await start(engine, a_run("nothing"), a_run("empty"))
        await engine.finish([completed(nothing), completed(empty, result=b"")])
        assert (await newest(engine, "nothing")).result is None
        assert (await newest(engine, "empty")).result == b""

    async def test_a_failed_run_keeps_its_error(self, engine: Engine, clock: VirtualClock) -> None:
        claim = await start_one(engine, a_run(attempt=3), worker="ann")
        clock.jump(SECOND)
        failure = Failure("KeyError", "'x'", "Traceback ...")
        assert await engine.finish([Settle(claim, State.FAILED, failure=failure)]) == [Finished.DONE]
        run = await newest(engine, "a")
        assert (run.state, run.error, run.finished) == (State.FAILED, "KeyError: 'x'", clock.now())
        assert run.errors == (AttemptError(3, clock.now(), "ann", failure),)

    async def test_a_run_may_settle_as_cancelled(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        assert await engine.finish([Settle(claim, State.CANCELLED)]) == [Finished.DONE]
        assert await state_of(engine, "a") is State.CANCELLED

    async def test_a_settled_run_holds_no_lease(self, engine: Engine, clock: VirtualClock) -> None:
        await complete(engine, await start_one(engine, a_run()))
        clock.jump(HOUR)
        assert await take(engine) == []

    async def test_verdicts_are_answered_in_their_order(self, engine: Engine, clock: VirtualClock) -> None:
        old = await start_one(engine, a_run("old"))
        await requeue(engine, old, due=HOUR)
        new, other = await start(engine, a_run("new"), a_run("other"))
        answers = await engine.finish([completed(new), completed(old), Requeue(other, attempt=2)])
        assert answers == [Finished.DONE, Finished.FENCED, Finished.DONE]

    async def test_an_empty_batch_of_verdicts_is_nothing(self, engine: Engine) -> None:
        assert await engine.finish([]) == []

    # Retention

    @pytest.mark.parametrize(
        ("state", "retention"),
        [
            (State.COMPLETED, Retention(MINUTE, HOUR, HOUR)),
            (State.FAILED, Retention(HOUR, MINUTE, HOUR)),
            (State.CANCELLED, Retention(HOUR, HOUR, MINUTE)),
        ],
    )
    async def test_each_end_has_its_own_retention(
        self, engine: Engine, clock: VirtualClock, state: State, retention: Retention
    ) -> None:
        claim = await start_one(engine, a_run(retention=retention))
        await engine.finish([Settle(claim, state)])
        clock.jump(MINUTE - MOMENT)
        assert await state_of(engine, "a") is state
        clock.jump(2 * MOMENT)
        assert await run_of(engine, claim.id) is None
        assert await state_of(engine, "a") is None

    @pytest.mark.parametrize("state", [State.COMPLETED, State.FAILED, State.CANCELLED])
    async def test_retention_of_zero_drops_the_record_at_once(self, engine: Engine, state: State) -> None:
        claim = await start_one(engine, a_run(retention=AT_ONCE))
        assert await engine.finish([Settle(claim, state)]) == [Finished.DONE]
        assert await all_runs(engine) == []

    async def test_retention_of_zero_concerns_only_its_own_end(self, engine: Engine) -> None:
        retention = Retention(completed=timedelta(), failed=HOUR, cancelled=HOUR)
        await fail(engine, await start_one(engine, a_run(retention=retention)))
        assert await state_of(engine, "a") is State.FAILED

    async def test_a_retry_does_not_count_as_an_end(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run(retention=AT_ONCE))
        await requeue(engine, claim, attempt=2, failure=BOOM)
        assert (await newest(engine, "a")).attempt == 2

    async def test_an_earlier_run_of_a_key_stays_readable(self, engine: Engine) -> None:
        first = await start_one(engine, a_run())
        await complete(engine, first, result=b"1")
        await complete(engine, await start_one(engine, a_run()), result=b"2")
        earlier = await run_of(engine, first.id)
        assert earlier is not None
        assert earlier.result == b"1"

    # Requeueing

    async def test_a_requeued_run_goes_again(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run(payload=b"arguments", headers={"trace": "1"}))
        await requeue(engine, claim, attempt=2)
        again = await take_one(engine)
        assert (again.id, again.attempt, again.payload) == (claim.id, 2, b"arguments")
        assert (again.redelivered, again.crashes, dict(again.headers)) == (False, 0, {"trace": "1"})

    async def test_a_requeued_run_is_no_longer_running(self, engine: Engine) -> None:
        await requeue(engine, await start_one(engine, a_run()))
        run = await newest(engine, "a")
        assert (run.state, run.lease_until, run.finished) == (State.QUEUED, None, None)

    async def test_a_requeue_may_wait(self, engine: Engine, clock: VirtualClock) -> None:
        claim = await start_one(engine, a_run())
        await requeue(engine, claim, due=MINUTE)
        run = await newest(engine, "a")
        assert (run.state, run.due) == (State.SCHEDULED, clock.now() + MINUTE)
        assert await take(engine) == []
        clock.jump(MINUTE)
        assert keys(await take(engine)) == ["a"]

    async def test_a_requeue_may_wait_for_a_moment(self, engine: Engine, clock: VirtualClock) -> None:
        claim = await start_one(engine, a_run())
        moment = clock.now() + MINUTE + MOMENT
        await requeue(engine, claim, due=moment)
        assert (await newest(engine, "a")).due == moment

    async def test_a_requeue_may_change_the_arguments(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run(payload=b"1"))
        await requeue(engine, claim, payload=b"2")
        again = await take_one(engine)
        assert again.payload == b"2"
        await requeue(engine, again)
        assert (await take_one(engine)).payload == b"2"

    async def test_handing_a_run_back_costs_nothing(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run(attempt=2))
        await requeue(engine, claim)
        run = await newest(engine, "a")
        assert (run.attempt, run.crashes, run.error, run.errors) == (2, 0, None, ())

    async def test_a_requeued_run_keeps_its_error(self, engine: Engine, clock: VirtualClock) -> None:
        claim = await start_one(engine, a_run(), worker="ann")
        await requeue(engine, claim, attempt=2, failure=BOOM)
        run = await newest(engine, "a")
        assert run.error == "ValueError: boom"
        assert run.errors == (AttemptError(1, clock.now(), "ann", BOOM),)

    async def test_the_error_history_grows_with_each_attempt(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, a_run())
        for attempt, worker in enumerate(["ann", "bob"], start=1):
            claim = await take_one(engine, worker=worker)
            await requeue(engine, claim, attempt=attempt + 1, failure=Failure("E", worker))
            clock.jump(SECOND)
        await fail(engine, await take_one(engine, worker="cid"))
        errors = (await newest(engine, "a")).errors
        assert [(each.attempt, each.worker, each.failure.message) for each in errors] == [
            (1, "ann", "ann"),
            (2, "bob", "bob"),
            (3, "cid", "boom"),
        ]
        assert [each.at - errors[0].at for each in errors] == [timedelta(), SECOND, 2 * SECOND]

    async def test_the_error_history_keeps_the_newest_twenty(self, engine: Engine) -> None:
        await place(engine, a_run())
        for attempt in range(1, 26):
            claim = await take_one(engine)
            await requeue(engine, claim, attempt=attempt + 1, failure=Failure("E", f"{attempt}"))
        run = await newest(engine, "a")
        assert [each.attempt for each in run.errors] == list(range(6, 26))
        assert run.error == "E: 25"

    async def test_a_run_that_completes_at_last_keeps_its_history(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        await requeue(engine, claim, attempt=2, failure=BOOM)
        await complete(engine, await take_one(engine))
        run = await newest(engine, "a")
        assert run.state is State.COMPLETED
        assert [each.failure for each in run.errors] == [BOOM]

    # Giving way

    async def test_a_requeue_gives_way_to_a_newer_pending_run(self, engine: Engine) -> None:
        old = await start_one(engine, a_run(payload=b"old"))
        new = a_run(payload=b"new", conflict=Conflict.REPLACE)
        await place(engine, new)
        assert await engine.finish([Requeue(old, attempt=2)]) == [Finished.YIELDED]
        assert await run_of(engine, old.id) is None
        assert [claim.id for claim in await take(engine)] == [new.id]

    async def test_a_requeue_does_not_give_way_to_a_newer_running_one(self, engine: Engine) -> None:
        old = await start_one(engine, a_run())
        new = await start_one(engine, a_run(conflict=Conflict.KEEP_PENDING))
        assert await engine.finish([Requeue(old, attempt=2)]) == [Finished.DONE]
        assert [claim.id for claim in await take(engine)] == [old.id]
        await complete(engine, new)

    async def test_of_two_running_runs_that_are_requeued_one_gives_way(self, engine: Engine) -> None:
        old = await start_one(engine, a_run())
        new = await start_one(engine, a_run(conflict=Conflict.KEEP_PENDING))
        answers = await engine.finish([Requeue(old, attempt=2), Requeue(new, attempt=2)])
        assert sorted(answers) == [Finished.DONE, Finished.YIELDED]
        assert len(await all_runs(engine)) == 1
        assert len(await take(engine)) == 1

    async def test_a_run_that_gives_way_frees_its_slot(self, engine: Engine) -> None:
        one = (Limit("slots", 1),)
        old = await start_one(engine, a_run(limits=one))
        await place(engine, a_run(limits=one, conflict=Conflict.REPLACE))
        assert await take(engine) == []
        await engine.finish([Requeue(old, attempt=2)])
        assert keys(await take(engine)) == ["a"]

    async def test_a_run_that_gives_way_does_not_strand_its_children(self, engine: Engine) -> None:
        old = await start_one(engine, a_run("parent"))
        await place(engine, a_run("child", after=("parent",)))
        await place(engine, a_run("parent", conflict=Conflict.REPLACE))
        await engine.finish([Requeue(old, attempt=2)])
        await complete(engine, *await take(engine, 1))
        assert await state_of(engine, "child") in {State.QUEUED, State.CANCELLED}

    async def test_a_settle_never_gives_way(self, engine: Engine) -> None:
        old = await start_one(engine, a_run())
        await place(engine, a_run(conflict=Conflict.REPLACE))
        assert await engine.finish([failed(old)]) == [Finished.DONE]
        assert [run.state for run in await all_runs(engine)] == [State.FAILED, State.QUEUED]

    # Successors

    async def test_a_successor_comes_with_the_end(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        await complete(engine, claim, then=(a_run("next", payload=b"n", due=MINUTE),))
        assert await states_of(engine, "a", "next") == [State.COMPLETED, State.SCHEDULED]
        assert (await newest(engine, "next")).payload == b"n"

    async def test_a_successor_may_take_the_key_of_its_predecessor(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        successor = a_run()
        await complete(engine, claim, then=(successor,))
        assert (await newest(engine, "a")).id == successor.id
        assert [each.id for each in await take(engine)] == [successor.id]

    async def test_a_successor_outlives_a_record_that_is_dropped_at_once(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run(retention=AT_ONCE))
        successor = a_run()
        await complete(engine, claim, then=(successor,))
        assert [run.id for run in await all_runs(engine)] == [successor.id]

    async def test_a_failed_run_may_have_successors(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        await engine.finish([failed(claim, then=(a_run("b"), a_run("c")))])
        assert await states_of(engine, "a", "b", "c") == [State.FAILED, State.QUEUED, State.QUEUED]

    async def test_a_successor_minds_the_conflict_rules(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        held = a_run(payload=b"held", conflict=Conflict.KEEP_PENDING, due=MINUTE)
        await place(engine, held)
        await complete(engine, claim, then=(a_run(payload=b"successor"),))
        run = await newest(engine, "a")
        assert (run.id, run.payload) == (held.id, b"held")

    async def test_a_successor_may_wait_for_its_predecessor(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        await complete(engine, claim, then=(a_run("next", after=(claim.id,)),))
        assert keys(await take(engine)) == ["next"]

    async def test_a_successor_frees_and_needs_a_slot(self, engine: Engine) -> None:
        one = (Limit("slots", 1),)
        claim = await start_one(engine, a_run(limits=one))
        await complete(engine, claim, then=(a_run(limits=one),))
        assert keys(await take(engine)) == ["a"]

    async def test_a_key_is_free_again_within_a_batch_of_verdicts(self, engine: Engine) -> None:
        first, second = await start(engine, a_run("a"), a_run("b"))
        await engine.finish([completed(first), completed(second, then=(a_run("a"),))])
        (placement,) = await place(engine, a_run("a"))
        assert placement.placing is Placing.KEPT
        assert await state_of(engine, "a") is State.QUEUED
