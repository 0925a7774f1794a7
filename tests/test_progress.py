"""How far a run is, as whoever holds its execution sees it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from dovetail import Docket, Progress, Worker
from dovetail.clock import VirtualClock
from dovetail.errors import InvalidArgument, InvalidType
from dovetail.execution import Execution
from dovetail.progress import ExecutionProgress
from tests.by_hand import ByHand, at_work
from tests.waiting import soon


async def idle() -> None: ...


@pytest.fixture
async def running(still: Docket, by_hand: ByHand) -> Execution[None]:
    """An execution whose run has been claimed."""
    execution = await still.add(idle, key="k")()
    await by_hand.claim()
    return execution


def shown(progress: ExecutionProgress) -> tuple[int | None, int, str | None]:
    return progress.current, progress.total, progress.message


async def test_a_new_object_knows_nothing(still: Docket):
    assert shown(ExecutionProgress(still, "k")) == (None, 1, None)


async def test_before_a_claim_there_is_no_progress(still: Docket):
    await still.add(idle, key="k")()
    progress = await ExecutionProgress.create(still, "k")
    assert (*shown(progress), progress.updated_at) == (None, 100, None, None)


async def test_a_key_that_is_not_there_has_none(still: Docket):
    assert shown(await ExecutionProgress.create(still, "nowhere")) == (None, 100, None)


async def test_anyone_may_report_while_the_run_is_running(running: Execution[None], clock: VirtualClock):
    progress = running.progress
    await progress.set_total(10)
    await progress.increment()
    await progress.increment(3)
    await progress.set_message("working")
    assert shown(progress) == (4, 10, "working")
    assert progress.updated_at == clock.now()


async def test_another_handle_sees_it(still: Docket, running: Execution[None]):
    await running.progress.increment(2)
    assert shown(await ExecutionProgress.create(still, "k")) == (2, 100, None)
    other = await still.get_execution("k")
    assert other is not None
    assert shown(other.progress) == (2, 100, None)


async def test_an_execution_that_is_read_again_shows_the_progress_again(still: Docket, running: Execution[None]):
    assert running.progress.current is None
    await ExecutionProgress(still, "k").increment(2)
    assert running.progress.current is None
    await running.sync()
    assert running.progress.current == 2


async def test_increments_of_many_add_up(still: Docket, running: Execution[None]):
    handles = [ExecutionProgress(still, "k") for _ in range(10)]
    await asyncio.gather(*(handle.increment(number) for number, handle in enumerate(handles, 1)))
    await running.sync()
    assert running.progress.current == 55


async def test_no_message_takes_the_last_one_away(running: Execution[None]):
    await running.progress.set_message("working")
    await running.progress.set_message(None)
    assert running.progress.message is None


async def test_a_run_that_is_over_has_no_progress(still: Docket, by_hand: ByHand):
    async def work(progress: Progress = Progress()) -> None:
        await progress.increment()

    execution = await still.add(work, key="k")()
    await by_hand.step()
    await execution.sync()
    assert shown(execution.progress) == (None, 100, None)


async def test_a_report_on_a_run_that_does_not_run_is_lost(still: Docket):
    await still.add(idle, key="k")()
    progress = ExecutionProgress(still, "k")
    await progress.increment()
    assert progress.current is None


@pytest.mark.parametrize("method", ["increment", "set_total"])
@pytest.mark.parametrize(
    ("wrong", "kind"), [(0, InvalidArgument), (-5, InvalidArgument), ("1", InvalidType), (1.5, InvalidType)]
)
async def test_a_number_that_cannot_be_is_refused(still: Docket, method: str, wrong: Any, kind: type[Exception]):
    with pytest.raises(kind):
        await getattr(ExecutionProgress(still, "k"), method)(wrong)


@pytest.mark.parametrize("wrong", [5, b"bytes"])
async def test_a_message_is_text(still: Docket, wrong: Any):
    with pytest.raises(InvalidType, match="message"):
        await ExecutionProgress(still, "k").set_message(wrong)


# Events


async def test_subscribers_hear_of_every_change(still: Docket, running: Execution[None], clock: VirtualClock):
    ready = asyncio.Event()
    heard: list[Any] = []

    async def listen() -> None:
        async for event in running.progress.subscribe(ready=ready):
            heard.append(event)
            if event["message"] == "done":
                return

    listening = asyncio.create_task(listen())
    await soon(ready.wait())
    other = ExecutionProgress(still, "k")
    await other.set_total(5)
    clock.jump(timedelta(seconds=1))
    await other.increment(2)
    await other.set_message("done")
    await soon(listening)
    assert [(event["current"], event["total"], event["message"]) for event in heard] == [
        (0, 5, None),
        (2, 5, None),
        (2, 5, "done"),
    ]
    assert {(event["type"], event["key"]) for event in heard} == {("progress", "k")}
    assert heard[-1]["updated_at"] == clock.now().isoformat()


async def test_a_subscriber_of_the_execution_hears_of_progress_between_the_states(docket: Docket, worker: Worker):
    go = asyncio.Event()

    async def work(progress: Progress = Progress()) -> None:
        await go.wait()
        await progress.set_total(2)
        await progress.increment(2)

    execution = await docket.add(work, key="k")()
    ready = asyncio.Event()
    heard: list[Any] = []

    async def listen() -> None:
        async for event in execution.subscribe(ready=ready):
            heard.append(event["state"] if event["type"] == "state" else (event["current"], event["total"]))
            if event["type"] == "state" and event["state"].is_terminal:
                return

    listening = asyncio.create_task(listen())
    await soon(ready.wait())
    async with at_work(worker):
        go.set()
        await soon(listening)
    assert heard[:2] == ["queued", (None, 100)]
    assert heard[-1] == "completed"
    assert (0, 2) in heard
    assert heard[-2] == (2, 2)
