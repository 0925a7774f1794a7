"""The time of the host."""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import timedelta
from typing import Protocol

from dovetail.clock.times import duration_to_microseconds

LEAP = 5_000_000
"""Microseconds by which a clock that is set forward must move to count as a leap."""
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

    async def rest(
        self, event: asyncio.Event | None, duration: timedelta, at_most: timedelta | None = None, *, first: bool = False
    ) -> None:
        """Between two rounds of routine: until the event is set, `at_most` is up, or `duration` has passed.

        A clock that is moved stops where `at_most` ends, but for routine only once: after that it wakes the sleeper
        when it next stops. Those who rest `first` are woken before all others: they renew leases."""
        ...

    def work_began(self) -> None:
        """Something is under way that goes on by itself, in a thread or on a wire. From any thread."""
        ...

    def work_ended(self) -> None:
        """It is over, and whatever follows from it has been handed to an event loop. From any thread."""
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

    async def rest(
        self, event: asyncio.Event | None, duration: timedelta, at_most: timedelta | None = None, *, first: bool = False
    ) -> None:
        shortest = duration if at_most is None else min(duration, at_most)
        await (self.sleep(shortest) if event is None else self.wait(event, shortest))

    def work_began(self) -> None:
        """Nobody asks this clock."""

    def work_ended(self) -> None:
        """Nobody asks this clock."""


SYSTEM_CLOCK = SystemClock()
