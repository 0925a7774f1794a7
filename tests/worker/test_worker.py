"""Worker: the parts together, and the order in which they stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dovetail import (
    CurrentExecution,
    Docket,
    Execution,
    ExecutionCancelled,
    ExecutionState,
    Perpetual,
    Retry,
    UsageError,
    Worker,
)
from dovetail.clock import VirtualClock
from dovetail.model import Claim, Requeue, Run, State
from dovetail.worker import crew as module
from dovetail.worker.roster import Pace
from tests import collections_of_tasks
from tests.by_hand import ByHand, at_work, finish, run_of, runs_of
from tests.faults import behind_a_door
from tests.waiting import PATIENCE, soon

MakeWorker = Callable[..., Worker]
SHORT = timedelta(milliseconds=300)


async def greet(name: str = "nobody") -> str:
    return f"hello {name}"


class Held:
    """A task whose bodies wait until they are let go."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.release = asyncio.Event()
        self.stopping = asyncio.Event()
        self.calls = 0
        self.stopped = 0

    async def hold(self) -> str:
        self.calls += 1
        self.started.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.stopped += 1
            self.stopping.set()
            raise
        return "held"

    def task(self) -> Any:
        async def held() -> str:
            return await self.hold()

        return held


@pytest.fixture
def held() -> Held:
    return Held()


# Settings


def test_a_worker_is_named_after_its_host_and_process(docket: Docket):
    name = Worker(docket).name
    assert name.endswith(f"#{os.getpid()}")


def test_the_defaults_are_those_of_docket_but_for_the_lease(docket: Docket):
    worker = Worker(docket)
    assert worker.concurrency == 10
    assert worker.redelivery_timeout == timedelta(seconds=10)
    assert worker.reconnection_delay == timedelta(seconds=5)
    assert worker.schedule_automatic_tasks is True
    assert worker.fallback_task is None
    assert worker.message_batch == 1000


def test_the_labels_of_a_worker(docket: Docket):
    assert Worker(docket, name="w").labels() == {"docket.name": "tests", "docket.worker": "w"}


def test_a_worker_shows_its_name_and_docket(docket: Docket):
    assert repr(Worker(docket, name="w")).startswith("<Worker 'w' of <Docket 'tests'")


async def test_the_concurrency_may_be_changed_before_a_run(docket: Docket, make_worker: MakeWorker):
    meeting = asyncio.Barrier(3)

    async def meet() -> None:
        await meeting.wait()

    worker = make_worker(concurrency=1)
    worker.concurrency = 3
    for _ in range(3):
        await docket.add(meet)()
    await finish(worker)


# Running


async def test_a_worker_runs_what_is_due_and_returns(docket: Docket, worker: Worker):
    executions = [await docket.add(greet)(f"{number}") for number in range(20)]
    await finish(worker)
    assert [await each.get_result() for each in executions] == [f"hello {number}" for number in range(20)]


async def test_a_worker_goes_by_the_clock_of_its_docket(still: Docket, clock: VirtualClock, make_worker: MakeWorker):
    later = await still.add(greet, when=clock.now() + timedelta(days=1))("later")
    async with at_work(make_worker(still)):
        now = await still.add(greet)("now")
        assert await soon(now.get_result()) == "hello now"
        await later.sync()
        assert later.state is ExecutionState.SCHEDULED
        clock.jump(timedelta(days=1))
        await still.add(greet)("a reason to look")
        assert await soon(later.get_result()) == "hello later"


async def test_a_worker_runs_once_at_a_time(docket: Docket, worker: Worker):
    refused: list[Any] = []
    async with at_work(worker):
        refused += await asyncio.gather(worker.run_once(), worker.run_until_finished(), return_exceptions=True)
        await soon((await docket.add(greet)()).get_result())  # the one that runs is not harmed
    assert [type(each) for each in refused] == [UsageError, UsageError]
    await worker.run_until_finished()


