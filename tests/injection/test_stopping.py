"""Stopping: a plain function can ask whether its run is to end."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import pytest

from dovetail import Depends, Docket, Stopping, Timeout, UsageError
from dovetail.model import Requeue, Settle, State
from dovetail.worker.roster import Reason
from tests.by_hand import ByHand
from tests.waiting import soon

LONG = timedelta(seconds=20)


class Begun:
    """What a body says from its thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.event = asyncio.Event()
        self.heard = threading.Event()

    def say(self) -> None:
        self._loop.call_soon_threadsafe(self.event.set)


async def test_a_cancelled_function_leaves_and_its_run_is_cancelled(by_hand: ByHand, still: Docket):
    begun = Begun()

    def work(stopping: Stopping = Stopping()) -> None:
        begun.say()
        assert stopping.wait(LONG)
        stopping.raise_if_set()

    await still.add(work)()
    verdict = await by_hand.attempt(stop_for=Reason.STOP, once=begun.event)
    assert isinstance(verdict, Settle)
    assert (verdict.state, verdict.failure) == (State.CANCELLED, None)


async def test_a_function_that_hears_of_it_and_returns_has_completed(by_hand: ByHand, still: Docket):
    begun = Begun()

    def work(stopping: Stopping = Stopping()) -> str:
        begun.say()
        return "as far as I came" if stopping.wait(LONG) else "never"

    await still.add(work)()
    verdict = await by_hand.attempt(stop_for=Reason.STOP, once=begun.event)
    assert isinstance(verdict, Settle)
    assert verdict.state is State.COMPLETED
    assert b"as far as I came" in (verdict.result or b"")


async def test_a_function_whose_time_is_up_leaves_at_once(by_hand: ByHand, still: Docket):
    def work(stopping: Stopping = Stopping(), timeout: Timeout = Timeout(timedelta(milliseconds=20))) -> None:
        stopping.wait(LONG)
        stopping.raise_if_set()

    await still.add(work)()
    run = await by_hand.step()
    assert (run.state, "exceeded timeout" in (run.error or "")) == (State.FAILED, True)


async def test_a_function_of_a_worker_out_of_time_is_handed_back_once_it_has_left(by_hand: ByHand, still: Docket):
    begun, left = Begun(), threading.Event()

    def work(stopping: Stopping = Stopping()) -> None:
        begun.say()
        stopping.wait(LONG)
        left.set()
        stopping.raise_if_set()

    await still.add(work)()
    verdict = await by_hand.attempt(stop_for=Reason.SHUTDOWN, once=begun.event)
    assert left.is_set()
    assert isinstance(verdict, Requeue)
    assert verdict.attempt == verdict.claim.attempt


async def test_a_function_that_lost_its_lease_is_told_and_not_waited_for(by_hand: ByHand, still: Docket):
    begun = Begun()

    def work(stopping: Stopping = Stopping()) -> None:
        begun.say()
        if stopping.wait(LONG):
            begun.heard.set()

    await still.add(work)()
    assert await by_hand.attempt(stop_for=Reason.LOST, once=begun.event) is None
    assert await asyncio.to_thread(begun.heard.wait, 10)


async def test_a_thread_that_an_async_body_started_is_told(by_hand: ByHand, still: Docket):
    begun = Begun()

    def work(stopping: Stopping) -> None:
        begun.say()
        if stopping.wait(LONG):
            begun.heard.set()

    async def start(stopping: Stopping = Stopping()) -> None:
        await asyncio.to_thread(work, stopping)

    await still.add(start)()
    await by_hand.attempt(stop_for=Reason.STOP, once=begun.event)
    assert await asyncio.to_thread(begun.heard.wait, 10)


async def test_a_dependency_may_ask_for_it_and_it_is_the_same(by_hand: ByHand, still: Docket):
    seen: list[Stopping] = []

    def inner(stopping: Stopping = Stopping()) -> Stopping:
        return stopping

    def work(stopping: Stopping = Stopping(), another: Stopping = Depends(inner)) -> None:
        seen.extend([stopping, another])

    await still.add(work)()
    await by_hand.step()
    assert seen[0] is seen[1]
    assert not seen[0].is_set()


async def test_outside_of_a_run_it_has_no_value():
    with pytest.raises(UsageError, match="while a worker runs a task"):
        await soon(Stopping().__aenter__())


def test_what_it_is_told_to_wait_for_is_checked():
    with pytest.raises(TypeError, match="timeout must be a timedelta"):
        Stopping().wait(5)  # type: ignore[arg-type]
