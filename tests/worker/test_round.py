"""One round of a worker: what is due is run, and the worker says how much that was."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dovetail import Docket, Perpetual, Retry, Worker
from dovetail.clock import VirtualClock
from dovetail.errors import InvalidArgument
from dovetail.worker.round import NEXT_ROUND
from tests.conftest import MakeWorker

HOUR = timedelta(hours=1)


async def work(number: int = 0) -> None: ...


async def fail(retry: Retry = Retry(attempts=3)) -> None:
    raise ValueError


async def fail_for_now(retry: Retry = Retry(attempts=3, delay=HOUR)) -> None:
    raise ValueError


async def go_on(perpetual: Perpetual = Perpetual()) -> None: ...


async def test_what_is_due_is_run_and_counted(docket: Docket, worker: Worker) -> None:
    await docket.add_many([docket.call(work)(number) for number in range(25)])
    assert await worker.run_once() == 25
    assert (await docket.snapshot()).total_tasks == 0


async def test_with_nothing_due_it_ends_at_once(docket: Docket, worker: Worker) -> None:
    assert await worker.run_once() == 0


async def test_what_is_due_later_is_left(docket: Docket, worker: Worker) -> None:
    await docket.add(work)()
    later = await docket.add(work, when=datetime.now(UTC) + HOUR)()
    assert await worker.run_once() == 1
    await later.sync()
    assert later.state == "scheduled"


async def test_what_a_run_adds_for_now_is_run_too(docket: Docket, worker: Worker) -> None:
    async def parent(generations: int) -> None:
        if generations:
            await docket.add(parent)(generations - 1)

    await docket.add(parent)(4)
    assert await worker.run_once() == 5


async def test_a_retry_that_is_due_counts_again(docket: Docket, worker: Worker) -> None:
    execution = await docket.add(fail)()
    assert await worker.run_once() == 3
    await execution.sync()
    assert execution.state == "failed"


async def test_a_retry_that_is_due_later_is_left(docket: Docket, worker: Worker) -> None:
    execution = await docket.add(fail_for_now)()
    assert await worker.run_once() == 1
    await execution.sync()
    assert (execution.state, execution.attempt) == ("scheduled", 2)


async def test_a_perpetual_task_has_one_turn(still: Docket, clock: VirtualClock, make_worker: MakeWorker) -> None:
    await still.add(go_on, key="on")()
    assert await make_worker(still).run_once() == 1
    execution = await still.get_execution("on")
    assert execution is not None
    assert (execution.state, execution.attempt) == ("scheduled", 1)
    clock.jump(NEXT_ROUND)
    assert await make_worker(still).run_once() == 1


async def test_other_work_is_done_whatever_goes_on_for_ever(docket: Docket, make_worker: MakeWorker) -> None:
    await docket.add(go_on, key="on")()
    await docket.add_many([docket.call(work)(number) for number in range(10)])
    assert await make_worker(concurrency=1).run_once() == 11


async def test_what_cannot_start_here_is_not_counted(docket: Docket, worker: Worker) -> None:
    await docket.add(work)()
    execution = await docket.add(fail)()
    del docket.tasks["fail"]
    assert await worker.run_once() == 1
    await execution.sync()
    assert (execution.state, execution.attempt) == ("scheduled", 1)


async def test_what_is_stricken_is_not_counted(docket: Docket, worker: Worker) -> None:
    await docket.add(work)(1)
    await docket.add(work)(2)
    await docket.strike(work, "number", "==", 2)
    assert await worker.run_once() == 1


async def test_only_the_queues_of_the_worker_are_taken(docket: Docket, make_worker: MakeWorker) -> None:
    await docket.add(work, queue="fast")()
    await docket.add(work, queue="slow")()
    assert await make_worker(queues=["fast"]).run_once() == 1


async def test_a_round_can_be_stopped(docket: Docket, worker: Worker) -> None:
    started, release = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        started.set()
        await release.wait()

    await docket.add_many([docket.call(wait)() for _ in range(30)])
    running = asyncio.create_task(worker.run_once())
    await started.wait()
    worker.stop()
    release.set()
    assert await running == 10


async def test_once_and_until_finished_do_not_go_together() -> None:
    with pytest.raises(InvalidArgument, match="ask for one of them"):
        await Worker.run(url="memory://", once=True, until_finished=True)


async def test_the_command_line_runs_one_round(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    async with Docket("docket", url) as docket:
        await docket.add("trace")("one")
        await docket.add("trace", when=datetime.now(UTC) + HOUR)("later")
        ran = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "dovetail", "worker", "--once", "--url", url],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert ran.returncode == 0, ran.stderr
        assert "nothing more is due; 1 attempts were made" in ran.stderr
        assert (await docket.snapshot()).total_tasks == 1