async def test_an_empty_docket_is_finished_at_once(worker: Worker):
    await finish(worker)


async def test_a_worker_waits_for_future_work(docket: Docket, worker: Worker):
    execution = await docket.add(greet, when=datetime.now(UTC) + timedelta(milliseconds=100))("later")
    await finish(worker)
    assert await execution.get_result() == "hello later"


async def test_future_work_is_not_started_early(docket: Docket, worker: Worker):
    when = datetime.now(UTC) + timedelta(milliseconds=100)
    execution = await docket.add(greet, when=when)()
    await finish(worker)
    await execution.sync()
    assert execution.started_at is not None
    assert execution.started_at >= when


async def test_a_worker_finishes_what_its_tasks_add(docket: Docket, worker: Worker):
    seen: list[int] = []

    async def chain(left: int) -> None:
        seen.append(left)
        if left:
            await docket.add(chain)(left - 1)

    await docket.add(chain)(5)
    await finish(worker)
    assert seen == [5, 4, 3, 2, 1, 0]


async def test_a_running_worker_hears_of_new_work(docket: Docket, worker: Worker):
    async with at_work(worker):
        execution = await docket.add(greet)("ann")
        assert await soon(execution.get_result()) == "hello ann"


async def test_new_work_does_not_wait_for_a_poll(docket: Docket, worker: Worker, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("dovetail.worker.intake.FALLBACK_POLL", timedelta(hours=1))
    async with at_work(worker):
        for _ in range(3):
            execution = await docket.add(greet)("ann")
            assert await soon(execution.get_result()) == "hello ann"


async def test_a_hint_that_was_lost_costs_a_poll_and_no_more(
    docket: Docket, worker: Worker, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("dovetail.worker.intake.FALLBACK_POLL", timedelta(milliseconds=20))
    monkeypatch.setattr("dovetail.worker.listener.Listener._pass_on", lambda self, event: None)
    faults = behind_a_door(docket)
    async with at_work(worker):
        await faults.reached("claim", 2)
        execution = await docket.add(greet)("ann")
        assert await soon(execution.get_result()) == "hello ann"


async def test_no_more_bodies_run_at_once_than_asked_for(docket: Docket, make_worker: MakeWorker):
    now = most = 0

    async def brief() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001)
        now -= 1

    for _ in range(60):
        await docket.add(brief)()
    await finish(make_worker(concurrency=4))
    assert most == 4


async def test_no_more_plain_bodies_run_at_once_than_asked_for(docket: Docket, make_worker: MakeWorker):
    lock, now, most = threading.Lock(), 0, 0

    def brief() -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        threading.Event().wait(0.001)
        with lock:
            now -= 1

    for _ in range(40):
        await docket.add(brief)()
    await finish(make_worker(concurrency=3))
    assert most <= 3


async def test_two_workers_share_the_work(docket: Docket, make_worker: MakeWorker):
    meeting = asyncio.Barrier(2)

    async def meet() -> None:
        await meeting.wait()

    executions = [await docket.add(meet)() for _ in range(2)]
    one, two = make_worker(name="one", concurrency=1), make_worker(name="two", concurrency=1)
    await soon(asyncio.gather(one.run_until_finished(), two.run_until_finished()))
    for execution in executions:
        await execution.sync()
    assert {execution.worker for execution in executions} == {"one", "two"}


async def test_two_workers_run_nothing_twice(docket: Docket, make_worker: MakeWorker):
    calls: list[int] = []

    async def note(number: int) -> None:
        calls.append(number)
        await asyncio.sleep(0)

    for number in range(100):
        await docket.add(note)(number)
    await soon(
        asyncio.gather(make_worker(name="one").run_until_finished(), make_worker(name="two").run_until_finished())
    )
    assert sorted(calls) == list(range(100))


async def test_what_is_held_in_reserve_does_not_wait_behind_a_long_run(
    docket: Docket, make_worker: MakeWorker, held: Held, monkeypatch: pytest.MonkeyPatch
):
    def used_to_short_runs(self: Pace) -> None:
        self._run, self._claim = 0.0005, 0.005

    monkeypatch.setattr(Pace, "__init__", used_to_short_runs)
    await docket.add(held.task(), priority=1)()
    behind = [await docket.add(greet)(f"{number}") for number in range(3)]
    async with at_work(make_worker(name="one", concurrency=1)):
        await soon(held.started.wait())
        async with at_work(make_worker(name="two", concurrency=1)):
            try:
                results = await soon(asyncio.gather(*(each.get_result() for each in behind)))
            finally:
                held.release.set()
    assert results == ["hello 0", "hello 1", "hello 2"]


async def test_a_worker_can_run_more_than_once(docket: Docket, worker: Worker):
    async with worker:
        for name in ("ann", "bob"):
            execution = await docket.add(greet)(name)
            await finish(worker)
            assert await execution.get_result() == f"hello {name}"


async def test_the_tasks_are_announced(docket: Docket, worker: Worker, caplog: pytest.LogCaptureFixture):
    async def shown(name: str, retry: Retry = Retry()) -> None: ...

    docket.register(shown)
    with caplog.at_level(logging.INFO, "dovetail.worker"):
        await finish(worker)
    lines = [record.getMessage() for record in caplog.records]
    assert any("Starting worker 'worker'" in line for line in lines)
    assert any(line.startswith("* shown(name") for line in lines)


# Long runs


async def test_a_run_may_take_longer_than_its_lease(docket: Docket, make_worker: MakeWorker, held: Held):
    faults = behind_a_door(docket)
    execution = await docket.add(held.task(), key="k")()
    async with at_work(make_worker(redelivery_timeout=timedelta(seconds=1)), make_worker(name="other")):
        await soon(held.started.wait())
        first = (await run_of(docket, key="k")).lease_until
        await faults.called("heartbeat", 6)
        renewed = await run_of(docket, key="k")
        held.release.set()
        assert await soon(execution.get_result()) == "held"
    assert first is not None
    assert renewed.lease_until is not None
    assert renewed.lease_until > first
    assert held.calls == 1


async def test_a_run_whose_worker_vanished_starts_elsewhere(docket: Docket, make_worker: MakeWorker):
    seen: list[Any] = []

    async def work(execution: Execution[Any] = CurrentExecution()) -> None:
        seen.append((execution.redelivered, execution.attempt))

    execution = await docket.add(work, key="k")()
    await docket.engine.claim("vanished", 1, lease=timedelta(milliseconds=50))
    await finish(make_worker())
    await execution.sync()
    assert seen == [(True, 1)]
    assert (execution.state, execution.worker) == (ExecutionState.COMPLETED, "worker")


async def test_a_run_that_is_lost_is_stopped_and_records_nothing(
    docket: Docket, make_worker: MakeWorker, held: Held, caplog: pytest.LogCaptureFixture
):
    # The store is told to forget the lease while the body runs, as a clock that jumps or a stopped process would.
    await docket.add(held.task(), key="k")()
    async with at_work(make_worker(concurrency=1)):
        await soon(held.started.wait())
        run = await run_of(docket, key="k")
        await usurp(docket, run)
        await soon(held.stopping.wait())
    after = await run_of(docket, key="k")
    assert (after.state, after.worker, after.error) == (State.RUNNING, "usurper", None)


async def test_word_that_an_attempt_is_over_does_not_stop_the_next_one(docket: Docket, worker: Worker):
    # A heartbeat is under way while an attempt fails and the next one starts: to the store the claim it speaks of is
    # void, but that is not the claim now in hand.
    loop = asyncio.get_running_loop()
    first, fail_now, release, second = asyncio.Event(), asyncio.Event(), asyncio.Event(), threading.Event()
    attempts: list[int] = []

    async def flaky(retry: Retry = Retry(attempts=2)) -> str:
        attempts.append(retry.attempt)
        if retry.attempt == 1:
            first.set()
            await fail_now.wait()
            raise ValueError("once")
        second.set()
        await release.wait()
        return "second"

    async def meanwhile() -> None:
        del faults.before["heartbeat"]
        loop.call_soon_threadsafe(fail_now.set)
        await asyncio.to_thread(second.wait, PATIENCE)

    faults = behind_a_door(docket)
    execution = await docket.add(flaky, key="k")()
    async with at_work(worker):
        await soon(first.wait())
        faults.before["heartbeat"] = meanwhile
        await faults.called("heartbeat", 3)
        release.set()
        assert await soon(execution.get_result()) == "second"
    assert attempts == [1, 2]
    assert (await run_of(docket, key="k")).crashes == 0


async def usurp(docket: Docket, run: Run) -> None:
    """Let another worker take a run over, as if its lease had lapsed."""
    claim = Claim(run.id, run.epoch, run.key, run.task, run.payload, run.attempt, run.due, queue=run.queue)
    await docket.engine.finish([Requeue(claim, 1)])
    claimed = await docket.engine.claim("usurper", 1, lease=timedelta(hours=1))
    assert [each.key for each in claimed.claims] == [run.key]


# Trouble with the store


@pytest.mark.parametrize("verb", ["claim", "finish", "find"])
async def test_trouble_with_the_store_is_waited_out(docket: Docket, worker: Worker, verb: str):
    execution = await docket.add(greet)("ann")
    faults = behind_a_door(docket)
    faults.fail(verb, 3)
    await finish(worker)
    assert faults.left[verb] == 0
    assert await execution.get_result() == "hello ann"


@pytest.mark.parametrize("verb", ["claim", "finish"])
async def test_an_answer_that_was_lost_costs_no_run_and_runs_nothing_twice(
    docket: Docket, make_worker: MakeWorker, verb: str
):
    calls: list[int] = []

    async def note() -> None:
        calls.append(1)

    execution = await docket.add(note, key="k")()
    faults = behind_a_door(docket)
    faults.fail(verb, 1, after=True)
    await finish(make_worker(redelivery_timeout=SHORT))
    await execution.sync()
    assert calls == [1]
    assert execution.state is ExecutionState.COMPLETED


async def test_a_bug_of_ours_ends_the_run_with_that_error(docket: Docket, worker: Worker):
    faults = behind_a_door(docket)
    faults.fail("claim", 1, ZeroDivisionError("a bug of ours"))
    with pytest.raises(ExceptionGroup) as caught:
        await soon(worker.run_forever())
    assert caught.group_contains(ZeroDivisionError)


async def test_a_bug_of_ours_leaves_no_body_running_unattended(docket: Docket, worker: Worker, held: Held):
    # Nobody would renew its lease: it would go on here and start elsewhere.
    await docket.add(held.task(), key="k")()
    faults = behind_a_door(docket)
    running = asyncio.create_task(worker.run_forever())
    await soon(held.started.wait())
    faults.fail("heartbeat", 100, ZeroDivisionError("a bug of ours"))
    with pytest.raises(ExceptionGroup):
        await soon(running)
    stopped = held.stopped
    held.release.set()
    assert stopped == 1


# Cancelling


async def test_a_running_body_is_cancelled_and_cleans_up(docket: Docket, worker: Worker, held: Held):
    execution = await docket.add(held.task(), key="k")()
    async with at_work(worker):
        await soon(held.started.wait())
        await docket.cancel("k")
        with pytest.raises(ExecutionCancelled):
            await soon(execution.get_result())
    assert held.stopped == 1


async def test_a_body_that_swallows_its_cancellation_completes_however_long_it_takes(docket: Docket, worker: Worker):
    started, swallowed, release = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def stubborn() -> str:
        try:
            started.set()
            await release.wait()
        except asyncio.CancelledError:
            swallowed.set()
            await release.wait()
        return "stubborn"

    execution = await docket.add(stubborn, key="k")()
    faults = behind_a_door(docket)
    async with at_work(worker):
        await soon(started.wait())
        await docket.cancel("k")
        await soon(swallowed.wait())
        await faults.called("heartbeat", 4)
        release.set()
        assert await soon(execution.get_result()) == "stubborn"


async def test_a_cancellation_reaches_a_worker_that_heard_no_event(
    docket: Docket, worker: Worker, held: Held, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("dovetail.worker.listener.Listener._pass_on", lambda self, event: self._on_work())
    execution = await docket.add(held.task(), key="k")()
    async with at_work(worker):
        await soon(held.started.wait())
        await docket.cancel("k")
        with pytest.raises(ExecutionCancelled):
            await soon(execution.get_result())


async def test_a_cancelled_run_neither_goes_again_nor_goes_on(docket: Docket, worker: Worker):
    started = asyncio.Event()
    calls: list[int] = []

    async def work(retry: Retry = Retry(attempts=5), perpetual: Perpetual = Perpetual()) -> None:
        calls.append(1)
        started.set()
        await asyncio.Event().wait()

    await docket.add(work, key="k")()
    async with at_work(worker):
        await soon(started.wait())
        await docket.cancel("k")
        execution = await docket.get_execution("k")
        assert execution is not None
        with pytest.raises(ExecutionCancelled):
            await soon(execution.get_result())
    assert calls == [1]
    assert [run.state for run in await runs_of(docket, "k")] == [State.CANCELLED]


@pytest.mark.parametrize("kind", ["retry", "perpetual"])
async def test_a_cancellation_that_comes_while_a_body_ends_is_not_lost(still: Docket, by_hand: ByHand, kind: str):
    async def fail(retry: Retry = Retry(attempts=5)) -> None:
        raise ValueError

    async def tick(perpetual: Perpetual = Perpetual(every=timedelta(hours=1))) -> None: ...

    await still.add(fail if kind == "retry" else tick, key="k")()
    verdict = await by_hand.attempt()
    assert verdict is not None
    await still.cancel("k")
    await still.engine.finish([verdict])
    assert all(run.state.is_terminal for run in await runs_of(still, "k"))


async def test_a_run_that_is_cancelled_the_moment_it_is_claimed_frees_its_slot(docket: Docket, make_worker: MakeWorker):
    faults = behind_a_door(docket)

    async def cancel_it() -> None:
        faults.after.pop("claim", None)
        await docket.cancel("k")

    await docket.add(greet, key="k")()
    faults.after["claim"] = cancel_it
    behind = await docket.add(greet)("behind")
    await finish(make_worker(concurrency=1))
    assert (await run_of(docket, key="k")).state.is_terminal
    assert await behind.get_result() == "hello behind"


# Stopping


async def test_cancelling_a_worker_lets_running_work_end_and_returns_normally(
    docket: Docket, worker: Worker, held: Held
):
    execution = await docket.add(held.task())()
    running = asyncio.create_task(worker.run_forever())
    await soon(held.started.wait())
    running.cancel()
    held.release.set()
    assert await soon(running) is None
    assert not running.cancelled()
    assert await execution.get_result() == "held"


async def test_a_worker_that_stops_takes_in_nothing_more(docket: Docket, make_worker: MakeWorker, held: Held):
    await docket.add(held.task())()
    worker = make_worker(concurrency=1)
    running = asyncio.create_task(worker.run_forever())
    await soon(held.started.wait())
    worker.stop()
    late = await docket.add(greet)("late")
    held.release.set()
    await soon(running)
    await late.sync()
    assert late.state is ExecutionState.QUEUED


async def test_stop_lets_running_work_end(docket: Docket, worker: Worker, held: Held):
    execution = await docket.add(held.task())()
    running = asyncio.create_task(worker.run_forever())
    await soon(held.started.wait())
    worker.stop()
    held.release.set()
    await soon(running)
    assert await execution.get_result() == "held"


async def test_leaving_a_worker_stops_it_and_waits(docket: Docket, make_worker: MakeWorker, held: Held):
    execution = await docket.add(held.task())()
    async with make_worker() as worker:
        running = asyncio.create_task(worker.run_forever())
        await soon(held.started.wait())
        asyncio.get_running_loop().call_later(0.01, held.release.set)
    assert await execution.get_result() == "held"
    await soon(running)


async def test_stop_of_a_worker_that_does_not_run_is_nothing(worker: Worker):
    worker.stop()


@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_stopping_twice_hands_running_work_back_at_no_cost(docket: Docket, worker: Worker, held: Held, how: str):
    await docket.add(held.task(), key="k")()
    running = asyncio.create_task(worker.run_forever())
    await soon(held.started.wait())
    for _ in range(2):
        worker.stop() if how == "stop" else running.cancel()
        await asyncio.sleep(0)
    await soon(running)
    run = await run_of(docket, key="k")
    assert (run.state, run.attempt, run.crashes, run.error) == (State.QUEUED, 1, 0, None)
    assert held.stopped == 1


async def test_what_was_handed_back_runs_elsewhere(docket: Docket, make_worker: MakeWorker, held: Held):
    execution = await docket.add(held.task())()
    worker = make_worker()
    running = asyncio.create_task(worker.run_forever())
    await soon(held.started.wait())
    worker.stop()
    worker.stop()
    await soon(running)
    held.release.set()
    await finish(make_worker(name="elsewhere"))
    assert await execution.get_result() == "held"
    assert execution.worker == "elsewhere"


async def test_out_of_grace_running_work_is_handed_back(docket: Docket, make_worker: MakeWorker, held: Held):
    await docket.add(held.task(), key="k")()
    worker = make_worker(shutdown_grace=timedelta(milliseconds=30))
    running = asyncio.create_task(worker.run_forever())
    await soon(held.started.wait())
    worker.stop()
    await soon(running)
    run = await run_of(docket, key="k")
    assert (run.state, run.attempt, run.crashes) == (State.QUEUED, 1, 0)


async def test_a_body_that_ends_within_the_grace_is_not_handed_back(
    docket: Docket, make_worker: MakeWorker, held: Held
):
    execution = await docket.add(held.task())()
    worker = make_worker(shutdown_grace=timedelta(seconds=8))
    running = asyncio.create_task(worker.run_forever())
    await soon(held.started.wait())
    worker.stop()
    asyncio.get_running_loop().call_later(0.05, held.release.set)
    await soon(running)
    assert await execution.get_result() == "held"


async def test_a_body_that_ignores_its_stop_does_not_hold_the_worker_for_ever(
    docket: Docket, worker: Worker, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "FLUSH_TIME", 0.05)
    started, release = asyncio.Event(), asyncio.Event()

    async def deaf() -> None:
        started.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    await docket.add(deaf)()
    running = asyncio.create_task(worker.run_forever())
    await soon(started.wait())
    worker.stop()
    worker.stop()
    done, _ = await asyncio.wait([running], timeout=PATIENCE)
    release.set()
    assert done
    await asyncio.sleep(0)


async def test_a_plain_function_does_not_hold_a_hurried_worker(docket: Docket, worker: Worker):
    loop, started, release = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def stubborn() -> None:
        loop.call_soon_threadsafe(started.set)
        release.wait(PATIENCE)

    await docket.add(stubborn, key="k")()
    running = asyncio.create_task(worker.run_forever())
    await soon(started.wait())
    worker.stop()
    worker.stop()
    try:
        await soon(running)
    finally:
        release.set()
    assert (await run_of(docket, key="k")).state is State.QUEUED


@pytest.mark.parametrize("turns", range(6))
async def test_a_worker_that_is_started_and_cancelled_in_quick_succession_ends(
    docket: Docket, worker: Worker, turns: int
):
    running = asyncio.create_task(worker.run_forever())
    for _ in range(turns):
        await asyncio.sleep(0)
    running.cancel()
    done, _ = await asyncio.wait([running], timeout=PATIENCE)
    assert done


async def test_outcomes_are_written_before_a_worker_ends(docket: Docket, worker: Worker, held: Held):
    execution = await docket.add(held.task())()
    faults = behind_a_door(docket)
    running = asyncio.create_task(worker.run_forever())
    await soon(held.started.wait())
    faults.fail("finish", 3)
    worker.stop()
    held.release.set()
    await soon(running)
    assert await execution.get_result() == "held"


async def test_a_worker_that_cannot_write_its_outcomes_says_so_and_goes(
    docket: Docket,
    make_worker: MakeWorker,
    held: Held,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    monkeypatch.setattr(module, "FLUSH_TIME", 0.05)
    await docket.add(held.task(), key="k")()
    faults = behind_a_door(docket)
    worker = make_worker(shutdown_grace=timedelta(milliseconds=50))
    running = asyncio.create_task(worker.run_forever())
    await soon(held.started.wait())
    faults.fail("finish", 10_000)
    held.release.set()
    worker.stop()
    await soon(running)
    assert "could not be written" in caplog.text
    assert (await run_of(docket, key="k")).state is State.RUNNING


async def test_no_lease_is_lost_while_a_worker_drains(docket: Docket, make_worker: MakeWorker, held: Held):
    faults = behind_a_door(docket)
    execution = await docket.add(held.task(), key="k")()
    worker = make_worker()
    running = asyncio.create_task(worker.run_forever())
    await soon(held.started.wait())
    worker.stop()
    before = (await run_of(docket, key="k")).lease_until
    await faults.called("heartbeat", 3)
    after = (await run_of(docket, key="k")).lease_until
    held.release.set()
    await soon(running)
    assert before is not None
    assert after is not None
    assert after > before
    assert await execution.get_result() == "held"


# A whole worker process


async def test_run_opens_the_docket_imports_the_tasks_and_works(url: str):
    async with Docket("whole", url) as docket:
        execution = await docket.add(collections_of_tasks.second)(5)
        await soon(
            Worker.run("whole", url, name="whole", tasks=["tests.collections_of_tasks:tasks"], until_finished=True)
        )
        assert await execution.get_result() == 5
        await execution.sync()
        assert execution.worker == "whole"


async def test_run_starts_automatic_tasks(url: str):
    async with Docket("whole", url) as docket:
        await soon(Worker.run("whole", url, tasks=["tests.collections_of_tasks:automatic"], until_finished=True))
        execution = await docket.get_execution("ticking")
        assert execution is not None
        assert execution.state is ExecutionState.COMPLETED


async def test_run_imports_the_fallback(url: str):
    async with Docket("whole", url) as docket:
        execution = await docket.add(greet)()
        await soon(Worker.run("whole", url, until_finished=True, fallback_task="tests.collections_of_tasks:catch_all"))
        assert await execution.get_result() == "caught"


async def test_run_takes_an_empty_fallback_for_none(url: str):
    async with Docket("whole", url):
        await soon(Worker.run("whole", url, until_finished=True, fallback_task=""))


async def test_run_tells_of_tasks_that_cannot_be_imported(url: str):
    with pytest.raises(ImportError, match="no_such_module"):
        await Worker.run("whole", url, tasks=["no_such_module:tasks"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_and_the_handlers_are_taken_down(
    url: str, number: signal.Signals, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    async with Docket("whole", url) as docket:
        execution = await docket.add(collections_of_tasks.first)()
        running = asyncio.create_task(Worker.run("whole", url, tasks=["tests.collections_of_tasks:tasks"]))
        await soon(execution.get_result())
        os.kill(os.getpid(), number)
        await soon(running)
    assert f"Received {number.name}, initiating graceful shutdown" in caplog.text
    assert signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)
