"""What docket's users import and call is there under `dovetail`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import pytest
from cronsim import CronSimError

from dovetail import Cron, Disposition, Docket, Execution, ExecutionState, Worker
from dovetail.dependencies import format_duration
from dovetail.errors import InvalidArgument
from dovetail.execution import schedule_many
from dovetail.worker import default_fallback_task
from tests.by_hand import finish
from tests.waiting import soon

NAMES = {
    "dovetail": "Agenda CallArgument ConcurrencyLimit Cooldown Cron CurrentDocket CurrentExecution CurrentWorker"
    " CycleError Debounce Depends Disposition Docket Execution ExecutionCancelled ExecutionState ExponentialRetry"
    " Logged Perpetual Progress RateLimit Retry Shared StrikeList TaskArgument TaskCall TaskKey TaskLogger Timeout"
    " Worker testing",
    "dovetail.agenda": "Agenda",
    "dovetail.annotations": "Annotation Logged",
    "dovetail.cli": "app",
    "dovetail.dependencies": "AdmissionBlocked CompletionHandler ConcurrencyBlocked Dependency DependencyFunction"
    " FailedDependency FailureHandler ForcedRetry Runtime SharedContext TaskOutcome current_docket current_execution"
    " current_worker format_duration get_annotation_dependencies get_dependency_parameters"
    " get_single_dependency_of_type get_single_dependency_parameter_of_type resolved_dependencies"
    " validate_dependencies",
    "dovetail.docket": "Docket DocketSnapshot RunningExecution WorkerInfo",
    "dovetail.execution": "Disposition Execution ExecutionCancelled ExecutionProgress ExecutionState ProgressEvent"
    " StateEvent TaskCall TaskFunction compact_signature get_signature schedule_many",
    "dovetail.instrumentation": "TASKS_ADDED TASK_DURATION QUEUE_DEPTH healthcheck_server metrics_server",
    "dovetail.strikelist": "LiteralOperator Operator Restore Strike StrikeInstruction StrikeList",
    "dovetail.tasks": "fail sleep standard_tasks trace",
    "dovetail.testing": "assert_no_tasks assert_task_count assert_task_not_scheduled assert_task_scheduled",
    "dovetail.worker": "MESSAGE_BATCH Worker default_fallback_task",
}


@pytest.mark.parametrize("module", NAMES)
def test_the_names_of_docket_are_where_they_were(module: str):
    imported = importlib.import_module(module)
    assert [name for name in NAMES[module].split() if not hasattr(imported, name)] == []


async def noop() -> None: ...


@pytest.mark.parametrize("expression", ["every tuesday", "* * *", "60 * * * *", "0 0 31 2 *", "@reboot"])
def test_an_expression_that_cannot_be_is_an_error_of_cronsim_too(expression: str):
    with pytest.raises(CronSimError) as caught:
        Cron(expression)
    assert isinstance(caught.value, InvalidArgument)


def shortly() -> datetime:
    return datetime.now(UTC) + timedelta(milliseconds=10)


class Impatient(Cron):
    def next_time(self) -> datetime:  # pyright: ignore[reportIncompatibleMethodOverride]  # as docket declares it
        return shortly()


async def test_a_subclass_of_cron_may_override_next_time_as_docket_declares_it(docket: Docket, worker: Worker):
    runs: list[str] = []

    async def report(cron: Cron = Impatient("0 9 1 1 *")) -> None:
        runs.append(cron.expression)

    docket.register(report)
    await soon(worker.run_at_most({"report": 2}))
    assert runs == ["0 9 1 1 *"] * 2


async def test_a_test_may_put_another_next_time_in_place(docket: Docket, worker: Worker):
    runs: list[str] = []

    async def report(cron: Cron = Cron("0 9 1 1 *")) -> None:
        runs.append(cron.expression)

    docket.register(report)
    with patch.object(Cron, "next_time", side_effect=shortly):
        await soon(worker.run_at_most({"report": 2}))
    assert runs == ["0 9 1 1 *"] * 2


def test_a_duration_is_formatted_from_seconds():
    assert format_duration(0.25) == "   250ms"


async def test_the_fallback_that_drops_says_so_in_the_words_of_docket(
    docket: Docket, make_worker: Callable[..., Worker], caplog: pytest.LogCaptureFixture
):
    execution = await docket.add(noop)()
    del docket.tasks["noop"]
    async with make_worker(fallback_task=default_fallback_task) as worker:
        await finish(worker)
    assert "Unknown task 'noop' received - dropping" in caplog.text
    await execution.sync()
    assert execution.state is ExecutionState.COMPLETED


async def test_ready_made_executions_are_put_down_together(docket: Docket):
    later = datetime(2040, 1, 1, tzinfo=UTC)
    executions = [Execution(docket, noop, (), {}, key, later) for key in ("a", "b", "a")]
    await schedule_many(None, executions, replace=False)
    assert [each.disposition for each in executions] == [
        Disposition.SCHEDULED, Disposition.SCHEDULED, Disposition.ALREADY_SCHEDULED,
    ]  # fmt: skip
    await schedule_many(None, executions, replace=True)
    assert {each.disposition for each in executions} == {Disposition.SCHEDULED}


async def test_a_chunk_holds_something():
    with pytest.raises(InvalidArgument, match="chunk_size"):
        await schedule_many(None, [], replace=False, chunk_size=0)
