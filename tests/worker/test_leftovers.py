"""What a worker that is to end waits for, and what it leaves."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dovetail import Docket, Execution, ExecutionState, Queue
from tests.by_hand import finish
from tests.conftest import MakeWorker
from tests.waiting import soon


async def note(what: str) -> str:
    return what


async def state_of(execution: Execution[Any]) -> ExecutionState:
    await execution.sync()
    return execution.state


@pytest.fixture(autouse=True)
def loud(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dovetail.worker")


async def test_work_in_a_paused_queue_is_not_waited_for(
    docket: Docket, make_worker: MakeWorker, caplog: pytest.LogCaptureFixture
):
    await docket.pause("mail")
    left = await docket.add_many([docket.call(note, queue="mail")("left") for _ in range(3)])
    done = await docket.add(note)("done")
    await finish(make_worker())
    assert await state_of(done) is ExecutionState.COMPLETED
    assert await state_of(left[0]) is ExecutionState.QUEUED
    assert "not waited for, in queues that are paused or not taken here: 3 in 'mail'" in caplog.text


async def test_a_run_that_hangs_on_a_paused_queue_is_not_waited_for(docket: Docket, make_worker: MakeWorker):
    await docket.pause("mail")
    parent = await docket.add(note, queue="mail")("parent")
    child = await docket.add(note, after=[parent])("child")
    await finish(make_worker())
    assert await state_of(child) is ExecutionState.WAITING


async def test_a_pause_with_an_end_is_waited_for(docket: Docket, make_worker: MakeWorker):
    await docket.pause("mail", until=datetime.now(UTC) + timedelta(seconds=2))
    late = await docket.add(note, queue="mail")("late")
    await finish(make_worker())
    assert await state_of(late) is ExecutionState.COMPLETED


async def test_work_that_is_due_later_is_waited_for_beside_a_paused_queue(docket: Docket, make_worker: MakeWorker):
    await docket.pause("mail")
    await docket.add(note, queue="mail")("left")
    later = await docket.add(note, when=datetime.now(UTC) + timedelta(milliseconds=300))("later")
    await finish(make_worker())
    assert await state_of(later) is ExecutionState.COMPLETED


@pytest.mark.parametrize("queues", [["mine"], [Queue("mine", weight=2, concurrency=1)]])
async def test_queues_that_it_does_not_take_are_not_waited_for(
    docket: Docket, make_worker: MakeWorker, queues: list[str | Queue], caplog: pytest.LogCaptureFixture
):
    mine = await docket.add(note, queue="mine")("mine")
    other = await docket.add(note, queue="other")("other")
    await finish(make_worker(queues=queues))
    assert await state_of(mine) is ExecutionState.COMPLETED
    assert await state_of(other) is ExecutionState.QUEUED
    assert "1 in 'other'" in caplog.text


async def test_what_runs_elsewhere_is_waited_for(docket: Docket, make_worker: MakeWorker):
    await docket.pause("mail")
    await docket.add(note, queue="mail")("left")
    started, go_on = asyncio.Event(), asyncio.Event()

    async def long() -> None:
        started.set()
        await go_on.wait()

    execution = await docket.add(long)()
    elsewhere = asyncio.create_task(make_worker(name="elsewhere").run_until_finished())
    await soon(started.wait())
    here = asyncio.create_task(make_worker().run_until_finished())
    await asyncio.wait([here], timeout=0.5)
    assert not here.done()
    go_on.set()
    await soon(here)
    await soon(elsewhere)
    assert await state_of(execution) is ExecutionState.COMPLETED
