"""Time: the real one, and one that tests advance."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import time
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
LEAP = 5_000_000
"""Microseconds by which a clock that is set forward must move to count as a leap."""


def to_microseconds(moment: datetime) -> int:
    return (moment - EPOCH) // _MICROSECOND


def from_microseconds(count: int) -> datetime:
    return EPOCH + timedelta(microseconds=count)


def duration_to_microseconds(duration: timedelta) -> int:
    return duration // _MICROSECOND


BELIEVED = 86_400_000_000
"""Microseconds by which another process's clock may be ahead and still be followed."""


class Clock(Protocol):
    """What tells the time and waits. Everything that waits, waits on a clock, so that a test can move it."""

    def microseconds(self) -> int:
        """Now, in microseconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards."""
        ...

    def advance_to(self, mark: int) -> None:
        """Go on from this time, if it is later: another process that shares the store went by it."""
        ...

    def leapt_within(self, duration: timedelta) -> bool:
        """Whether the time was lately set forward: leases that seem to have ended may be alive."""
        ...

    async def sleep(self, duration: timedelta) -> None: ...

    async def wait(self, event: asyncio.Event, at_most: timedelta | None) -> None:
        """Until the event is set, or the time is up."""
        ...


class SystemClock:
    """The host's clock, made fit for leases: it never goes back, and it knows when it leapt."""

    def __init__(self) -> None:
        self._last = time.time_ns() // 1_000
        self._ticks = time.monotonic_ns() // 1_000
        self._leapt_at: int | None = None

    def microseconds(self) -> int:
        wall = time.time_ns() // 1_000
        ticks = time.monotonic_ns() // 1_000
        passed = ticks - self._ticks
        if wall - self._last > passed + LEAP:
            self._leapt_at = ticks
        # When the host's clock was set back, ours goes on at half its pace until the two meet again: it never
        # stands still, since leases have to end.
        now = max(wall, self._last + passed // 2)
        self._last, self._ticks = now, ticks
        return now

    def advance_to(self, mark: int) -> None:
        """Another process went by a later time: go on from there, unless that one's clock was plainly wrong."""
        if mark - self._last <= BELIEVED:
            self._last = max(self._last, mark)

    def leapt_within(self, duration: timedelta) -> bool:
        if self._leapt_at is None:
            return False
        return time.monotonic_ns() // 1_000 - self._leapt_at < duration_to_microseconds(duration)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, duration: timedelta) -> None:
        await asyncio.sleep(max(duration.total_seconds(), 0))

    async def wait(self, event: asyncio.Event, at_most: timedelta | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if at_most is None else at_most.total_seconds()):
                await event.wait()


SYSTEM_CLOCK = SystemClock()


class VirtualClock:
    """A clock that stands still until it is told to move."""

    def __init__(self, start: datetime = datetime(2030, 1, 1, tzinfo=UTC)) -> None:
        self._now = to_microseconds(start)
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now(self) -> datetime:
        return from_microseconds(self._now)

    def microseconds(self) -> int:
        return self._now

    def monotonic(self) -> float:
        return self._now / 1_000_000

    def advance_to(self, mark: int) -> None:
        """Only its owner moves this clock."""

    def leapt_within(self, duration: timedelta) -> bool:
        return False

    async def sleep(self, duration: timedelta) -> None:
        woken = asyncio.get_running_loop().create_future()
        until = self._now + max(duration_to_microseconds(duration), 0)
        heapq.heappush(self._sleepers, (until, next(self._order), woken))
        await woken

    async def wait(self, event: asyncio.Event, at_most: timedelta | None) -> None:
        waiting: list[asyncio.Future[Any]] = [asyncio.ensure_future(event.wait())]
        if at_most is not None:
            waiting.append(asyncio.ensure_future(self.sleep(at_most)))
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()

    def jump(self, duration: timedelta) -> None:
        """Move the time without waking anyone: for tests that drive an engine by hand."""
        self._now += duration_to_microseconds(duration)
