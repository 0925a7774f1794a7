"""What is counted is what has happened, whichever way runs end, however many there are, and on every store."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dovetail import (
    ConcurrencyLimit,
    Cooldown,
    Docket,
    ExponentialRetry,
    Perpetual,
    Progress,
    Retry,
    Timeout,
    Worker,
    instrumentation,
)
from dovetail.clock import VirtualClock
from dovetail.instrumentation import is_metering
from dovetail.model import Claim, Failure, Finished, Requeue, Settle, State
from dovetail.worker.counts import Gathering
from dovetail.worker.roster import Reason
from dovetail.worker.telemetry import Telemetry
from tests.by_hand import ByHand, at_work, finish
from tests.conftest import MakeWorker
from tests.observe.conftest import Measurements, cancel_one
from tests.waiting import eventually, soon

ATTEMPTS = ("started", "completed", "succeeded", "failed", "retried", "redelivered", "perpetuated")


def attempts(measured: Measurements, **labels: str) -> dict[str, float]:
    """What has been counted of attempts, without what has not."""
    counts = {name: measured.count(f"docket_tasks_{name}", **labels) for name in ATTEMPTS}
    return {name: count for name, count in counts.items() if count}


def has_ended_well(measured: Measurements) -> bool:
    """Whether no attempt is under way any more, and each was measured once."""
    ended = measured.count("docket_tasks_completed")
    return (
        measured.count("docket_tasks_running") == 0
        and measured.count("docket_task_duration") == ended
        and measured.count("docket_task_punctuality") == measured.count("docket_tasks_started") == ended
    )


async def work() -> None: ...


async def test_many_runs_are_counted_to_the_last(docket: Docket, make_worker: MakeWorker, measured: Measurements):
    async def blink(number: int) -> None:
        await asyncio.sleep(0.001 * (number % 3))

    await docket.add_many([docket.call(blink)(number) for number in range(150)])
    await docket.add_many([docket.call(work)() for _ in range(150)])
    await finish(make_worker(concurrency=25))
    for task in ("blink", "work"):
        assert attempts(measured, task=task) == {"started": 150, "completed": 150, "succeeded": 150}
    assert measured.count("docket_tasks_added") == measured.count("docket_tasks_scheduled") == 300
    assert has_ended_well(measured)


async def test_many_counts_are_few_additions(
    docket: Docket, make_worker: MakeWorker, measured: Measurements, monkeypatch: pytest.MonkeyPatch
):
    added: list[int] = []
    real = instrumentation.TASKS_STARTED.add

    def add(amount: int, *args: Any) -> None:
        added.append(amount)
        real(amount, *args)

    monkeypatch.setattr(instrumentation.TASKS_STARTED, "add", add)
    await docket.add_many([docket.call(work)() for _ in range(300)])
    await finish(make_worker(concurrency=50))
    assert sum(added) == 300
    assert len(added) < 150


async def test_a_long_run_is_seen_while_it_runs(docket: Docket, worker: Worker, measured: Measurements):
    go_on = asyncio.Event()

    async def wait() -> None:
        await go_on.wait()

    def running() -> float:
        measured.read = None
        return measured.count("docket_tasks_running")

    async with at_work(worker):
        await docket.add(wait)()
        await eventually(lambda: running() == 1)
        go_on.set()
        await eventually(lambda: running() == -1)  # since it was last looked at


async def test_workers_count_each_their_own(docket: Docket, make_worker: MakeWorker, measured: Measurements):
    await docket.add_many([docket.call(asyncio.sleep)(0.01) for _ in range(40)])
    workers = [make_worker(name=name, concurrency=2) for name in ("w1", "w2")]
    await asyncio.gather(*map(finish, workers))
    mine, others = (attempts(measured, worker=name) for name in ("w1", "w2"))
    assert mine["succeeded"] + others["succeeded"] == 40
    assert attempts(measured) == {"started": 40, "completed": 40, "succeeded": 40}
    assert has_ended_well(measured)


async def test_dockets_of_one_process_are_counted_apart(
    url: str, docket: Docket, make_worker: MakeWorker, measured: Measurements
):
    async with Docket("others", url) as other:
        await docket.add(work)()
        await other.add_many([other.call(work)() for _ in range(2)])
        await asyncio.gather(finish(make_worker()), finish(make_worker(other, name="w2")))
    assert attempts(measured, name="tests", worker="worker")["succeeded"] == 1
    assert attempts(measured, name="others", worker="w2")["succeeded"] == 2
    assert measured.count("docket_tasks_scheduled", name="others") == 2


# Ways to end


async def test_a_run_that_takes_too_long_has_failed(docket: Docket, worker: Worker, measured: Measurements):
    async def slow(timeout: Timeout = Timeout(timedelta(milliseconds=20))) -> None:
        await asyncio.sleep(10)

    await docket.add(slow)()
    await finish(worker)
    assert attempts(measured) == {"started": 1, "completed": 1, "failed": 1}
    assert has_ended_well(measured)


async def test_retries_are_counted_by_attempt_and_so_is_what_becomes_of_them(
    docket: Docket, worker: Worker, measured: Measurements
):
    async def flaky(retry: Retry = ExponentialRetry(attempts=3, minimum_delay=timedelta(milliseconds=1))) -> None:
        if retry.attempt < 3:
            raise ValueError

    await docket.add(flaky)()
    await finish(worker)
    assert attempts(measured) == {"started": 3, "completed": 3, "succeeded": 1, "failed": 2, "retried": 2}
    assert has_ended_well(measured)


async def test_a_run_that_was_cancelled_has_ended_and_nothing_else(
    docket: Docket, worker: Worker, measured: Measurements
):
    await cancel_one(docket, worker)
    assert attempts(measured) == {"started": 1, "completed": 1}
    assert measured.count("docket_tasks_cancelled") == 1
    assert has_ended_well(measured)


async def test_a_run_that_is_handed_back_has_ended_and_begins_again(
    docket: Docket, make_worker: MakeWorker, measured: Measurements
):
    started = asyncio.Event()

    async def wait() -> None:
        if not started.is_set():
            started.set()
            await asyncio.Event().wait()

    await docket.add(wait)()
    async with at_work(hasty := make_worker(shutdown_grace=timedelta())):
        await soon(started.wait())
        hasty.stop()
    await finish(make_worker(name="next"))
    assert attempts(measured, worker="worker") == {"started": 1, "completed": 1}
    assert attempts(measured, worker="next") == {"started": 1, "completed": 1, "succeeded": 1}
    assert has_ended_well(measured)


async def test_a_run_that_is_stopped_once_its_body_is_over_has_completed(
    still: Docket, by_hand: ByHand, measured: Measurements
):
    concluding = asyncio.Event()
    written: list[Any] = []

    async def report(reports: Any) -> Any:
        if written:  # the first is written at once, the others when the body is over
            concluding.set()
            await asyncio.Event().wait()
        written.append(reports)

    async def count(progress: Progress = Progress()) -> None:
        await progress.increment()
        await progress.increment()

    still.engine.report = report  # type: ignore[method-assign]
    await still.add(count)()
    verdict = await by_hand.attempt(stop_for=Reason.STOP, once=concluding)
    assert isinstance(verdict, Settle)
    assert verdict.state is State.COMPLETED
    assert has_ended_well(measured)


async def test_functions_in_threads_are_counted_like_any_other(docket: Docket, worker: Worker, measured: Measurements):
    def compute(number: int) -> int:
        return 1 // number

    await docket.add_many([docket.call(compute)(number) for number in (0, 1, 2)])
    await finish(worker)
    assert attempts(measured) == {"started": 3, "completed": 3, "succeeded": 2, "failed": 1}
    assert has_ended_well(measured)


async def test_what_a_limit_turns_away_has_not_started(docket: Docket, worker: Worker, measured: Measurements):
    async def rare(cooldown: Cooldown = Cooldown(timedelta(hours=1))) -> None: ...

    async def single(limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> None:
        await asyncio.sleep(0.005)

    await docket.add_many([docket.call(rare)() for _ in range(3)])
    await docket.add_many([docket.call(single)() for _ in range(3)])
    await finish(worker)
    assert attempts(measured, task="rare") == {"started": 1, "completed": 1, "succeeded": 1}
    assert attempts(measured, task="single") == {"started": 3, "completed": 3, "succeeded": 3}
    assert has_ended_well(measured)


async def test_a_perpetual_task_is_scheduled_anew_each_time(docket: Docket, worker: Worker, measured: Measurements):
    async def tick(perpetual: Perpetual = Perpetual(every=timedelta(milliseconds=1))) -> None: ...

    await docket.add(tick, key="k")()
    await finish(worker, k=3)
    assert attempts(measured) == {"started": 3, "completed": 3, "succeeded": 3, "perpetuated": 3}


# Crashes


LEASE = timedelta(seconds=30)


async def vanish(docket: Docket, clock: VirtualClock) -> None:
    """A worker claims what is there, and is never heard of again."""
    await docket.engine.claim("doomed", 10, lease=LEASE)
    clock.jump(LEASE * 2)


async def test_a_crash_is_one_crash_however_often_its_run_goes_again(
    still: Docket, clock: VirtualClock, measured: Measurements
):
    telemetry = Telemetry({"docket.name": "tests", "docket.worker": "worker"})
    await still.add(work)()
    await vanish(still, clock)
    for _ in range(3):
        claimed = await still.engine.claim("worker", 10, lease=LEASE)
        telemetry.claimed(claimed, 0.1)
        await still.engine.finish([Requeue(claim, claim.attempt + 1) for claim in claimed.claims])
    assert measured.count("dovetail_crashes", worker="worker") == 1


async def test_a_run_that_crashed_too_often_has_failed(
    still: Docket, clock: VirtualClock, measured: Measurements, caplog: pytest.LogCaptureFixture
):
    await still.add(work)()
    for _ in range(3):
        await vanish(still, clock)
    await finish(Worker(still, name="worker"))
    assert measured.count("dovetail_tasks_poisoned", task="work", worker="worker") == 1
    assert measured.count("docket_tasks_failed", task="work", worker="worker") == 1
    assert measured.count("dovetail_crashes", worker="worker") == 1, "the two before were seen by the doomed"
    assert measured.count("docket_tasks_started") == 0
    assert "a run of 'work' has crashed its workers too often, and has failed as poisoned" in caplog.messages


async def test_processes_that_die_are_crashes_too(still: Docket, by_hand: ByHand, measured: Measurements):
    telemetry = Telemetry({"docket.name": "tests", "docket.worker": "worker"})
    await still.add(work)()
    for _ in range(3):
        claim = await by_hand.claim()
        verdicts = [died(claim)]
        telemetry.finished(verdicts, await still.engine.finish(verdicts), 0.1)
    assert measured.count("dovetail_crashes") == 3
    assert measured.count("dovetail_tasks_poisoned", task="work") == 1


def died(claim: Claim) -> Requeue:
    return Requeue(claim, claim.attempt, failure=Failure("ProcessDied", "killed"), crashed=True)


def test_a_crash_that_was_not_taken_down_is_not_counted(measured: Measurements):
    claim = Claim("id", 1, "key", "work", b"", 1, datetime.now(UTC), crashes=2)
    Telemetry().finished([died(claim)], [Finished.FENCED], 0.1)
    assert measured.count("dovetail_crashes") == measured.count("dovetail_tasks_poisoned") == 0


# Without an SDK


async def test_a_test_may_put_its_own_in_the_place_of_an_instrument_s_method(
    docket: Docket, worker: Worker, monkeypatch: pytest.MonkeyPatch
):
    """As docket's own tests do, without any provider."""
    assert not is_metering()
    counted: list[tuple[int, Any]] = []
    monkeypatch.setattr(instrumentation.TASKS_STARTED, "add", lambda *args: counted.append(args))
    await docket.add(work)()
    await finish(worker)
    assert counted == [(1, {"docket.name": "tests", "docket.worker": "worker", "docket.task": "work"})]


async def test_where_nobody_listens_nothing_is_put_together(
    docket: Docket, worker: Worker, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Gathering, "added", lambda self: pytest.fail("nobody listens"))
    execution = await docket.add(work)()
    await finish(worker)
    await execution.sync()
    assert execution.state is State.COMPLETED
