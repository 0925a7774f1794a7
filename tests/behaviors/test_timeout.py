"""Timeout: a body that takes too long is stopped."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest

from dovetail import Depends, Docket, ExecutionFailed, ExecutionState, Retry, Timeout, Worker
from dovetail.model import Settle, State
from dovetail.worker.roster import Reason
from tests.by_hand import ByHand, finish
from tests.waiting import soon

SHORT = timedelta(milliseconds=20)
LONG = timedelta(minutes=5)


async def forever() -> None:
    await asyncio.Event().wait()


async def test_a_body_that_takes_too_long_is_stopped_and_fails(docket: Docket, worker: Worker):
    cleaned_up: list[bool] = []

    async def slow(timeout: Timeout = Timeout(SHORT)) -> None:
        try:
            await forever()
        finally:
            cleaned_up.append(True)

    execution = await docket.add(slow, key="slow")()
    await finish(worker)
    assert cleaned_up == [True]
    with pytest.raises(TimeoutError, match=r"slow exceeded timeout of 0\.02s") as caught:
        await execution.get_result()
    assert isinstance(caught.value, ExecutionFailed)


async def test_a_body_in_time_is_left_alone(docket: Docket, worker: Worker):
    async def quick(timeout: Timeout = Timeout(LONG)) -> str:
        return "in time"

    execution = await docket.add(quick)()
    await finish(worker)
    assert await execution.get_result() == "in time"


async def test_a_body_that_swallows_its_stop_has_timed_out_all_the_same(docket: Docket, worker: Worker):
    async def stubborn(timeout: Timeout = Timeout(SHORT)) -> str:
        with suppress(asyncio.CancelledError):
            await forever()
        return "swallowed"

    execution = await docket.add(stubborn)()
    await finish(worker)
    await execution.sync()
    assert execution.state is ExecutionState.FAILED
    assert "exceeded timeout" in (execution.error or "")


async def test_a_body_that_fails_while_it_is_stopped_does_not_complete(docket: Docket, worker: Worker):
    async def clumsy(timeout: Timeout = Timeout(SHORT)) -> str:
        try:
            await forever()
        finally:
            raise ValueError("while cleaning up")
        return "never"

    execution = await docket.add(clumsy)()
    await finish(worker)
    await execution.sync()
    assert execution.state is ExecutionState.FAILED


async def test_a_timeout_error_of_the_bodys_own_passes_as_it_is(docket: Docket, worker: Worker):
    async def own(timeout: Timeout = Timeout(LONG)) -> None:
        raise TimeoutError("the body's own")

    execution = await docket.add(own)()
    await finish(worker)
    await execution.sync()
    assert execution.error == "TimeoutError: the body's own"


async def test_an_inner_timeout_of_the_bodys_own_can_be_caught_by_it(docket: Docket, worker: Worker):
    async def inner(timeout: Timeout = Timeout(LONG)) -> str:
        try:
            async with asyncio.timeout(0.01):
                await forever()
        except TimeoutError:
            return "caught"
        return "never"

    execution = await docket.add(inner)()
    await finish(worker)
    assert await execution.get_result() == "caught"


async def test_with_a_retry_each_attempt_has_the_whole_time(docket: Docket, worker: Worker):
    remaining: list[timedelta] = []

    async def slow(timeout: Timeout = Timeout(50 * SHORT), retry: Retry = Retry(attempts=3)) -> None:
        remaining.append(timeout.remaining())
        await forever()

    execution = await docket.add(slow)()
    await finish(worker)
    await execution.sync()
    assert len(remaining) == 3
    assert all(timedelta() < left <= 50 * SHORT for left in remaining)
    assert execution.state is ExecutionState.FAILED


async def test_a_body_can_ask_for_more_time(docket: Docket, worker: Worker):
    async def patient(timeout: Timeout = Timeout(SHORT)) -> str:
        before = timeout.remaining()
        timeout.extend(LONG)
        assert timeout.remaining() > before + LONG - SHORT
        await asyncio.sleep(3 * SHORT.total_seconds())
        return "in time"

    execution = await docket.add(patient)()
    await finish(worker)
    assert await execution.get_result() == "in time"


async def test_more_time_is_as_much_as_at_first_unless_another_is_given(docket: Docket, worker: Worker):
    async def patient(timeout: Timeout = Timeout(LONG)) -> float:
        timeout.extend()
        return timeout.remaining() / LONG

    execution = await docket.add(patient)()
    await finish(worker)
    assert 1.9 < await execution.get_result() <= 2


async def test_more_time_is_not_without_end(docket: Docket, worker: Worker):
    async def slow(timeout: Timeout = Timeout(SHORT)) -> None:
        timeout.extend(SHORT)
        await forever()

    execution = await docket.add(slow)()
    await finish(worker)
    with pytest.raises(TimeoutError):
        await execution.get_result()


async def test_a_body_can_see_its_time(docket: Docket, worker: Worker):
    async def watchful(timeout: Timeout = Timeout(LONG)) -> tuple[bool, bool]:
        return timedelta() < timeout.remaining() <= LONG, timeout.expired()

    execution = await docket.add(watchful)()
    await finish(worker)
    assert await execution.get_result() == (True, False)


def test_a_timeout_that_has_not_begun_has_all_its_time():
    timeout = Timeout(LONG)
    assert timeout.remaining() == LONG
    assert not timeout.expired()


async def test_each_run_has_a_timeout_of_its_own(docket: Docket, worker: Worker):
    seen: list[Any] = []

    async def note(timeout: Timeout = Timeout(LONG)) -> None:
        timeout.extend(LONG)
        seen.append((id(timeout), timeout.remaining() < 2 * LONG + SHORT))

    for _ in range(3):
        await docket.add(note)()
    await finish(worker)
    assert len(seen) == 3
    assert all(own for _, own in seen)


async def test_dependencies_are_not_counted(docket: Docket, worker: Worker):
    @asynccontextmanager
    async def slow_to_come_and_go() -> AsyncIterator[str]:
        await asyncio.sleep(2 * SHORT.total_seconds())
        yield "here"
        await asyncio.sleep(2 * SHORT.total_seconds())

    async def quick(value: str = Depends(slow_to_come_and_go), timeout: Timeout = Timeout(SHORT)) -> str:
        return value

    execution = await docket.add(quick)()
    await finish(worker)
    assert await execution.get_result() == "here"


async def test_a_cancellation_by_somebody_is_no_timeout(by_hand: ByHand, still: Docket):
    started = asyncio.Event()

    async def slow(timeout: Timeout = Timeout(LONG)) -> None:
        started.set()
        await forever()

    await still.add(slow)()
    verdict = await by_hand.attempt(stop_for=Reason.STOP, once=started)
    assert isinstance(verdict, Settle)
    assert (verdict.state, verdict.failure) == (State.CANCELLED, None)


# Plain functions


async def test_a_plain_function_that_took_too_long_fails_once_it_returns(docket: Docket, worker: Worker):
    stop = threading.Event()

    def slow(timeout: Timeout = Timeout(SHORT)) -> str:
        while not timeout.expired():
            stop.wait(0.005)
        stop.wait(0.05)
        return "late"

    execution = await docket.add(slow)()
    await finish(worker)
    await execution.sync()
    assert execution.state is ExecutionState.FAILED
    assert "exceeded timeout" in (execution.error or "")


async def test_a_plain_function_in_time_is_left_alone(docket: Docket, worker: Worker):
    def quick(timeout: Timeout = Timeout(LONG)) -> str:
        return "in time"

    execution = await docket.add(quick)()
    await finish(worker)
    assert await execution.get_result() == "in time"


async def test_a_plain_function_can_ask_for_more_time(docket: Docket, worker: Worker):
    stop = threading.Event()

    def patient(timeout: Timeout = Timeout(10 * SHORT)) -> str:
        timeout.extend(LONG)
        stop.wait(15 * SHORT.total_seconds())
        return "in time"

    execution = await docket.add(patient)()
    await finish(worker)
    assert await execution.get_result() == "in time"


async def test_a_timeout_frees_the_slot(docket: Docket, worker: Worker):
    worker.concurrency = 1

    async def slow(timeout: Timeout = Timeout(SHORT)) -> None:
        await forever()

    async def quick() -> str:
        return "next"

    await docket.add(slow)()
    execution = await docket.add(quick)()
    await finish(worker)
    assert await soon(execution.get_result()) == "next"
