"""Progress: how far a run says it is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dovetail import Docket, Progress, Retry, Worker
from dovetail.clock import VirtualClock
from dovetail.errors import InvalidArgument, InvalidType
from tests.by_hand import ByHand, finish, run_of
from tests.waiting import soon


async def in_the_store(still: Docket, by_hand: ByHand, key: str) -> tuple[int, int, str | None]:
    """What the store says of a run, once everything is written."""
    run = await run_of(still, key=key)
    await by_hand.reporter.conclude(run.id)
    progress = (await run_of(still, key=key)).progress
    assert progress is not None
    return progress.current, progress.total, progress.message


async def seen_from_inside(still: Docket, by_hand: ByHand, *reports: Any) -> list[Any]:
    """What the store says of a run after each of its reports."""
    seen: list[Any] = []

    async def work(progress: Progress = Progress()) -> None:
        for method, value in reports:
            await getattr(progress, method)(value)
            seen.append(await in_the_store(still, by_hand, "k"))

    await still.add(work, key="k")()
    assert (await by_hand.step()).error is None
    return seen


async def test_what_a_body_reports_is_in_the_store(still: Docket, by_hand: ByHand):
    seen = await seen_from_inside(
        still, by_hand,
        ("set_total", 3), ("increment", 1), ("increment", 2), ("set_message", "nearly"), ("set_message", None),
    )  # fmt: skip
    assert seen == [(0, 3, None), (1, 3, None), (3, 3, None), (3, 3, "nearly"), (3, 3, None)]


async def test_a_body_may_go_beyond_its_total(still: Docket, by_hand: ByHand):
    assert await seen_from_inside(still, by_hand, ("set_total", 1), ("increment", 5)) == [(0, 1, None), (5, 1, None)]


async def test_any_text_can_be_a_message(still: Docket, by_hand: ByHand):
    seen = await seen_from_inside(still, by_hand, ("set_message", "a\ud800b"), ("set_message", "x" * 5000))
    assert [message for _, _, message in seen] == ["a\\ud800b", "x" * 5000]


async def test_the_body_sees_what_it_has_reported(still: Docket, by_hand: ByHand, clock: VirtualClock):
    seen: list[Any] = []

    async def work(progress: Progress = Progress()) -> None:
        seen.append((progress.current, progress.total, progress.message, progress.updated_at))
        await progress.set_total(3)
        await progress.increment()
        await progress.increment(2)
        await progress.set_message("nearly")
        seen.append((progress.current, progress.total, progress.message, progress.updated_at))

    await still.add(work)()
    await by_hand.step()
    assert seen == [(0, 100, None, None), (3, 3, "nearly", clock.now())]


async def test_each_run_begins_anew(still: Docket, by_hand: ByHand):
    seen: list[Any] = []

    async def work(progress: Progress = Progress()) -> None:
        seen.append((progress.current, progress.total))
        await progress.set_total(7)
        await progress.increment()

    await still.add(work)()
    await still.add(work)()
    await by_hand.step()
    await by_hand.step()
    assert seen == [(0, 100), (0, 100)]


async def test_each_attempt_begins_anew(still: Docket, by_hand: ByHand):
    seen: list[Any] = []

    async def work(progress: Progress = Progress(), retry: Retry = Retry(attempts=2)) -> None:
        await progress.increment(5)
        seen.append((await in_the_store(still, by_hand, "k"))[0])
        raise ValueError

    await still.add(work, key="k")()
    await by_hand.step()
    await by_hand.step()
    assert seen == [5, 5]


async def test_two_of_them_are_of_one_run(docket: Docket, worker: Worker):
    async def work(one: Progress = Progress(), two: Progress = Progress()) -> int:
        await one.increment(2)
        await two.increment(3)
        await one.set_total(6)
        return 1

    execution = await docket.add(work)()
    await finish(worker)
    assert await execution.get_result() == 1


@pytest.mark.parametrize("amount", [0, -1])
@pytest.mark.parametrize("method", ["increment", "set_total"])
async def test_a_number_below_one_is_refused(method: str, amount: int):
    with pytest.raises(InvalidArgument, match="must be at least 1"):
        await getattr(Progress(), method)(amount)


@pytest.mark.parametrize("amount", [1.5, "1", None, True])
@pytest.mark.parametrize("method", ["increment", "set_total"])
async def test_what_is_no_number_is_refused(method: str, amount: Any):
    with pytest.raises(InvalidType, match="must be a whole number"):
        await getattr(Progress(), method)(amount)


@pytest.mark.parametrize("message", [5, b"bytes", ["a"]])
async def test_a_message_is_text(message: Any):
    with pytest.raises(InvalidType, match="message"):
        await Progress().set_message(message)


async def test_a_refused_report_changes_nothing():
    progress = Progress()
    for method, value in (("set_total", 0), ("increment", 0), ("set_message", 5)):
        with pytest.raises((InvalidArgument, InvalidType)):
            await getattr(progress, method)(value)
    assert (progress.current, progress.total, progress.message) == (None, 100, None)


@pytest.mark.parametrize("report", [("increment", 1), ("set_total", 1), ("set_message", "x")])
async def test_outside_of_a_run_nothing_can_be_reported(report: tuple[str, Any]):
    method, value = report
    progress = Progress()
    with pytest.raises(AssertionError, match="only while a worker runs the task"):
        await getattr(progress, method)(value)
    assert (progress.current, progress.total, progress.message) == (None, 100, None)


async def test_a_plain_function_says_how_far_it_is(docket: Docket, worker: Worker):
    def load(progress: Progress = Progress()) -> tuple[int | None, int, str | None]:
        progress.set_total(3)
        progress.set_message("loading")
        progress.increment(2)
        return progress.current, progress.total, progress.message

    execution = await docket.add(load, key="k")()
    ready = asyncio.Event()
    heard: list[Any] = []

    async def listen() -> None:
        async for event in execution.progress.subscribe(ready=ready):
            heard.append((event["current"], event["total"], event["message"]))
            if heard[-1] == (2, 3, "loading"):
                return

    listening = asyncio.create_task(listen())
    await soon(ready.wait())
    await finish(worker)
    await soon(listening)
    assert tuple(await execution.get_result()) == (2, 3, "loading")
