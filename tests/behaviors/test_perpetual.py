"""Perpetual: a task that goes again and again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from dovetail import Docket, ExecutionState, Perpetual, Retry, Worker
from dovetail.clock import VirtualClock
from dovetail.model import Requeue, Settle, State
from dovetail.worker.roster import Reason
from tests.by_hand import ByHand, finish, run_of, runs_of
from tests.faults import behind_a_door
from tests.waiting import soon

MakeWorker = Callable[..., Worker]
MINUTE = timedelta(minutes=1)


async def waiting(docket: Docket, key: str) -> Any:
    (run,) = [run for run in await runs_of(docket, key) if not run.state.is_terminal]
    return run


# The next run


async def test_the_next_run_comes_every_so_often_after_this_one_began(
    still: Docket, by_hand: ByHand, clock: VirtualClock
):
    async def tick(perpetual: Perpetual = Perpetual(every=MINUTE)) -> None:
        clock.jump(timedelta(seconds=20))

    began = clock.now()
    await still.add(tick, key="k")()
    await by_hand.step()
    assert (await waiting(still, "k")).due == began + MINUTE


async def test_a_run_that_took_longer_is_followed_at_once(still: Docket, by_hand: ByHand, clock: VirtualClock):
    async def slow(perpetual: Perpetual = Perpetual(every=MINUTE)) -> None:
        clock.jump(2 * MINUTE)

    await still.add(slow, key="k")()
    await by_hand.step()
    run = await waiting(still, "k")
    assert (run.due, run.state) == (clock.now(), State.QUEUED)


async def test_without_a_period_the_next_run_comes_at_once(docket: Docket, worker: Worker):
    calls: list[int] = []

    async def tick(perpetual: Perpetual = Perpetual()) -> None:
        calls.append(len(calls))
        if len(calls) == 5:
            perpetual.cancel()

    await docket.add(tick)()
    await finish(worker)
    assert calls == [0, 1, 2, 3, 4]


async def test_plain_functions_can_be_perpetual(docket: Docket, worker: Worker):
    calls: list[int] = []

    def tick(perpetual: Perpetual = Perpetual()) -> None:
        calls.append(len(calls))
        if len(calls) == 3:
            perpetual.cancel()

    await docket.add(tick)()
    await finish(worker)
    assert calls == [0, 1, 2]


async def test_the_period_can_be_changed_by_the_body(still: Docket, by_hand: ByHand, clock: VirtualClock):
    async def tick(perpetual: Perpetual = Perpetual(every=MINUTE)) -> None:
        perpetual.every = timedelta(hours=1)

    await still.add(tick, key="k")()
    await by_hand.step()
    assert (await waiting(still, "k")).due == clock.now() + timedelta(hours=1)


async def test_what_a_body_does_to_its_perpetual_does_not_last(still: Docket, by_hand: ByHand, clock: VirtualClock):
    calls: list[int] = []

    async def tick(perpetual: Perpetual = Perpetual(every=MINUTE)) -> None:
        calls.append(1)
        if len(calls) == 1:
            perpetual.after(timedelta(hours=1))

    await still.add(tick, key="k")()
    await by_hand.step()
    clock.jump(timedelta(hours=1))
    await by_hand.step()
    assert (await waiting(still, "k")).due == clock.now() + MINUTE


async def test_the_body_can_say_after_which_delay_the_next_run_comes(
    still: Docket, by_hand: ByHand, clock: VirtualClock
):
    async def tick(perpetual: Perpetual = Perpetual(every=MINUTE)) -> None:
        perpetual.after(timedelta(hours=2))

    await still.add(tick, key="k")()
    await by_hand.step()
    assert (await waiting(still, "k")).due == clock.now() + timedelta(hours=2)


async def test_the_body_can_say_when_the_next_run_comes(still: Docket, by_hand: ByHand, clock: VirtualClock):
    when = clock.now() + timedelta(days=3)

    async def tick(perpetual: Perpetual = Perpetual(every=MINUTE)) -> None:
        clock.jump(MINUTE)
        perpetual.at(when)

    await still.add(tick, key="k")()
    await by_hand.step()
    assert (await waiting(still, "k")).due == when


@pytest.mark.parametrize("how", ["after", "at"])
async def test_what_the_body_said_holds_after_a_failure_too(
    still: Docket, by_hand: ByHand, clock: VirtualClock, how: str
):
    async def tick(perpetual: Perpetual = Perpetual(every=MINUTE)) -> None:
        perpetual.after(timedelta(hours=2)) if how == "after" else perpetual.at(clock.now() + timedelta(hours=2))
        raise ValueError

    await still.add(tick, key="k")()
    await by_hand.step()
    assert (await waiting(still, "k")).due == clock.now() + timedelta(hours=2)


async def test_the_next_run_has_the_same_arguments(docket: Docket, worker: Worker):
    seen: list[Any] = []

    async def tick(a: int, *, b: str, perpetual: Perpetual = Perpetual()) -> None:
        seen.append((a, b))
        if len(seen) == 2:
            perpetual.cancel()

    await docket.add(tick)(1, b="two")
    await finish(worker)
    assert seen == [(1, "two"), (1, "two")]


async def test_the_body_can_give_the_next_run_other_arguments(docket: Docket, worker: Worker):
    seen: list[Any] = []

    async def tick(a: int, b: int = 0, perpetual: Perpetual = Perpetual()) -> None:
        seen.append((a, b))
        if len(seen) == 3:
            perpetual.cancel()
        perpetual.perpetuate(a + 1, b=b + 10)

    await docket.add(tick)(1)
    await finish(worker)
    assert seen == [(1, 0), (2, 10), (3, 20)]


async def test_the_body_can_give_the_next_run_no_arguments(docket: Docket, worker: Worker):
    seen: list[int] = []

    async def tick(a: int = 0, perpetual: Perpetual = Perpetual()) -> None:
        seen.append(a)
        if len(seen) == 2:
            perpetual.cancel()
        perpetual.perpetuate()

    await docket.add(tick)(5)
    await finish(worker)
    assert seen == [5, 0]


async def test_the_next_run_keeps_queue_and_priority(still: Docket, by_hand: ByHand):
    async def tick(perpetual: Perpetual = Perpetual(every=MINUTE)) -> None: ...

    await still.add(tick, key="k", queue="side", priority=3)()
    await by_hand.step()
    run = await waiting(still, "k")
    assert (run.queue, run.priority) == ("side", 3)


async def test_arguments_that_cannot_be_stored_do_not_cut_the_chain(still: Docket, by_hand: ByHand):
    async def tick(a: Any = None, perpetual: Perpetual = Perpetual(every=MINUTE)) -> None:
        perpetual.perpetuate(threading.Lock())

    await still.add(tick, key="k")()
    await by_hand.step()
    assert await waiting(still, "k") is not None


# Ending


async def test_a_chain_ends_when_the_body_says_so(still: Docket, by_hand: ByHand):
    async def tick(perpetual: Perpetual = Perpetual(every=MINUTE)) -> None:
        perpetual.cancel()

    await still.add(tick, key="k")()
    run = await by_hand.step()
    assert run.state is State.COMPLETED
    assert [each.state for each in await runs_of(still, "k")] == [State.COMPLETED]


async def test_the_result_of_a_run_is_dropped(docket: Docket, still: Docket, by_hand: ByHand):
    async def tick(perpetual: Perpetual = Perpetual(every=MINUTE)) -> str:
        return "dropped"

    execution = await still.add(tick, key="k")()
    verdict = await by_hand.attempt()
    assert isinstance(verdict, Settle)
    assert verdict.result is None
    await still.engine.finish([verdict])
    assert await soon(execution.get_result()) is None


async def test_the_result_of_the_last_run_is_kept(docket: Docket, worker: Worker):
    async def tick(perpetual: Perpetual = Perpetual()) -> str:
        perpetual.cancel()
        return "kept"

    execution = await docket.add(tick)()
    await finish(worker)
    assert await execution.get_result() == "kept"


async def test_a_failing_run_is_followed_as_well(still: Docket, by_hand: ByHand, clock: VirtualClock):
    async def tick(perpetual: Perpetual = Perpetual(every=MINUTE)) -> None:
        raise ValueError("no")

    await still.add(tick, key="k")()
    run = await by_hand.step()
    assert (run.state, run.error) == (State.FAILED, "ValueError: no")
    follower = await waiting(still, "k")
    assert (follower.due, follower.attempt, follower.error) == (clock.now() + MINUTE, 1, None)


async def test_a_failing_run_that_cancelled_itself_is_the_last(still: Docket, by_hand: ByHand):
    async def tick(perpetual: Perpetual = Perpetual(every=MINUTE)) -> None:
        perpetual.cancel()
        raise ValueError("no")

    await still.add(tick, key="k")()
    await by_hand.step()
    assert [each.state for each in await runs_of(still, "k")] == [State.FAILED]


async def test_a_result_that_cannot_be_stored_does_not_cut_the_chain(still: Docket, by_hand: ByHand):
    async def tick(perpetual: Perpetual = Perpetual(every=MINUTE)) -> Any:
        return threading.Lock()

    await still.add(tick, key="k")()
    assert (await by_hand.step()).state is State.COMPLETED
    assert await waiting(still, "k") is not None


async def test_a_body_that_cancels_itself_by_an_exception_ends_its_chain(still: Docket, by_hand: ByHand):
    async def tick(perpetual: Perpetual = Perpetual(every=MINUTE)) -> None:
        raise asyncio.CancelledError

    await still.add(tick, key="k")()
    run = await by_hand.step()
    assert [each.state for each in await runs_of(still, "k")] == [State.CANCELLED]
    assert run.error == "CancelledError: the body raised it, and nobody had cancelled the run"


@pytest.mark.parametrize("swallows", [True, False])
async def test_a_run_that_somebody_cancelled_is_not_followed(still: Docket, by_hand: ByHand, swallows: bool):
    started = asyncio.Event()

    async def tick(perpetual: Perpetual = Perpetual(every=MINUTE)) -> None:
        try:
            started.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not swallows:
                raise

    await still.add(tick, key="k")()
    verdict = await by_hand.attempt(stop_for=Reason.STOP, once=started)
    assert isinstance(verdict, Settle)
    assert verdict.then == ()


async def test_cancelling_the_waiting_run_ends_the_chain(still: Docket, by_hand: ByHand):
    async def tick(perpetual: Perpetual = Perpetual(every=MINUTE)) -> None: ...

    await still.add(tick, key="k")()
    await by_hand.step()
    await still.cancel("k")
    assert all(run.state.is_terminal for run in await runs_of(still, "k"))


# With a retry


async def test_a_retry_goes_first(still: Docket, by_hand: ByHand, clock: VirtualClock):
    async def tick(
        perpetual: Perpetual = Perpetual(every=MINUTE), retry: Retry = Retry(attempts=2, delay=timedelta(seconds=1))
    ) -> None:
        raise ValueError("no")

    await still.add(tick, key="k")()
    first = await by_hand.attempt()
    assert isinstance(first, Requeue)
    await still.engine.finish([first])
    assert (await waiting(still, "k")).attempt == 2
    clock.jump(timedelta(seconds=1))
    second = await by_hand.attempt()
    assert isinstance(second, Settle)
    assert second.state is State.FAILED
    (follower,) = second.then
    assert follower.attempt == 1


async def test_a_retry_goes_first_whatever_the_order_of_the_parameters(still: Docket, by_hand: ByHand):
    async def tick(retry: Retry = Retry(attempts=2), perpetual: Perpetual = Perpetual(every=MINUTE)) -> None:
        raise ValueError("no")

    await still.add(tick, key="k")()
    assert isinstance(await by_hand.attempt(), Requeue)


# One unit


async def test_the_end_of_a_run_and_the_next_one_are_one_write(still: Docket, by_hand: ByHand):
    async def tick(perpetual: Perpetual = Perpetual(every=MINUTE)) -> None: ...

    await still.add(tick, key="k")()
    faults = behind_a_door(still)
    verdict = await by_hand.attempt()
    assert isinstance(verdict, Settle)
    assert [run.key for run in verdict.then] == ["k"]
    await still.engine.finish([verdict])
    assert (faults.calls["finish"], faults.calls["schedule"]) == (1, 0)
    assert await waiting(still, "k") is not None


async def test_a_chain_survives_trouble_at_its_end(docket: Docket, make_worker: MakeWorker):
    calls: list[int] = []

    async def tick(perpetual: Perpetual = Perpetual()) -> None:
        calls.append(len(calls))
        if len(calls) == 3:
            perpetual.cancel()

    await docket.add(tick, key="k")()
    faults = behind_a_door(docket)
    faults.fail("finish", 2, after=True)
    await finish(make_worker())
    assert calls == [0, 1, 2]


async def test_a_run_that_is_lost_does_not_follow_itself_up(still: Docket, by_hand: ByHand, clock: VirtualClock):
    async def tick(perpetual: Perpetual = Perpetual(every=MINUTE)) -> None: ...

    await still.add(tick, key="k")()
    late = await by_hand.attempt()
    assert late is not None
    clock.jump(timedelta(hours=1))
    await by_hand.step()
    await still.engine.finish([late])
    assert len([run for run in await runs_of(still, "k") if not run.state.is_terminal]) == 1


async def test_a_replace_during_a_run_is_what_comes_next(still: Docket, by_hand: ByHand, clock: VirtualClock):
    async def tick(name: str, perpetual: Perpetual = Perpetual(every=MINUTE)) -> None:
        if name == "first":
            await still.replace(tick, clock.now() + timedelta(hours=5), "k")("replacement")

    await still.add(tick, key="k")("first")
    await by_hand.step()
    run = await waiting(still, "k")
    assert run.due == clock.now() + timedelta(hours=5)


# Automatic


async def test_an_automatic_task_is_started_by_any_worker(docket: Docket, worker: Worker):
    calls: list[int] = []

    async def tick(perpetual: Perpetual = Perpetual(automatic=True)) -> None:
        calls.append(1)
        perpetual.cancel()

    docket.register(tick)
    await finish(worker)
    assert calls == [1]
    execution = await docket.get_execution("tick")
    assert execution is not None
    assert execution.state is ExecutionState.COMPLETED


async def test_a_task_that_is_not_automatic_is_not_started(docket: Docket, worker: Worker):
    async def tick(perpetual: Perpetual = Perpetual()) -> None: ...

    docket.register(tick)
    await finish(worker)
    assert await docket.get_execution("tick") is None


async def test_a_worker_can_be_told_to_start_nothing_by_itself(docket: Docket, make_worker: MakeWorker):
    async def tick(perpetual: Perpetual = Perpetual(automatic=True)) -> None:
        perpetual.cancel()

    docket.register(tick)
    await finish(make_worker(schedule_automatic_tasks=False))
    assert await docket.get_execution("tick") is None


async def test_a_perpetual_is_run_at_most_as_often_as_asked(docket: Docket, worker: Worker):
    calls: list[int] = []

    async def tick(perpetual: Perpetual = Perpetual(every=timedelta(hours=1), automatic=True)) -> None:
        calls.append(1)
        perpetual.after(timedelta())

    docket.register(tick)
    await finish(worker, tick=3)
    assert len(calls) == 3
    assert all(run.state.is_terminal for run in await runs_of(docket, "tick"))
    assert (await run_of(docket, key="tick")).state is not State.RUNNING
