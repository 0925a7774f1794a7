"""The portal: coroutines for threads that wait."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from dovetail import UsageError
from dovetail.errors import EngineUnavailable
from dovetail.sync import portal as portals
from dovetail.sync.portal import PORTALS, Portal, in_callers_thread
from tests.waiting import PATIENCE

color: ContextVar[str] = ContextVar("color", default="none")


@pytest.fixture
def portal() -> Iterator[Portal]:
    portal = Portal()
    yield portal
    portal.close()


async def return_thread() -> str:
    return threading.current_thread().name


def test_coroutines_run_in_one_thread_and_their_results_come_back(portal: Portal) -> None:
    assert {portal.call(return_thread) for _ in range(3)} == {"dovetail sync"}


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit, StopAsyncIteration, TimeoutError])
def test_whatever_is_raised_comes_out_of_the_call_and_harms_nothing(portal: Portal, kind: type[BaseException]) -> None:
    async def fail() -> None:
        raise kind("told")

    with pytest.raises(kind, match="told"):
        portal.call(fail)
    assert portal.call(return_thread) == "dovetail sync"


def test_the_callers_context_is_there(portal: Portal) -> None:
    async def ask() -> str:
        return color.get()

    color.set("red")
    assert portal.call(ask) == "red"


def test_an_errand_runs_in_the_thread_that_waits(portal: Portal) -> None:
    async def errand() -> str:
        return threading.current_thread().name

    async def send() -> str:
        return await in_callers_thread(errand())

    assert portal.call(send) == threading.current_thread().name


def test_an_errand_that_waits_is_refused(portal: Portal) -> None:
    async def errand() -> None:
        await asyncio.sleep(0)

    async def send() -> None:
        await in_callers_thread(errand())

    with pytest.raises(UsageError, match="waits for an event loop"):
        portal.call(send)


def test_an_errand_that_is_interrupted_ends_the_call(portal: Portal) -> None:
    ended = threading.Event()

    async def errand() -> None:
        raise KeyboardInterrupt

    async def send() -> None:
        try:
            await in_callers_thread(errand())
        finally:
            ended.set()

    with pytest.raises(KeyboardInterrupt):
        portal.call(send)
    assert ended.wait(PATIENCE)


def test_a_call_that_is_cancelled_within_says_so(portal: Portal) -> None:
    async def cancel() -> None:
        raise asyncio.CancelledError

    with pytest.raises(EngineUnavailable, match="closed during the call"):
        portal.call(cancel)


def test_a_call_from_the_portals_own_thread_is_refused() -> None:
    async def call_again() -> None:
        PORTALS.call(return_thread)

    with pytest.raises(UsageError, match="event loop is running"):
        PORTALS.call(call_again)


class Guest:
    """Something open, which closes as it is told to."""

    def __init__(self, closing: Any) -> None:
        self.closing = closing
        self.is_closed = False

    async def close(self) -> None:
        await self.closing()
        self.is_closed = True


def test_what_is_open_is_closed_at_the_end(portal: Portal) -> None:
    guest = Guest(lambda: asyncio.to_thread(time.sleep, 0))
    portal.guests.add(guest)
    portal.close()
    assert guest.is_closed


@pytest.mark.parametrize("how", ["waits", "blocks"])
def test_what_does_not_close_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(portals, "FAREWELL", 0.2)
    released = threading.Event()

    async def wait() -> None:
        await asyncio.Event().wait()

    async def block() -> None:
        released.wait(PATIENCE)

    portal = Portal()
    guest = Guest(wait if how == "waits" else block)
    portal.guests.add(guest)
    portal.close()
    assert not guest.is_closed
    released.set()
    portal._thread.join()
