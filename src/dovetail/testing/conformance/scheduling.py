"""schedule: what is asked for is there, once, or not at all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.errors import UnknownParent
from dovetail.model import Conflict, Due, Finished, Limit, Placement, Placing, Requeue, State
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import (
    HOUR,
    MINUTE,
    MOMENT,
    SECOND,
    Another,
    a_run,
    all_runs,
    keys,
    newest,
    place,
    run_of,
    state_of,
    take,
)

BEYOND_THE_CALENDAR = (
    timedelta.max,
    timedelta.min,
    datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))),
    datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
)


class Scheduling(Fixtures):
    async def test_a_due_run_is_queued(self, engine: Engine) -> None:
        run = a_run()
        assert await place(engine, run) == [Placement(Placing.PLACED, run.id, State.QUEUED)]
        assert await state_of(engine, "a") is State.QUEUED

    async def test_a_future_run_is_scheduled(self, engine: Engine) -> None:
        run = a_run(due=SECOND)
        assert await place(engine, run) == [Placement(Placing.PLACED, run.id, State.SCHEDULED)]
        assert await state_of(engine, "a") is State.SCHEDULED

    async def test_a_run_is_kept_as_it_was_given(self, engine: Engine, clock: VirtualClock) -> None:
        limits = (Limit("slots", 2), Limit("rate", 5, MINUTE, drop=True))
        given = a_run(
            task="send",
            payload=b"\x00\xff{}",
            due=MINUTE,
            queue="mail",
            priority=-3,
            group="acme",
            limits=limits,
            attempt=4,
            crash_limit=7,
            headers={"traceparent": "00-1", "": "empty name"},
        )
        await place(engine, given)
        run = await run_of(engine, given.id)
        assert run is not None
        assert (run.id, run.key, run.task, run.payload) == (given.id, "a", "send", b"\x00\xff{}")
        assert (run.queue, run.priority, run.group, run.limits) == ("mail", -3, "acme", limits)
        assert (run.attempt, run.crashes, run.crash_limit) == (4, 0, 7)
        assert dict(run.headers) == dict(given.headers)
        assert (run.created, run.due) == (clock.now(), clock.now() + MINUTE)

    async def test_a_run_that_has_not_started_says_so(self, engine: Engine) -> None:
        await place(engine, a_run())
        run = await newest(engine, "a")
        assert (run.worker, run.started, run.finished, run.lease_until) == (None, None, None, None)
        assert (run.result, run.error, run.errors, run.progress) == (None, None, (), None)
        assert (run.stopping, run.parked_on, run.parents, run.doomed_by) == (False, None, (), None)

    async def test_due_may_be_a_moment_of_any_zone(self, engine: Engine, clock: VirtualClock) -> None:
        moment = (clock.now() + HOUR + MOMENT).astimezone(timezone(timedelta(hours=9)))
        await place(engine, a_run(due=moment))
        assert (await newest(engine, "a")).due == moment

    async def test_a_due_time_in_the_past_is_due_now(self, engine: Engine) -> None:
        past = datetime(2001, 2, 3, 4, 5, 6, 7, tzinfo=UTC)
        (placement,) = await place(engine, a_run(due=past))
        assert placement.state is State.QUEUED
        (claim,) = await take(engine)
        assert claim.due == past

    @pytest.mark.parametrize("due", BEYOND_THE_CALENDAR)
    @pytest.mark.parametrize("count", [1, 20], ids=["alone", "in bulk"])
    async def test_a_due_time_that_no_calendar_has_stops_nobody(self, engine: Engine, due: Due, count: int) -> None:
        await engine.schedule([a_run(f"far {number}", due=due) for number in range(count)])
        await place(engine, a_run("near"))
        taken = {claim.key for claim in await take(engine, 50)}
        assert {run.key for run in await all_runs(engine)} == {"near", *(f"far {number}" for number in range(count))}
        assert "near" in taken

    @pytest.mark.parametrize("due", BEYOND_THE_CALENDAR)
    async def test_nor_does_one_of_a_retry(self, engine: Engine, due: Due) -> None:
        await place(engine, a_run("far"))
        (claim,) = await take(engine)
        assert await engine.finish([Requeue(claim, 2, due)]) == [Finished.DONE]
        await place(engine, a_run("near"))
        assert "near" in {claim.key for claim in await take(engine, 50)}
        assert {run.key for run in await all_runs(engine)} == {"near", "far"}

    async def test_a_batch_is_answered_in_its_order(self, engine: Engine) -> None:
        batch = [a_run(key, due=SECOND) for key in "cab"]
        assert [placement.id for placement in await engine.schedule(batch)] == [run.id for run in batch]

    async def test_an_empty_batch_is_nothing(self, engine: Engine) -> None:
        assert await engine.schedule([]) == []
        assert await all_runs(engine) == []

    async def test_later_runs_of_a_batch_see_the_earlier_ones(self, engine: Engine) -> None:
        first, second, third = a_run(), a_run(), a_run(conflict=Conflict.REPLACE)
        placements = await place(engine, first, second, third)
        assert [each.placing for each in placements] == [Placing.PLACED, Placing.KEPT, Placing.REPLACED]
        assert [each.id for each in placements] == [first.id, first.id, third.id]
        assert [run.id for run in await all_runs(engine)] == [third.id]

    async def test_a_batch_with_an_error_places_nothing(self, engine: Engine) -> None:
        with pytest.raises(UnknownParent):
            await place(engine, a_run("a"), a_run("b", after=("nobody",)), a_run("c"))
        assert await all_runs(engine) == []

    async def test_a_batch_with_an_error_replaces_and_postpones_nothing(self, engine: Engine) -> None:
        await place(engine, a_run("a", due=HOUR), a_run("b", due=HOUR))
        before = await all_runs(engine)
        with pytest.raises(UnknownParent):
            await place(
                engine,
                a_run("a", conflict=Conflict.REPLACE),
                a_run("b", conflict=Conflict.POSTPONE),
                a_run("c", after=("nobody",)),
            )
        assert await all_runs(engine) == before

    async def test_keys_do_not_meddle(self, engine: Engine) -> None:
        await place(engine, a_run("a"), a_run("A"), a_run("a "), a_run("ab"))
        assert sorted(keys(await take(engine))) == ["A", "a", "a ", "ab"]

    async def test_a_twin_shares_the_docket(self, engine: Engine) -> None:
        await place(engine, a_run())
        async with engine.twin() as twin:
            assert keys(await take(twin)) == ["a"]
        assert await state_of(engine, "a") is State.RUNNING

    async def test_what_one_connection_schedules_another_claims(self, engine: Engine, another: Another) -> None:
        await place(engine, a_run())
        assert keys(await take(await another())) == ["a"]

    async def test_migrating_twice_is_migrating_once(self, engine: Engine) -> None:
        await place(engine, a_run())
        assert await engine.migrate() == await engine.migrate()
        assert keys(await take(engine)) == ["a"]
