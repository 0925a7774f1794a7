"""clear: the pending runs that a query finds are cancelled, step by step, as if each had been cancelled by its key."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.engine.clearing import steps
from dovetail.errors import InvalidArgument
from dovetail.model import Cleared, Conflict, EventKind, Limit, RunQuery, State, Topic
from dovetail.testing.conformance.finding import one_of_each_state
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import (
    AT_ONCE,
    HOUR,
    SECOND,
    Another,
    a_run,
    all_runs,
    assert_empty,
    assert_leaves_nothing,
    beat,
    complete,
    complete_one_by_one,
    fail,
    keys,
    newest,
    place,
    requeue,
    revive,
    start_one,
    state_of,
    take,
    take_one,
)
from dovetail.testing.conformance.watching import hear

ONE = (Limit("slots", 1),)


async def clear(engine: Engine, **query: Any) -> int:
    """Clear all that a query finds, and say how many were cancelled."""
    return sum([step.runs async for step in steps(engine.clear, RunQuery(**query))])


async def cancelled(engine: Engine) -> list[str]:
    return keys(await all_runs(engine, states=(State.CANCELLED,)))


class Clearing(Fixtures):
    # What is cancelled

    async def test_all_that_is_pending_is_cancelled_and_nothing_else(self, engine: Engine, clock: VirtualClock) -> None:
        await one_of_each_state(engine)
        clock.jump(SECOND)
        assert await clear(engine) == 3  # the one that waited fell with the one it waited for
        states = {run.key: run.state for run in await all_runs(engine)}
        assert states == dict.fromkeys(states, State.CANCELLED) | {
            "completed": State.COMPLETED, "failed": State.FAILED, "running": State.RUNNING
        }  # fmt: skip
        ended = await newest(engine, "queued")
        assert (ended.finished, ended.doomed_by, ended.error) == (clock.now(), None, None)
        assert await take(engine) == []

    async def test_clearing_an_empty_store_is_nothing(self, engine: Engine) -> None:
        assert await engine.clear(RunQuery()) == Cleared(0)

    async def test_what_runs_is_left_in_peace(self, engine: Engine) -> None:
        running = await start_one(engine, a_run())
        await place(engine, a_run(conflict=Conflict.REPLACE))
        assert await clear(engine) == 1
        assert (await beat(engine, running)).stopping == frozenset()
        assert keys(await all_runs(engine, states=(State.RUNNING,))) == ["a"]

    async def test_an_attempt_that_waits_is_cancelled_beside_a_newer_run_that_runs(self, engine: Engine) -> None:
        older = await start_one(engine, a_run())
        newer = await start_one(engine, a_run(conflict=Conflict.KEEP_PENDING))
        await requeue(engine, older, attempt=2)
        assert await clear(engine) == 1
        assert await take(engine) == []
        assert (await beat(engine, newer)).lost == frozenset()

    @pytest.mark.parametrize("state", [State.SCHEDULED, State.QUEUED, State.WAITING])
    async def test_one_of_the_pending_states_may_be_meant(self, engine: Engine, state: State) -> None:
        await one_of_each_state(engine)
        await clear(engine, states=(state, State.RUNNING))
        assert (await newest(engine, state.value)).state is State.CANCELLED
        left = {State.SCHEDULED, State.QUEUED, State.WAITING} - {state}
        fallen = {State.WAITING} if state is State.SCHEDULED else set[State]()
        assert {(await newest(engine, each.value)).state for each in left - fallen} == left - fallen

    async def test_what_has_begun_cannot_be_meant(self, engine: Engine) -> None:
        await one_of_each_state(engine)
        before = await all_runs(engine)
        assert await engine.clear(RunQuery(states=(State.RUNNING, State.FAILED))) == Cleared(0)
        assert await all_runs(engine) == before

    async def test_only_what_the_query_finds_is_cancelled(self, engine: Engine) -> None:
        await place(engine, a_run("a", queue="mail"), a_run("b", task="other"), a_run("c", group="g"), a_run("d"))
        await place(engine, a_run("e", queue="kept", task="other"))
        assert await clear(engine, queues=("mail",)) == 1
        assert await cancelled(engine) == ["a"]
        assert await clear(engine, tasks=("other",), without_queues=("kept", "nowhere")) == 1
        assert await cancelled(engine) == ["a", "b"]
        assert await clear(engine, groups=("g",)) == 1
        assert await clear(engine, keys=("d", "nobody")) == 1
        assert keys(await take(engine)) == ["e"]

    # Steps

    @pytest.mark.parametrize("newest_first", [False, True])
    async def test_a_step_is_bounded_and_the_next_goes_on(self, engine: Engine, newest_first: bool) -> None:
        await engine.schedule([a_run(f"{n}") for n in range(25)])
        query = RunQuery(limit=10, newest_first=newest_first)
        first = await engine.clear(query)
        assert first.runs == 10
        expected = range(24, 14, -1) if newest_first else range(10)
        assert set(await cancelled(engine)) == {f"{n}" for n in expected}
        assert await clear(engine, limit=10, newest_first=newest_first, cursor=first.cursor) == 15
        assert await clear(engine) == 0

    async def test_thousands_are_cleared(self, engine: Engine, clock: VirtualClock) -> None:
        await engine.schedule([a_run(f"{n}", due=HOUR if n % 2 else -HOUR) for n in range(2500)])
        assert await clear(engine, limit=1000) == 2500
        assert await take(engine) == []
        await assert_leaves_nothing(engine, clock)

    async def test_the_limit_is_at_least_one(self, engine: Engine) -> None:
        with pytest.raises(InvalidArgument, match="limit must be at least 1"):
            await engine.clear(RunQuery(limit=0))

    async def test_a_cursor_that_no_step_gave_is_refused(self, engine: Engine) -> None:
        with pytest.raises(InvalidArgument, match="cursor"):
            await engine.clear(RunQuery(cursor="nonsense"))

    # Dependents

    async def test_dependents_fall_with_what_they_waited_for(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, a_run("parent"), a_run("child", after=("parent",)), a_run("grandchild", after=("child",)))
        parent = await newest(engine, "parent")
        assert await clear(engine) == 3
        assert await cancelled(engine) == ["parent", "child", "grandchild"]
        assert (await newest(engine, "child")).doomed_by == parent.id
        await assert_leaves_nothing(engine, clock)

    async def test_what_fell_with_them_comes_back_with_them(self, engine: Engine) -> None:
        await place(engine, a_run("parent"), a_run("child", after=("parent",)))
        await clear(engine)
        assert await revive(engine, (await newest(engine, "parent")).id) == [True]
        assert await complete_one_by_one(engine) == ["parent", "child"]

    async def test_dependents_elsewhere_fall_too(self, engine: Engine) -> None:
        await place(engine, a_run("parent", queue="mail"), a_run("child", after=("parent",)))
        assert await clear(engine, queues=("mail",)) == 2
        assert await state_of(engine, "child") is State.CANCELLED

    async def test_a_dependent_is_cancelled_without_what_it_waits_for(self, engine: Engine) -> None:
        await place(engine, a_run("parent"), a_run("child", queue="mail", after=("parent",)))
        assert await clear(engine, queues=("mail",)) == 1
        assert (await newest(engine, "child")).doomed_by is None
        assert await complete_one_by_one(engine) == ["parent"]

    async def test_one_that_runs_after_a_failure_too_is_released_if_it_is_not_meant(self, engine: Engine) -> None:
        await place(engine, a_run("parent", queue="mail"), a_run("child", after=("parent",), after_failure=True))
        assert await clear(engine, queues=("mail",)) == 1
        assert await complete_one_by_one(engine) == ["child"]

    async def test_one_that_runs_after_a_failure_too_is_cancelled_if_it_is_meant(self, engine: Engine) -> None:
        await place(engine, a_run("parent"), a_run("child", after=("parent",), after_failure=True))
        assert await clear(engine) == 2
        assert await take(engine) == []

    async def test_one_whose_parent_runs_is_cancelled_before_it(self, engine: Engine) -> None:
        parent = await start_one(engine, a_run("parent"))
        await place(engine, a_run("child", after=("parent",)))
        assert await clear(engine) == 1
        await fail(engine, parent)
        assert (await newest(engine, "child")).doomed_by is None

    # Keys, limits, groups

    async def test_keys_are_free_again(self, engine: Engine) -> None:
        await place(engine, a_run("a"), a_run("b", due=HOUR))
        await clear(engine)
        again = a_run("b")
        await place(engine, again)
        assert [claim.id for claim in await take(engine)] == [again.id]

    async def test_parked_runs_are_cancelled_for_good(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, *(a_run(f"{n}", limits=ONE) for n in range(5)))
        (first,) = await take(engine)
        assert await clear(engine) == 4
        await complete(engine, first)
        assert await take(engine) == []
        await assert_leaves_nothing(engine, clock)

    async def test_a_turn_goes_to_one_that_is_left(self, engine: Engine) -> None:
        meant = [a_run(f"{n}", queue="mail", priority=1, limits=ONE) for n in range(3)]
        await place(engine, a_run("first", priority=2, limits=ONE), *meant, a_run("left", limits=ONE))
        (first,) = await take(engine)
        await complete(engine, first)  # now it is the turn of the first of those that are meant
        assert await clear(engine, queues=("mail",)) == 3
        assert keys(await take(engine)) == ["left"]

    async def test_a_turn_that_nobody_is_left_for_is_nobodys(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, *(a_run(f"{n}", limits=ONE) for n in range(3)))
        await complete(engine, await take_one(engine))
        assert await clear(engine) == 2
        again = await start_one(engine, a_run("again", limits=ONE))
        await complete(engine, again)
        await assert_leaves_nothing(engine, clock)

    async def test_groups_leave_nothing_behind(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, *(a_run(f"{n}", group=f"{n % 3}") for n in range(9)))
        assert await clear(engine) == 9
        await assert_leaves_nothing(engine, clock)

    # Retention

    async def test_records_are_kept_for_their_retention(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, a_run())
        await clear(engine)
        assert await state_of(engine, "a") is State.CANCELLED
        clock.jump(HOUR)
        assert await state_of(engine, "a") is None

    async def test_without_retention_nothing_is_left(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run("tried", retention=AT_ONCE))
        await requeue(engine, claim, attempt=2)
        await place(engine, a_run("a", retention=AT_ONCE), a_run("b", due=HOUR, retention=AT_ONCE))
        assert await clear(engine) == 3
        await assert_empty(engine)

    async def test_what_is_kept_by_count_is_counted(self, engine: Engine, clock: VirtualClock) -> None:
        runs = [a_run(f"{n}") for n in range(5)]
        await place(engine, *(run.but(retention=run.retention.but(keep=2)) for run in runs))
        await clear(engine)
        await engine.sweep()
        assert len(await cancelled(engine)) == 2
        await assert_leaves_nothing(engine, clock)

    # Telling

    async def test_whoever_watches_is_told(self, engine: Engine, another: Another) -> None:
        await place(engine, a_run("a"), a_run("b"), a_run("child", after=("a",)))
        async with (await another()).watch(Topic(EventKind.STATE)) as events:
            await clear(engine)
            told = [await hear(events) for _ in range(3)]
        assert {(event.key, event.state) for event in told} == {
            (key, State.CANCELLED) for key in ("a", "b", "child")
        }  # fmt: skip
