"""Tasks in processes of their own: what they are given, how they end, and how they are ended."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dovetail import Docket, Execution, ExecutionCancelled, ExecutionFailed, PayloadError, Worker
from dovetail.model import Run, State
from tests import abroad
from tests.by_hand import run_of
from tests.waiting import PATIENCE, eventually, is_gone

SOON = timedelta(seconds=PATIENCE)
MakeWorker = Callable[..., Worker]


@asynccontextmanager
async def at_work(worker: Worker) -> AsyncIterator[Worker]:
    async with worker:
        working = asyncio.create_task(worker.run_forever())
        try:
            yield worker
        finally:
            worker.stop()
            worker.stop()
            await working


@pytest.fixture
async def working(worker: Worker) -> AsyncIterator[Worker]:
    async with at_work(worker):
        yield worker


async def written(path: Path) -> int:
    """The process that a task says it is."""
    return int(await eventually(lambda: path.exists() and path.read_text()))


async def ended(docket: Docket, execution: Execution[Any]) -> Run:
    await eventually_over(execution)
    return await run_of(docket, id=execution.id)


async def eventually_over(execution: Execution[Any]) -> None:
    try:
        await execution.get_result(timeout=SOON)
    except (ExecutionFailed, ExecutionCancelled):
        return


# What they are given, and what they give


async def test_the_body_runs_in_another_process_and_its_result_comes_back(docket: Docket, working: Worker):
    assert await (await docket.add(abroad.add)(2, b=40)).get_result(timeout=SOON) == 42
    assert await (await docket.add(abroad.whoami)()).get_result(timeout=SOON) != os.getpid()


async def test_a_process_is_used_again(docket: Docket, working: Worker):
    first = await (await docket.add(abroad.whoami)()).get_result(timeout=SOON)
    assert await (await docket.add(abroad.whoami)()).get_result(timeout=SOON) == first
    assert list(await (await docket.add(abroad.whoami_async)()).get_result(timeout=SOON)) == [first, True]


async def test_dependencies_are_resolved_in_the_process(docket: Docket, working: Worker):
    execution = await docket.add(abroad.ask, key="question")(5)
    assert await execution.get_result(timeout=SOON) == [
        "plain", "awaited 5", "entered", "async entered", "question", 5, 1, "running",
    ]  # fmt: skip


async def test_what_is_shared_is_shared_by_the_runs_of_a_process(docket: Docket, working: Worker):
    first, second = [await (await docket.add(abroad.share)()).get_result(timeout=SOON) for _ in range(2)]
    assert list(first) == list(second)


async def test_there_is_no_docket_in_the_process(docket: Docket, working: Worker):
    with pytest.raises(ExecutionFailed, match="has no docket"):
        await (await docket.add(abroad.use_the_docket)()).get_result(timeout=SOON)


async def test_what_is_logged_there_reaches_the_handlers_here(
    docket: Docket, working: Worker, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.INFO):
        await (await docket.add(abroad.speak, key="speech")()).get_result(timeout=SOON)
    said = {record.getMessage().partition("\n")[0]: record for record in caplog.records if "task" in record.name}
    assert set(said) == {"from afar", "it went wrong"}
    assert vars(said["from afar"])["docket.key"] == "speech"
    assert "ValueError: in the log" in said["it went wrong"].getMessage()


async def test_a_result_that_cannot_be_sent_does_not_undo_the_run(docket: Docket, working: Worker):
    execution = await docket.add(abroad.unsendable)()
    with pytest.raises(PayloadError, match="cannot be sent"):
        await execution.get_result(timeout=SOON)
    assert (await run_of(docket, id=execution.id)).state is State.COMPLETED


# What they raise


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("value", "ValueError", "no good"),
        ("own", "Own", "a text"),
        ("misshapen", "Misshapen", "this and that"),
        ("exit", "SystemExit", "3"),
        ("fail", "Fail", "for good"),
    ],
)
async def test_an_exception_arrives_with_its_type_message_and_traceback(
    docket: Docket, working: Worker, kind: str, name: str, message: str
):
    run = await ended(docket, await docket.add(abroad.fail)(kind))
    assert (run.state, run.crashes) == (State.FAILED, 0)
    (error,) = run.errors
    assert (error.failure.type, error.failure.message) == (name, message)
    assert "in fail\n" in error.failure.traceback


# Behaviors


async def test_a_retry_that_the_body_asks_for(docket: Docket, working: Worker):
    assert await (await docket.add(abroad.try_again)()).get_result(timeout=SOON) == 3


async def test_an_exception_that_cannot_be_pickled_is_tried_again_by_its_built_in_type(docket: Docket, working: Worker):
    assert await (await docket.add(abroad.fails_at_times)()).get_result(timeout=SOON) == 2


async def test_a_perpetual_task_says_what_comes_next(docket: Docket, worker: Worker):
    await docket.add(abroad.go_on, key="chain")(1)
    await worker.run_until_finished()
    run = await run_of(docket, key="chain")
    execution = await docket.get_execution("chain")
    assert execution is not None
    assert (run.state, await execution.get_result(timeout=SOON)) == (State.COMPLETED, 3)


async def test_progress_is_reported_while_the_body_runs(docket: Docket, working: Worker, tmp_path: Path):
    execution = await docket.add(abroad.advance)(str(tmp_path / "gate"))
    progress = execution.progress

    async def is_there() -> bool:
        await progress.sync()
        return (progress.current, progress.total, progress.message) == (3, 7, "three")

    await eventually(is_there)
    (tmp_path / "gate").touch()
    await execution.get_result(timeout=SOON)


async def test_a_body_may_take_more_time(docket: Docket, working: Worker):
    assert 0 < await (await docket.add(abroad.take_longer)()).get_result(timeout=SOON) <= 5


async def test_the_time_of_a_body_begins_when_its_process_and_its_dependencies_are_there(
    docket: Docket, working: Worker
):
    assert await (await docket.add(abroad.use_what_was_slow)()).get_result(timeout=SOON) == "made"


# Dying


@pytest.mark.parametrize(
    ("task", "arguments", "said"),
    [
        (abroad.segfault, (), "was killed by SIGSEGV"),
        (abroad.leave, (7,), "exit code 7"),
        (abroad.close_everything, (), "ended by itself with exit code"),
    ],
)
async def test_a_body_that_kills_its_process_is_poisoned_in_the_end_and_harms_nobody(
    docket: Docket, working: Worker, tmp_path: Path, task: Any, arguments: tuple[int, ...], said: str
):
    bystander = await docket.add(abroad.wait_for)(str(tmp_path / "gate"))
    run = await ended(docket, await docket.add(task)(*arguments))
    assert (run.state, run.crashes, run.attempt) == (State.FAILED, 3, 1)
    assert [each.failure.type for each in run.errors] == ["ProcessDied", "ProcessDied", "Poisoned"]
    assert all(said in each.failure.message for each in run.errors)
    (tmp_path / "gate").touch()
    await bystander.get_result(timeout=SOON)
    assert (await run_of(docket, id=bystander.id)).crashes == 0


async def test_a_run_whose_process_was_killed_goes_again_at_no_cost(docket: Docket, working: Worker, tmp_path: Path):
    execution = await docket.add(abroad.stumble)(str(tmp_path / "once"))
    await execution.get_result(timeout=SOON)
    run = await run_of(docket, id=execution.id)
    assert (run.state, run.crashes, run.attempt) == (State.COMPLETED, 1, 1)
    assert "SIGKILL" in run.errors[0].failure.message


async def test_a_process_that_died_while_it_was_idle_is_replaced(docket: Docket, working: Worker):
    pid = await (await docket.add(abroad.whoami)()).get_result(timeout=SOON)
    os.kill(pid, signal.SIGKILL)
    execution = await docket.add(abroad.whoami)()
    assert await execution.get_result(timeout=SOON) != pid
    assert (await run_of(docket, id=execution.id)).crashes == 0


# Being ended


@pytest.mark.parametrize("task", [abroad.spin, abroad.spin_in_c])
async def test_a_timeout_ends_the_process_of_a_body_that_never_returns(docket: Docket, working: Worker, task: Any):
    pid = await (await docket.add(abroad.whoami)()).get_result(timeout=SOON)
    run = await ended(docket, await docket.add(task)())
    assert (run.state, run.crashes) == (State.FAILED, 0)
    assert "exceeded timeout" in (run.error or "")
    assert is_gone(pid)


@pytest.mark.parametrize("task", [abroad.sleep_tidily, abroad.sleep_tidily_async, abroad.spin_for_ever])
async def test_a_cancelled_body_is_gone_before_the_run_is_cancelled(
    docket: Docket, working: Worker, tmp_path: Path, task: Any
):
    execution = await docket.add(task)(str(tmp_path / "pid"))
    pid = await written(tmp_path / "pid")
    await docket.cancel(execution.key)
    run = await ended(docket, execution)
    assert (run.state, run.error) == (State.CANCELLED, None)
    assert is_gone(pid)
    assert (tmp_path / "pid.tidied").exists() == (task is not abroad.spin_for_ever)


async def test_a_worker_that_is_out_of_time_ends_the_body_and_hands_the_run_back(
    docket: Docket, make_worker: MakeWorker, tmp_path: Path
):
    execution = await docket.add(abroad.spin_for_ever)(str(tmp_path / "pid"))
    async with at_work(make_worker(shutdown_grace=timedelta())):
        pid = await written(tmp_path / "pid")
    assert is_gone(pid)
    run = await run_of(docket, id=execution.id)
    assert (run.state, run.attempt, run.crashes) == (State.QUEUED, 1, 0)


async def test_no_process_outlives_its_worker(docket: Docket, worker: Worker):
    async with at_work(worker):
        pid = await (await docket.add(abroad.whoami)()).get_result(timeout=SOON)
    assert is_gone(pid)


async def test_signals_to_the_whole_service_are_left_to_the_worker(docket: Docket, working: Worker, tmp_path: Path):
    pid = await (await docket.add(abroad.whoami)()).get_result(timeout=SOON)
    execution = await docket.add(abroad.wait_for)(str(tmp_path / "gate"))
    os.kill(pid, signal.SIGTERM)
    os.kill(pid, signal.SIGINT)
    (tmp_path / "gate").touch()
    assert await execution.get_result(timeout=SOON) == pid
