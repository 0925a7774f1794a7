"""Every call may be repeated: a reply that was lost costs nothing but the repetition."""

from __future__ import annotations

import pytest

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.model import (
    Cancelled,
    Conflict,
    Finished,
    Hold,
    HoldKind,
    Limit,
    Placing,
    Requeue,
    Settle,
    State,
    WorkerInfo,
)
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import (
    AT_ONCE,
    BOOM,
    LEASE,
    MINUTE,
    SECOND,
    a_run,
    all_runs,
    beat,
    complete,
    completed,
    newest,
    place,
    revive,
    start_one,
    states_of,
    take,
    take_one,
)

EVERY_RULE = pytest.mark.parametrize("conflict", list(Conflict))


class Repeating(Fixtures):
    # schedule

    @EVERY_RULE
    async def test_a_repeated_request_places_nothing_twice(self, engine: Engine, conflict: Conflict) -> None:
        run = a_run(due=MINUTE, conflict=conflict)
        await place(engine, run)
        before = await all_runs(engine)
        (placement,) = await place(engine, run)
        assert (placement.id, placement.state) == (run.id, State.SCHEDULED)
        assert await all_runs(engine) == before

    async def test_a_request_repeated_in_its_own_batch_places_nothing_twice(self, engine: Engine) -> None:
        run = a_run()
        first, second = await place(engine, run, run)
        assert (first.placing, first.id, second.id) == (Placing.PLACED, run.id, run.id)
        assert len(await all_runs(engine)) == 1

    @EVERY_RULE
    async def test_a_request_repeated_later_leaves_the_due_time(
        self, engine: Engine, clock: VirtualClock, conflict: Conflict
    ) -> None:
        run = a_run(due=MINUTE, conflict=conflict)
        await place(engine, run)
        due = (await newest(engine, "a")).due
        clock.jump(SECOND)
        await place(engine, run)
        assert (await newest(engine, "a")).due == due

    @EVERY_RULE
    async def test_a_request_repeated_while_the_run_is_running_places_nothing(
        self, engine: Engine, conflict: Conflict
    ) -> None:
        run = a_run(conflict=conflict)
        await start_one(engine, run)
        (placement,) = await place(engine, run)
        assert (placement.id, placement.state) == (run.id, State.RUNNING)
        assert len(await all_runs(engine)) == 1

    @EVERY_RULE
    async def test_a_request_repeated_after_the_end_places_nothing(self, engine: Engine, conflict: Conflict) -> None:
        run = a_run(conflict=conflict)
        await complete(engine, await start_one(engine, run))
        (placement,) = await place(engine, run)
        assert (placement.id, placement.state) == (run.id, State.COMPLETED)
        assert await take(engine) == []

    async def test_a_repeated_request_does_not_undo_a_cancel(self, engine: Engine) -> None:
        run = a_run()
        await place(engine, run)
        await engine.cancel(["a"])
        await place(engine, run)
        assert await take(engine) == []

    async def test_a_repeated_replacement_replaces_nothing_twice(self, engine: Engine) -> None:
        replacement = a_run(conflict=Conflict.REPLACE)
        await place(engine, a_run())
        await place(engine, replacement)
        before = await all_runs(engine)
        (placement,) = await place(engine, replacement)
        assert placement.id == replacement.id
        assert await all_runs(engine) == before

    async def test_a_repeated_replacement_leaves_its_successor_alone(self, engine: Engine) -> None:
        replacement = a_run(conflict=Conflict.REPLACE)
        await complete(engine, await start_one(engine, replacement))
        successor = a_run()
        await place(engine, successor)
        await place(engine, replacement)
        assert [claim.id for claim in await take(engine)] == [successor.id]

    async def test_a_repeated_postponement_is_one(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, a_run(due=SECOND))
        postponement = a_run(due=clock.now() + MINUTE, conflict=Conflict.POSTPONE)
        await place(engine, postponement)
        before = await all_runs(engine)
        await place(engine, postponement)
        assert await all_runs(engine) == before

    async def test_a_postponement_repeated_later_is_one(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, a_run(due=SECOND))
        postponement = a_run(due=MINUTE, conflict=Conflict.POSTPONE)
        await place(engine, postponement)
        before = await all_runs(engine)
        clock.jump(SECOND)
        await place(engine, postponement)
        assert await all_runs(engine) == before

    async def test_a_repeated_request_that_was_kept_out_stays_out(self, engine: Engine) -> None:
        first, second = a_run(), a_run()
        await place(engine, first)
        for _ in range(2):
            (placement,) = await place(engine, second)
            assert (placement.placing, placement.id) == (Placing.KEPT, first.id)

    async def test_a_repeated_batch_is_one(self, engine: Engine) -> None:
        batch = [a_run("a"), a_run("b", after=("a",)), a_run("c", limits=(Limit("slots", 1),))]
        first = await engine.schedule(batch)
        before = await all_runs(engine)
        second = await engine.schedule(batch)
        assert [each.id for each in first] == [each.id for each in second]
        assert await all_runs(engine) == before

    # finish

    @pytest.mark.parametrize("state", [State.COMPLETED, State.FAILED, State.CANCELLED])
    async def test_a_repeated_settle_was_accepted_already(self, engine: Engine, state: State) -> None:
        claim = await start_one(engine, a_run())
        verdict = Settle(claim, state, failure=BOOM if state is State.FAILED else None)
        assert await engine.finish([verdict]) == [Finished.DONE]
        before = await all_runs(engine)
        assert await engine.finish([verdict]) == [Finished.ALREADY]
        assert await all_runs(engine) == before

    async def test_a_settle_repeated_in_its_own_batch_was_accepted_already(self, engine: Engine) -> None:
        verdict = completed(await start_one(engine, a_run()))
        assert await engine.finish([verdict, verdict]) == [Finished.DONE, Finished.ALREADY]

    async def test_a_repeated_settle_brings_no_second_successor(self, engine: Engine) -> None:
        verdict = completed(await start_one(engine, a_run()), then=(a_run("next"),))
        await engine.finish([verdict])
        await complete(engine, await take_one(engine))
        assert await engine.finish([verdict]) == [Finished.ALREADY]
        assert await take(engine) == []

    async def test_a_settle_repeated_after_its_key_was_used_again_was_accepted_already(self, engine: Engine) -> None:
        successor = a_run()
        verdict = completed(await start_one(engine, a_run()), then=(successor,))
        await engine.finish([verdict])
        assert await engine.finish([verdict]) == [Finished.ALREADY]
        assert [claim.id for claim in await take(engine)] == [successor.id]

    async def test_a_settle_whose_record_is_gone_is_fenced(self, engine: Engine) -> None:
        verdict = completed(await start_one(engine, a_run(retention=AT_ONCE)), then=(a_run("next"),))
        assert await engine.finish([verdict]) == [Finished.DONE]
        await complete(engine, await take_one(engine))
        assert await engine.finish([verdict]) == [Finished.FENCED]
        assert await take(engine) == []

    async def test_a_repeated_requeue_was_accepted_already(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        verdict = Requeue(claim, attempt=2, due=MINUTE, failure=BOOM)
        assert await engine.finish([verdict]) == [Finished.DONE]
        before = await all_runs(engine)
        assert await engine.finish([verdict]) == [Finished.ALREADY]
        assert await all_runs(engine) == before

    async def test_a_requeue_repeated_after_the_next_claim_changes_nothing(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        verdict = Requeue(claim, attempt=2, failure=BOOM)
        await engine.finish([verdict])
        again = await take_one(engine)
        (answer,) = await engine.finish([verdict])
        assert answer in {Finished.ALREADY, Finished.FENCED}
        await complete(engine, again)
        assert len((await newest(engine, "a")).errors) == 1

    async def test_a_requeue_that_gave_way_and_is_repeated_changes_nothing(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        await place(engine, a_run(conflict=Conflict.REPLACE))
        verdict = Requeue(claim, attempt=2)
        assert await engine.finish([verdict]) == [Finished.YIELDED]
        before = await all_runs(engine)
        (answer,) = await engine.finish([verdict])
        assert answer in {Finished.YIELDED, Finished.FENCED}
        assert await all_runs(engine) == before

    async def test_a_repeated_requeue_frees_no_second_slot(self, engine: Engine) -> None:
        one = (Limit("slots", 1),)
        await place(engine, a_run("a", limits=one), a_run("b", limits=one), a_run("c", limits=one))
        (first,) = await take(engine)
        verdict = Requeue(first, attempt=2, due=MINUTE)
        await engine.finish([verdict])
        await engine.finish([verdict])
        assert await states_of(engine, "b", "c") == [State.QUEUED, State.SCHEDULED]

    # the others

    async def test_cancelling_twice_is_cancelling_once(self, engine: Engine) -> None:
        await place(engine, a_run("a"), a_run("child", after=("a",)))
        assert await engine.cancel(["a"]) == [Cancelled.CANCELLED]
        before = await all_runs(engine)
        assert await engine.cancel(["a"]) == [Cancelled.OVER]
        assert await all_runs(engine) == before

    async def test_asking_to_stop_twice_is_asking_once(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        assert await engine.cancel(["a"]) == [Cancelled.STOPPING]
        assert await engine.cancel(["a"]) == [Cancelled.STOPPING]
        assert (await beat(engine, claim)).stopping == {claim.id}

    async def test_laying_a_hold_twice_is_laying_it_once(self, engine: Engine) -> None:
        pause = Hold(HoldKind.PAUSE, queue="x")
        await engine.hold([pause, pause])
        await engine.hold([pause])
        assert len(await engine.holds()) == 1
        await engine.lift([pause])
        assert await engine.holds() == []

    async def test_lifting_a_hold_twice_is_lifting_it_once(self, engine: Engine) -> None:
        pause, other = Hold(HoldKind.PAUSE, queue="x"), Hold(HoldKind.PAUSE, queue="y")
        await engine.hold([pause, other])
        await engine.lift([pause, pause])
        await engine.lift([pause])
        assert [hold.identity for hold in await engine.holds()] == [other.identity]

    async def test_reviving_twice_is_reviving_once(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        await engine.finish([Settle(claim, State.FAILED)])
        assert await revive(engine, claim.id) == [True]
        before = await all_runs(engine)
        assert await revive(engine, claim.id) == [False]
        assert await all_runs(engine) == before
        assert len(await take(engine)) == 1

    async def test_beating_twice_is_beating_once(self, engine: Engine, clock: VirtualClock) -> None:
        claim = await start_one(engine, a_run())
        clock.jump(SECOND)
        first = await beat(engine, claim)
        before = await all_runs(engine)
        assert await beat(engine, claim) == first
        assert await all_runs(engine) == before
        assert len((await engine.survey()).workers) == 1

    async def test_leaving_twice_is_leaving_once(self, engine: Engine) -> None:
        for leaving in (False, True, True):
            await engine.heartbeat(WorkerInfo("ann", id="1", leaving=leaving), [], lease=LEASE)
        assert (await engine.survey()).workers == []
