"""The standard tasks: to try out a set-up, and to see it fail."""

import logging

import pytest

from dovetail import Docket, ExecutionState, Worker
from dovetail.tasks.standard import fail, sleep, standard_tasks, trace
from tests.by_hand import finish


def test_there_are_three():
    assert standard_tasks == [trace, fail, sleep]


async def test_trace_logs_a_message_with_its_key(docket: Docket, worker: Worker, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO):
        await docket.add(trace, key="k")("here I am")
        await finish(worker)
    (record,) = [record for record in caplog.records if record.name == "dovetail.task.trace"]
    assert "here I am" in record.getMessage()
    assert "'k'" in record.getMessage()


async def test_fail_fails_twice(docket: Docket, worker: Worker):
    execution = await docket.add("fail", key="k")("on purpose")
    await finish(worker)
    await execution.sync()
    assert execution.state is ExecutionState.FAILED
    assert execution.error is not None
    assert "on purpose" in execution.error
    assert "attempt 2" in execution.error


async def test_sleep_takes_its_time(docket: Docket, worker: Worker, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO):
        execution = await docket.add(sleep)(0.01)
        await finish(worker)
    await execution.sync()
    assert execution.state is ExecutionState.COMPLETED
    assert "Sleeping for 0.01 seconds" in caplog.text
