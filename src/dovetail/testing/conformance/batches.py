"""A large batch does what so many small ones would: whatever a store does to be fast is not to be seen."""

from __future__ import annotations

import pytest

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.errors import UnknownParent
from dovetail.model import Cancelled, Claim, Finished, Limit, Placing, ProgressReport, Requeue, Run, State
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.naming import nameless
from dovetail.testing.conformance.vocabulary import (
    AT_ONCE,
    BOOM,
    LEASE,
    MINUTE,
    SECOND,
    a_run,
    all_runs,
    assert_leaves_nothing,
    beat,
    complete,
    complete_one_by_one,
    completed,
    failed,
    keys,
    newest,
    place,
    requeue,
    revive,
    start,
    start_one,
    state_of,
    take,
    take_once,
)

MANY = 30
HOW_MANY = pytest.mark.parametrize("count", [1, 3, 10, 30, 150])


async def start_many(engine: Engine, count: int = MANY, **fields: object) -> list[Claim]:
    return await start(engine, *(a_run(f"{n}", **fields) for n in range(count)))


class Batches(Fixtures):
    # Scheduling

    @HOW_MANY
    async def test_many_requests_are_answered_in_their_order(self, engine: Engine, count: int) -> None:
        batch = [nameless(due=MINUTE if n % 3 == 0 else -SECOND, priority=n % 2) for n in range(count)]
        placements = await engine.schedule(batch)
        assert [each.id for each in placements] == [run.id for run in batch]
        assert {each.placing for each in placements} == {Placing.PLACED}
        by_id = {run.id: run.state for run in await all_runs(engine)}
        assert [each.state for each in placements] == [by_id[run.id] for run in batch]

    @HOW_MANY
    async def test_many_requests_repeated_with_new_ones_place_only_those(self, engine: Engine, count: int) -> None:
        batch = [nameless(due=MINUTE) for _ in range(count)]
        await engine.schedule(batch[::2])
        placements = await engine.schedule(batch)
        assert [each.id for each in placements] == [run.id for run in batch]
        assert len(await all_runs(engine)) == count

    @HOW_MANY
    async def test_many_requests_repeated_say_how_each_run_stands(self, engine: Engine, count: int) -> None:
        batch = [nameless() for _ in range(count)]
        await engine.schedule(batch)
        (first,) = await take(engine, 1)
        await complete(engine, first)
        placements = await engine.schedule(batch)
        assert [each.state for each in placements] == [State.COMPLETED] + [State.QUEUED] * (count - 1)

    async def test_one_that_is_kept_out_among_many_harms_no_other(self, engine: Engine) -> None:
        held = nameless(due=MINUTE)
        holder = a_run(held.id, due=MINUTE)
        await place(engine, holder)
        batch = [nameless(), *(nameless() for _ in range(MANY)), held]
        placements = await engine.schedule(batch)
        assert placements[-1].placing is Placing.KEPT
        assert placements[-1].id == holder.id
        assert {each.placing for each in placements[:-1]} == {Placing.PLACED}

    async def test_one_wrong_request_among_many_places_none(self, engine: Engine) -> None:
        batch = [nameless() for _ in range(MANY)]
        with pytest.raises(UnknownParent):
            await engine.schedule([*batch, a_run(after=("nobody",)), *(nameless() for _ in range(MANY))])
        assert await all_runs(engine) == []

    @HOW_MANY
    async def test_many_runs_are_kept_as_they_were_given(self, engine: Engine, count: int) -> None:
        batch = [nameless(payload=b"%d" % n, queue="x", priority=4, task="send") for n in range(count)]
        await engine.schedule(batch)
        kept = {run.id: run for run in await all_runs(engine)}
        for run in batch:
            assert (kept[run.id].key, kept[run.id].payload) == (run.id, run.payload)
            assert (kept[run.id].queue, kept[run.id].priority, kept[run.id].task) == ("x", 4, "send")

    # Claiming

    @HOW_MANY
    async def test_many_claims_come_in_order(self, engine: Engine, count: int) -> None:
        batch = [nameless(priority=n % 3) for n in range(count)]
        await engine.schedule(batch)
        expected = sorted(batch, key=lambda run: (-run.priority, run.id))
        assert [claim.id for claim in await take_once(engine, count)] == [run.id for run in expected]

    async def test_limits_among_many_claims_hold_up_only_their_own(self, engine: Engine) -> None:
        limited = (Limit("slots", 2),)
        await place(engine, *(a_run(f"{n}", limits=limited if n % 2 else ()) for n in range(MANY)))
        brought = keys(await take(engine, MANY))
        assert sorted(brought, key=int) == sorted([*(f"{n}" for n in range(0, MANY, 2)), "1", "3"], key=int)

    # Finishing

    @HOW_MANY
    async def test_many_that_end_together_end_as_one_alone(
        self, engine: Engine, clock: VirtualClock, count: int
    ) -> None:
        for claim in await start_many(engine, count + 1):
            await requeue(engine, claim, attempt=2, failure=BOOM)
        clock.jump(SECOND)
        alone, *together = await take(engine, count + 1)
        await complete(engine, alone)
        await complete(engine, *together)

        def outcome(run: Run) -> Run:
            return run.but(id="", key="")

        expected = outcome(await newest(engine, alone.key))
        assert expected.state is State.COMPLETED
        assert all(outcome(run) == expected for run in await all_runs(engine))

    async def test_many_verdicts_repeated_were_accepted_already(self, engine: Engine) -> None:
        verdicts = [completed(claim) for claim in await start_many(engine)]
        assert await engine.finish(verdicts) == [Finished.DONE] * MANY
        assert await engine.finish(verdicts) == [Finished.ALREADY] * MANY

    async def test_one_verdict_repeated_among_many_was_accepted_already(self, engine: Engine) -> None:
        verdicts = [completed(claim) for claim in await start_many(engine)]
        answers = await engine.finish([*verdicts, verdicts[3]])
        assert answers == [*[Finished.DONE] * MANY, Finished.ALREADY]

    async def test_of_two_verdicts_on_one_claim_among_many_the_first_counts(self, engine: Engine) -> None:
        claims = await start_many(engine)
        verdicts = [Requeue(claims[0], attempt=2, due=MINUTE), *(completed(claim) for claim in claims)]
        answers = await engine.finish(verdicts)
        assert answers == [Finished.DONE, Finished.FENCED, *[Finished.DONE] * (MANY - 1)]
        assert await state_of(engine, "0") is State.SCHEDULED

    async def test_a_void_claim_among_many_is_fenced(self, engine: Engine, clock: VirtualClock) -> None:
        late = await start_one(engine, a_run("0"), worker="ann")
        clock.jump(LEASE + SECOND)
        (present,) = await take(engine, worker="bob")
        others = await start(engine, *(a_run(f"{n}") for n in range(1, MANY)))
        answers = await engine.finish([failed(late), completed(present), *(completed(claim) for claim in others)])
        assert answers == [Finished.FENCED, *[Finished.DONE] * MANY]
        assert await state_of(engine, "0") is State.COMPLETED

    async def test_many_ends_free_many_slots(self, engine: Engine) -> None:
        claims = await start_many(engine, 10, limits=(Limit("slots", 10),))
        await place(engine, *(a_run(f"next {n}", limits=(Limit("slots", 10),)) for n in range(15)))
        assert await take(engine) == []
        await complete(engine, *claims)
        assert len(await take(engine, 20)) == 10

    async def test_many_parents_that_end_together_release_their_children(self, engine: Engine) -> None:
        claims = await start_many(engine)
        await place(engine, *(a_run(f"child {n}", after=(f"{n}",)) for n in range(MANY)))
        everyone = tuple(f"{n}" for n in range(MANY))
        await place(engine, a_run("child of all", after=everyone, priority=-1))
        await complete(engine, *claims)
        assert keys(await take(engine, 2 * MANY)) == [*(f"child {n}" for n in range(MANY)), "child of all"]

    async def test_many_that_are_not_kept_are_gone(self, engine: Engine, clock: VirtualClock) -> None:
        await complete(engine, *await start_many(engine, retention=AT_ONCE))
        assert await all_runs(engine) == []
        await assert_leaves_nothing(engine, clock)

    async def test_verdicts_of_every_kind_go_together(self, engine: Engine) -> None:
        claims = await start_many(engine)
        verdicts = [
            completed(claim) if n % 3 == 0 else failed(claim) if n % 3 == 1 else Requeue(claim, attempt=2)
            for n, claim in enumerate(claims)
        ]
        assert await engine.finish(verdicts) == [Finished.DONE] * MANY
        states = [run.state for run in await all_runs(engine)]
        assert states == [(State.COMPLETED, State.FAILED, State.QUEUED)[n % 3] for n in range(MANY)]

    async def test_successors_among_many_ends_are_placed(self, engine: Engine) -> None:
        claims = await start_many(engine)
        await engine.finish([completed(claim, then=(a_run(claim.key),)) for claim in claims])
        assert await complete_one_by_one(engine) == [f"{n}" for n in range(MANY)]

    # The rest

    async def test_a_heartbeat_of_many_says_exactly_which_are_lost_and_which_are_to_stop(self, engine: Engine) -> None:
        claims = await start_many(engine)
        await complete(engine, *claims[::5])
        await engine.cancel([claim.key for claim in claims[1::5]])
        pulse = await beat(engine, *claims)
        assert pulse.lost == {claim.id for claim in claims[::5]}
        assert pulse.stopping == {claim.id for claim in claims[1::5]}

    async def test_many_cancels_are_answered_in_their_order(self, engine: Engine) -> None:
        claims = await start_many(engine, 10)
        await complete(engine, *claims[:5])
        await place(engine, *(a_run(f"{n}") for n in range(10, 20)))
        assert await engine.cancel([f"{n}" for n in range(25)]) == [
            *[Cancelled.OVER] * 5,
            *[Cancelled.STOPPING] * 5,
            *[Cancelled.CANCELLED] * 10,
            *[Cancelled.UNKNOWN] * 5,
        ]

    async def test_many_revivals_are_answered_in_their_order(self, engine: Engine) -> None:
        claims = await start_many(engine)
        await complete(engine, *claims[::2])
        answers = await revive(engine, *(claim.id for claim in claims))
        assert answers == [n % 2 == 0 for n in range(MANY)]

    async def test_many_reports_reach_each_its_run(self, engine: Engine) -> None:
        claims = await start_many(engine)
        reports = [ProgressReport(each.key, each.id, each.epoch, n) for n, each in enumerate(claims)]
        assert await engine.report(reports) == [True] * MANY
        progress = [run.progress for run in await all_runs(engine)]
        assert [each.current for each in progress if each] == list(range(MANY))
