"""Metrics: every counter counts what happened, when it has happened, under a bounded number of attributes."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dovetail import Docket, Perpetual, Retry, Worker, instrumentation
from dovetail.clock import VirtualClock
from dovetail.errors import PayloadError
from dovetail.instrumentation import TaskLabels, is_metering
from dovetail.model import NewRun, QueueCount, Settle, State, Survey
from dovetail.worker import telemetry as telemetry_module
from dovetail.worker.roster import Reason
from dovetail.worker.settler import Settler
from dovetail.worker.telemetry import Telemetry
from tests.by_hand import ByHand, at_work, finish
from tests.conftest import MakeWorker
from tests.observe.conftest import Measurements
from tests.waiting import eventually, soon

LATER = datetime.now(UTC) + timedelta(hours=1)


async def work() -> None: ...


async def fail() -> None:
    raise ValueError("no")


# Scheduling


async def test_a_call_that_was_added_is_counted_by_task(docket: Docket, measured: Measurements):
    await docket.add(work)()
    for counter in ("docket_tasks_added", "docket_tasks_scheduled"):
        ((labels, point),) = measured.of(counter)
        assert labels == {"docket.name": "tests", "docket.task": "work"}
        assert point.value == 1


async def test_a_call_whose_key_is_taken_schedules_nothing(docket: Docket, measured: Measurements):
    await docket.add_many([docket.call(work, key="k")(), docket.call(work, key="k")()])
    assert measured.count("docket_tasks_added") == 2
    assert measured.count("docket_tasks_scheduled") == 1


async def test_a_call_that_could_not_be_scheduled_is_not_counted(docket: Docket, measured: Measurements):
    async def takes(thing: object) -> None: ...

    with pytest.raises(PayloadError):
        await docket.add(takes)(object())
    assert measured.count("docket_tasks_added") == measured.count("docket_tasks_scheduled") == 0


async def test_a_call_in_a_transaction_is_counted_apart_as_it_may_be_rolled_back(
    tmp_path: Path, measured: Measurements
):
    path = tmp_path / "app.db"
    async with Docket("tests", f"sqlite:///{path}") as docket:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        await docket.add(work, connection=connection)()
        connection.execute("ROLLBACK")
        connection.close()
    assert measured.count("docket_tasks_scheduled") == 0
    assert measured.count("dovetail_tasks_enlisted", task="work") == 1


async def test_a_stricken_call_is_counted_where_it_was_stopped(docket: Docket, worker: Worker, measured: Measurements):
    await docket.add(work)()
    docket.register(work)
    await docket.strike("work")
    await docket.add(work)()
    await finish(worker)
    assert measured.count("docket_tasks_stricken", where="docket") == 1
    assert measured.count("docket_tasks_stricken", where="worker") == 1
    assert measured.count("docket_tasks_added") == 1
    assert measured.count("docket_tasks_started") == 0


async def test_strikes_in_effect_go_up_and_down(docket: Docket, measured: Measurements):
    docket.register(work)
    await docket.strike("work")
    await docket.strike_list.refresh()
    assert measured.count("docket_strikes_in_effect") == 1
    measured.read = None
    await docket.restore("work")
    await docket.strike_list.refresh()
    assert measured.count("docket_strikes_in_effect") == -1


async def test_requests_to_cancel_are_counted(docket: Docket, measured: Measurements):
    await docket.add(work, when=LATER, key="a")()
    await docket.add(work, when=LATER, key="b")()
    await docket.cancel("a")
    await docket.clear()
    assert measured.count("docket_tasks_cancelled") == 2


# Attempts


async def test_an_attempt_that_returns(docket: Docket, worker: Worker, measured: Measurements):
    await docket.add(work)()
    await finish(worker)
    labels = {"docket.name": "tests", "docket.worker": "worker", "docket.task": "work"}
    for name in ("started", "completed", "succeeded"):
        assert [(each, point.value) for each, point in measured.of(f"docket_tasks_{name}")] == [(labels, 1)]
    for name in ("duration", "punctuality"):
        ((each, point),) = measured.of(f"docket_task_{name}")
        assert each == labels
        assert point.count == 1
    assert measured.count("docket_tasks_running") == 0
    assert measured.of("docket_tasks_failed") == []


async def test_attempts_that_fail_and_go_again(docket: Docket, worker: Worker, measured: Measurements):
    async def flaky(retry: Retry = Retry(attempts=2)) -> None:
        raise ValueError

    await docket.add(flaky)()
    await finish(worker)
    assert measured.count("docket_tasks_started") == measured.count("docket_tasks_completed") == 2
    assert measured.count("docket_tasks_failed") == 2
    assert measured.count("docket_tasks_retried") == 1
    assert measured.of("docket_tasks_succeeded") == []


async def test_a_run_that_goes_on(docket: Docket, worker: Worker, measured: Measurements):
    async def tick(perpetual: Perpetual = Perpetual(every=timedelta(milliseconds=1))) -> None: ...

    await docket.add(tick, key="k")()
    await finish(worker, k=3)
    assert measured.count("docket_tasks_perpetuated", task="tick") == 3
    assert measured.count("docket_tasks_succeeded") == 3


async def test_a_run_that_is_stopped_has_ended_and_not_failed(still: Docket, by_hand: ByHand, measured: Measurements):
    started = asyncio.Event()

    async def wait() -> None:
        started.set()
        await asyncio.Event().wait()

    await still.add(wait)()
    await by_hand.attempt(stop_for=Reason.STOP, once=started)
    assert measured.count("docket_tasks_completed") == 1
    assert measured.count("docket_tasks_running") == 0
    assert measured.of("docket_tasks_failed") == measured.of("docket_tasks_succeeded") == []


async def test_a_run_that_cannot_be_read_has_failed_without_an_attempt(
    still: Docket, by_hand: ByHand, measured: Measurements
):
    still.register(work)
    await still.engine.schedule([NewRun("id", "k", "work", b"nonsense")])
    verdict = await by_hand.attempt()
    assert isinstance(verdict, Settle)
    assert measured.count("docket_tasks_failed", task="work") == 1
    assert measured.of("docket_tasks_started") == []


# Leases and the store


async def test_a_lease_that_lapsed_elsewhere_is_a_crash(
    still: Docket, clock: VirtualClock, make_worker: MakeWorker, measured: Measurements
):
    still.register(work)
    await still.add(work)()
    assert (await still.engine.claim("dead", 1, lease=timedelta(minutes=1))).claims
    clock.jump(timedelta(minutes=2))
    await finish(make_worker(still))
    assert measured.count("dovetail_crashes", worker="worker") == 1
    assert measured.count("docket_tasks_redelivered", task="work") == 1


async def test_a_run_whose_lease_was_lost_is_counted(still: Docket, by_hand: ByHand, measured: Measurements):
    started = asyncio.Event()

    async def wait() -> None:
        started.set()
        await asyncio.Event().wait()

    await still.add(wait)()
    assert await by_hand.attempt(stop_for=Reason.LOST, once=started) is None
    assert measured.count("dovetail_leases_lost") == 1


async def test_an_outcome_that_came_too_late_is_counted(still: Docket, by_hand: ByHand, measured: Measurements):
    await still.add(work)()
    claim = await by_hand.claim()
    settler = Settler(still.engine, still.clock)
    settler.telemetry = Telemetry({"docket.worker": "worker"})
    settler.put(Settle(claim.but(epoch=claim.epoch - 1), State.COMPLETED))
    settler.close()
    await settler.run()
    assert measured.count("dovetail_outcomes_fenced", worker="worker") == 1


async def test_a_requeue_that_gives_way_is_superseded(docket: Docket, worker: Worker, measured: Measurements):
    async def flaky(retry: Retry = Retry(attempts=2)) -> None:
        if retry.attempt == 1:
            await docket.replace(work, LATER, "k")()
            raise ValueError

    await docket.add(flaky, key="k")()
    async with at_work(worker):
        await eventually(lambda: measured_now(measured, "docket_tasks_superseded") > 0)
    assert measured.count("docket_tasks_superseded", where="retry", task="flaky") == 1


def measured_now(measured: Measurements, instrument: str) -> float:
    """What has been measured since it was last read."""
    measured.read = None
    return measured.count(instrument)


async def test_batches_and_the_time_they_took_are_measured(docket: Docket, worker: Worker, measured: Measurements):
    await docket.add_many([docket.call(work)() for _ in range(5)])
    await finish(worker)
    ((_, claims),) = measured.of("dovetail_claim_batch_size")
    assert claims.sum == 5
    ((_, finishes),) = measured.of("dovetail_finish_batch_size")
    assert finishes.sum == 5
    operations = {labels["dovetail.operation"] for labels, _ in measured.of("dovetail_store_duration")}
    assert operations == {"claim", "finish"}


async def test_what_is_rare_is_there_from_the_start(docket: Docket, worker: Worker, measured: Measurements):
    await docket.add(work)()
    await finish(worker)
    for counter in ("crashes", "leases_lost", "outcomes_fenced"):
        ((labels, point),) = measured.of(f"dovetail_{counter}")
        assert (labels, point.value) == ({"docket.name": "tests", "docket.worker": "worker"}, 0)


async def test_a_loop_that_was_blocked_shows(
    docket: Docket,
    worker: Worker,
    measured: Measurements,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    monkeypatch.setattr("dovetail.worker.pulse.BLOCKED_AFTER", 0.05)

    async def block() -> None:
        while "in block" not in caplog.text:
            time.sleep(0.01)
        time.sleep(0.1)

    await docket.add(block)()
    await finish(worker)
    ((_, lag),) = measured.of("dovetail_event_loop_lag")
    assert lag.max >= 0.15


# The docket at a glance


async def test_depths_and_ages_are_told_by_a_worker(docket: Docket, worker: Worker, measured: Measurements):
    await docket.add(work, when=LATER)()
    await docket.add(work, when=LATER)()
    await docket.pause("mail")
    await docket.add(work, queue="mail", when=datetime.now(UTC) - timedelta(minutes=5))()
    async with at_work(worker):
        # A gauge keeps its last value, which may be another test's.
        await eventually(lambda: measured_now(measured, "docket_schedule_depth") == 2)
    labels = {"docket.name": "tests"}
    assert [(each, point.value) for each, point in measured.of("docket_queue_depth")] == [(labels, 1)]
    ages = {each["docket.queue"]: point.value for each, point in measured.of("dovetail_oldest_queued_age")}
    assert 300 <= ages["mail"] < 400
    assert ages.get("default", 0) == 0


async def test_when_the_worker_has_ended_the_gauges_say_that_nothing_is_left(
    docket: Docket, make_worker: MakeWorker, measured: Measurements
):
    docket.heartbeat_interval = timedelta(minutes=1)  # after the first look there is no other
    await docket.add_many([docket.call(work, queue="many")() for _ in range(5)])
    await finish(make_worker())
    assert [point.value for _, point in measured.of("docket_queue_depth")] == [0]
    ages = {each["docket.queue"]: point.value for each, point in measured.of("dovetail_oldest_queued_age")}
    assert ages.get("many", 0) == 0


async def test_what_is_due_is_counted_also_while_every_worker_is_full(
    docket: Docket, make_worker: MakeWorker, measured: Measurements
):
    started, go_on = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        started.set()
        await go_on.wait()

    async with at_work(make_worker(concurrency=1)):
        await docket.add(wait)()
        await soon(started.wait())
        await docket.add(work, when=datetime.now(UTC) + timedelta(milliseconds=20))()
        await eventually(lambda: measured_now(measured, "docket_queue_depth") == 1)
        go_on.set()


def test_queues_that_are_one_too_many_are_told_of_together(measured: Measurements, monkeypatch: pytest.MonkeyPatch):
    def waiting(**minutes: int) -> Survey:
        now = datetime.now(UTC)
        due = {queue: now - timedelta(minutes=each) for queue, each in minutes.items()}
        return Survey(now, [QueueCount(queue, State.QUEUED, 1, since) for queue, since in due.items()], [])

    monkeypatch.setattr(telemetry_module, "MOST_QUEUES", 2)
    telemetry = Telemetry({"docket.name": "tests"})
    telemetry.surveyed(waiting(a=1, b=2, c=3, d=4))
    telemetry.surveyed(waiting(b=1, c=5))
    ages = {labels["docket.queue"]: point.value for labels, point in measured.of("dovetail_oldest_queued_age")}
    # A gauge keeps its last value, which may be of a queue of another test.
    assert (ages["a"], ages["b"], ages["(others)"]) == (0, 60, 300)
    assert not {"c", "d"} & ages.keys()


async def test_nobody_is_asked_unless_somebody_measures(docket: Docket, worker: Worker):
    asked: list[None] = []
    survey = docket.engine.survey

    async def overheard():
        asked.append(None)
        return await survey()

    docket.engine.survey = overheard  # type: ignore[method-assign]
    await docket.add(work)()
    await finish(worker)
    assert not is_metering()
    assert asked == []


# The module


def test_the_names_of_docket_are_there():
    for name in (
        "TASKS_ADDED", "TASKS_REPLACED", "TASKS_SCHEDULED", "TASKS_CANCELLED", "TASKS_STARTED", "TASKS_REDELIVERED",
        "TASKS_STRICKEN", "TASKS_SUPERSEDED", "TASKS_COMPLETED", "TASKS_FAILED", "TASKS_SUCCEEDED", "TASKS_RETRIED",
        "TASKS_PERPETUATED", "TASK_DURATION", "TASK_PUNCTUALITY", "TASKS_RUNNING", "REDIS_DISRUPTIONS",
        "STRIKES_IN_EFFECT", "QUEUE_DEPTH", "SCHEDULE_DEPTH", "CACHE_SIZE", "meter", "Message", "MessageGetter",
        "MessageSetter", "message_getter", "message_setter", "healthcheck_server", "metrics_server",
    ):  # fmt: skip
        assert getattr(instrumentation, name) is not None
    assert all(hasattr(instrumentation, name) for name in instrumentation.__all__)


def test_trace_context_in_messages_of_bytes():
    message: dict[bytes, bytes] = {}
    instrumentation.message_setter.set(message, "traceparent", "00-1-2-01")
    assert message == {b"traceparent": b"00-1-2-01"}
    assert instrumentation.message_getter.get(message, "traceparent") == ["00-1-2-01"]
    assert instrumentation.message_getter.get(message, "baggage") is None
    assert instrumentation.message_getter.keys(message) == ["traceparent"]


def test_labels_are_put_together_once_and_for_so_many_tasks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(TaskLabels, "MOST", 1)
    labels = TaskLabels({"docket.name": "tests"})
    assert labels["a"] is labels["a"]
    assert labels["b"] == {"docket.name": "tests", "docket.task": "b"}
    assert list(labels) == ["a"]


# Schedules


async def test_runs_of_a_schedule_are_counted_and_its_ticks_are_not(
    clock: VirtualClock, still: Docket, measured: Measurements
):
    await still.schedules.add("often", work, every=timedelta(minutes=1))()
    async with Worker(still, name="w1") as worker:
        working = asyncio.create_task(worker.run_forever())
        await clock.advance(timedelta(minutes=2, seconds=30))
        worker.stop()
        await working
    Telemetry({"docket.name": "tests"}).surveyed(await still.engine.survey())
    ((labels, scheduled),) = measured.of("docket_tasks_scheduled")
    assert (labels, scheduled.value) == ({"docket.name": "tests", "docket.task": "work"}, 2)
    assert measured.count("docket_tasks_started", task="work") == 2
    assert [labels["docket.task"] for labels, _ in measured.of("docket_tasks_started")] == ["work"]
    assert [point.value for _, point in measured.of("docket_schedule_depth")] == [0]
    assert "dovetail.schedules" not in [
        labels["docket.queue"] for labels, _ in measured.of("dovetail_oldest_queued_age")
    ]
