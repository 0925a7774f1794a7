"""watch: hints that something happened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.model import (
    Conflict,
    Event,
    EventKind,
    Hold,
    HoldKind,
    Limit,
    ProgressReport,
    Retention,
    Settle,
    State,
    Topic,
)
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import (
    AT_ONCE,
    BOOM,
    MINUTE,
    Another,
    a_run,
    assert_empty,
    complete,
    completed,
    fail,
    keys,
    place,
    requeue,
    revive,
    start,
    start_one,
    take,
    take_one,
)

WORK = Topic(EventKind.WORK)
ABOUT_A_RUN = {EventKind.STATE, EventKind.PROGRESS, EventKind.STOP}
PATIENCE = 60.0
"""Real seconds within which a hint has to come when nothing else is going on."""


async def hear(events: AsyncIterator[Event]) -> Event:
    """The next event that says what happened. An engine may also say no more than "look again": a kind alone."""
    async with asyncio.timeout(PATIENCE):
        event = await anext(events)
        while event.kind in ABOUT_A_RUN and event.id is None:
            event = await anext(events)
        return event


async def states_until_the_end(events: AsyncIterator[Event]) -> list[State | None]:
    states: list[State | None] = []
    while not states or states[-1] is None or not states[-1].is_terminal:
        states.append((await hear(events)).state)
    return states


class Watching(Fixtures):
    # Work

    async def test_a_new_run_is_work(self, engine: Engine) -> None:
        async with engine.watch(WORK) as events:
            await place(engine, a_run())
            assert (await hear(events)).kind is EventKind.WORK

    async def test_a_future_run_is_worth_a_look_too(self, engine: Engine) -> None:
        """A worker that sleeps until the next due time must learn of an earlier one."""
        await place(engine, a_run("late", due=10 * MINUTE))
        async with engine.watch(WORK) as events:
            await place(engine, a_run("early", due=MINUTE))
            assert (await hear(events)).kind is EventKind.WORK

    async def test_a_requeued_run_is_work(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        async with engine.watch(WORK) as events:
            await requeue(engine, claim)
            assert (await hear(events)).kind is EventKind.WORK

    async def test_a_child_whose_parent_completed_is_work(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run("parent"))
        await place(engine, a_run("child", after=("parent",)))
        async with engine.watch(WORK) as events:
            await complete(engine, claim)
            assert (await hear(events)).kind is EventKind.WORK

    async def test_a_successor_is_work(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        async with engine.watch(WORK) as events:
            await complete(engine, claim, then=(a_run("next"),))
            assert (await hear(events)).kind is EventKind.WORK

    async def test_a_slot_set_free_is_work(self, engine: Engine) -> None:
        one = (Limit("slots", 1),)
        await place(engine, a_run("1", limits=one), a_run("2", limits=one))
        (first,) = await take(engine)
        async with engine.watch(WORK) as events:
            await complete(engine, first)
            assert (await hear(events)).kind is EventKind.WORK

    async def test_a_turn_passed_on_is_work(self, engine: Engine) -> None:
        one = (Limit("slots", 1),)
        await place(engine, *(a_run(key, limits=one) for key in ("1", "2", "3")))
        (first,) = await take(engine)
        await complete(engine, first)
        async with engine.watch(WORK) as events:
            await engine.cancel(["2"])
            assert (await hear(events)).kind is EventKind.WORK

    async def test_a_revived_run_is_work(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        await fail(engine, claim)
        async with engine.watch(WORK) as events:
            await revive(engine, claim.id)
            assert (await hear(events)).kind is EventKind.WORK

    async def test_a_queue_that_goes_on_is_work(self, engine: Engine) -> None:
        pause = Hold(HoldKind.PAUSE, queue="default")
        await engine.hold([pause])
        await place(engine, a_run())
        async with engine.watch(WORK) as events:
            await engine.lift([pause])
            assert (await hear(events)).kind is EventKind.WORK

    async def test_a_run_moved_forward_is_work(self, engine: Engine) -> None:
        await place(engine, a_run(due=MINUTE))
        async with engine.watch(WORK) as events:
            await place(engine, a_run(conflict=Conflict.POSTPONE))
            assert (await hear(events)).kind is EventKind.WORK

    # States

    async def test_the_states_of_a_run_come_in_order(self, engine: Engine) -> None:
        async with engine.watch(Topic(EventKind.STATE, "a")) as events:
            await complete(engine, await start_one(engine, a_run()))
            assert await states_until_the_end(events) == [State.QUEUED, State.RUNNING, State.COMPLETED]

    async def test_the_states_of_a_run_that_is_tried_again_come_in_order(self, engine: Engine) -> None:
        async with engine.watch(Topic(EventKind.STATE, "a")) as events:
            claim = await start_one(engine, a_run())
            await requeue(engine, claim, attempt=2, failure=BOOM)
            await fail(engine, await take_one(engine))
            assert await states_until_the_end(events) == [
                State.QUEUED,
                State.RUNNING,
                State.QUEUED,
                State.RUNNING,
                State.FAILED,
            ]

    async def test_a_state_event_says_whose_state_it_is(self, engine: Engine, clock: VirtualClock) -> None:
        run = a_run()
        await place(engine, run)
        async with engine.watch(Topic(EventKind.STATE, "a")) as events:
            claim = await take_one(engine, worker="ann")
            running = await hear(events)
            assert (running.kind, running.key, running.id) == (EventKind.STATE, "a", run.id)
            assert (running.state, running.worker, running.started) == (State.RUNNING, "ann", clock.now())
            await engine.finish([Settle(claim, State.FAILED, failure=BOOM)])
            ended = await hear(events)
            assert (ended.id, ended.state, ended.finished) == (run.id, State.FAILED, clock.now())
            assert ended.error == "ValueError: boom"

    @pytest.mark.parametrize("retention", [AT_ONCE, Retention()], ids=["not kept", "kept"])
    async def test_the_end_of_a_run_says_whether_it_has_a_result(self, engine: Engine, retention: Retention) -> None:
        claims = await start(engine, a_run("with", retention=retention), a_run("without", retention=retention))
        async with engine.watch(Topic(EventKind.STATE)) as events:
            await engine.finish([completed(claims[0], result=b""), completed(claims[1])])
            heard = [await hear(events) for _ in range(2)]
            assert {event.key: event.has_result for event in heard} == {"with": True, "without": False}

    async def test_the_end_of_a_run_that_a_limit_dropped_says_why(self, engine: Engine) -> None:
        dropping = Limit("slots", 1, drop=True)
        await start_one(engine, a_run("a", limits=(dropping,)))
        await place(engine, a_run("b", limits=(dropping,)))
        async with engine.watch(Topic(EventKind.STATE, "b")) as events:
            assert await take(engine) == []
            ended = await hear(events)
            assert (ended.state, ended.error) == (State.CANCELLED, str(dropping.dropped))

    async def test_other_keys_are_not_heard(self, engine: Engine) -> None:
        async with engine.watch(Topic(EventKind.STATE, "a")) as events:
            await place(engine, a_run("b"), a_run("aa"), a_run("a"))
            await complete(engine, *await take(engine))
            heard = [await hear(events) for _ in range(3)]
            assert {event.key for event in heard} == {"a"}

    async def test_without_a_key_all_states_are_heard(self, engine: Engine) -> None:
        async with engine.watch(Topic(EventKind.STATE)) as events:
            await place(engine, a_run("a"), a_run("b"))
            assert {(await hear(events)).key for _ in range(2)} == {"a", "b"}

    async def test_a_cancelled_run_is_heard(self, engine: Engine) -> None:
        await place(engine, a_run("parent", due=MINUTE), a_run("child", after=("parent",)))
        async with engine.watch(Topic(EventKind.STATE, "child")) as events:
            await engine.cancel(["parent"])
            assert (await hear(events)).state is State.CANCELLED

    async def test_a_run_dropped_at_its_end_is_heard(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run(retention=AT_ONCE))
        async with engine.watch(Topic(EventKind.STATE, "a")) as events:
            await complete(engine, claim)
            assert (await hear(events)).state is State.COMPLETED

    # The rest

    async def test_a_request_to_stop_is_heard(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        async with engine.watch(Topic(EventKind.STOP)) as events:
            await engine.cancel(["a"])
            event = await hear(events)
            assert (event.kind, event.key, event.id) == (EventKind.STOP, "a", claim.id)

    async def test_a_hold_laid_and_lifted_is_heard(self, engine: Engine) -> None:
        strike = Hold(HoldKind.STRIKE, task="task")
        async with engine.watch(Topic(EventKind.HOLDS)) as events:
            await engine.hold([strike])
            assert (await hear(events)).kind is EventKind.HOLDS
            await engine.lift([strike])
            assert (await hear(events)).kind is EventKind.HOLDS

    async def test_progress_is_heard(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        async with engine.watch(Topic(EventKind.PROGRESS, "a")) as events:
            await engine.report([ProgressReport("a", claim.id, claim.epoch, 2, 5, "on the way")])
            event = await hear(events)
            assert (event.kind, event.key, event.id) == (EventKind.PROGRESS, "a", claim.id)
            assert event.progress is not None
            assert (event.progress.current, event.progress.total) == (2, 5)
            assert event.progress.message == "on the way"

    async def test_progress_of_other_keys_is_not_heard(self, engine: Engine) -> None:
        await start(engine, a_run("a"), a_run("b"))
        async with engine.watch(Topic(EventKind.PROGRESS, "a")) as events:
            await engine.report([ProgressReport("b", increment=1), ProgressReport("a", increment=7)])
            progress = (await hear(events)).progress
            assert progress is not None
            assert progress.current == 7

    async def test_one_may_watch_several_topics(self, engine: Engine) -> None:
        async with engine.watch(Topic(EventKind.HOLDS), Topic(EventKind.STATE, "a")) as events:
            await place(engine, a_run())
            await engine.hold([Hold(HoldKind.STRIKE, task="task")])
            assert {(await hear(events)).kind for _ in range(2)} == {EventKind.STATE, EventKind.HOLDS}

    async def test_one_hears_only_what_one_watches(self, engine: Engine) -> None:
        async with engine.watch(Topic(EventKind.HOLDS)) as events:
            await complete(engine, await start_one(engine, a_run()))
            await engine.hold([Hold(HoldKind.STRIKE, task="task")])
            assert (await hear(events)).kind is EventKind.HOLDS

    # Watchers

    async def test_a_watcher_hears_of_other_connections(self, engine: Engine, another: Another) -> None:
        other = await another()
        async with engine.watch(WORK) as events:
            await place(other, a_run())
            assert (await hear(events)).kind is EventKind.WORK

    async def test_a_watcher_hears_the_states_that_another_connection_makes(
        self, engine: Engine, another: Another
    ) -> None:
        other = await another()
        claim = await start_one(engine, a_run())
        async with engine.watch(Topic(EventKind.STATE, "a")) as events:
            await other.finish([completed(claim)])
            assert (await hear(events)).state is State.COMPLETED

    async def test_every_watcher_hears(self, engine: Engine) -> None:
        async with engine.watch(WORK) as one, engine.watch(WORK) as two:
            await place(engine, a_run())
            assert (await hear(one)).kind is (await hear(two)).kind is EventKind.WORK

    async def test_a_watcher_that_waits_is_woken(self, engine: Engine) -> None:
        async with engine.watch(WORK) as events, asyncio.TaskGroup() as group:
            heard = group.create_task(hear(events), name="listening")
            await place(engine, a_run())
            assert (await heard).kind is EventKind.WORK

    async def test_a_watcher_may_give_up_waiting(self, engine: Engine) -> None:
        async with engine.watch(WORK) as events:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await anext(events)
        await place(engine, a_run())
        assert keys(await take(engine)) == ["a"]

    async def test_a_watcher_that_stops_leaves_nothing_behind(self, engine: Engine) -> None:
        for kind in EventKind:
            async with engine.watch(Topic(kind)):
                pass
        async with engine.watch(Topic(EventKind.STATE, "a"), Topic(EventKind.PROGRESS, "a")):
            pass
        await assert_empty(engine)

    async def test_a_watcher_that_nobody_reads_holds_nothing_up(self, engine: Engine) -> None:
        async with engine.watch(WORK, Topic(EventKind.STATE)):
            for n in range(300):
                await place(engine, a_run(f"{n}"))
            assert len(await take(engine, 300)) == 300
