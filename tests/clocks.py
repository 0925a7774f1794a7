"""Clocks that tests put in the place of the real one."""

import asyncio
from datetime import timedelta

from dovetail.clock import SystemClock, VirtualClock


class WrongClock(SystemClock):
    """That of a host that nobody told the time."""

    def __init__(self, ahead: timedelta) -> None:
        super().__init__()
        self._off = round(ahead.total_seconds() * 1_000_000)

    def microseconds(self) -> int:
        return super().microseconds() + self._off


class HastyClock(VirtualClock):
    """A clock on which nobody sleeps: to sleep moves the time. It remembers how long everyone meant to."""

    def __init__(self) -> None:
        super().__init__()
        self.naps: list[timedelta] = []

    async def sleep(self, duration: timedelta) -> None:
        self.naps.append(duration)
        self.jump(duration)
        await asyncio.sleep(0)

    async def rest(
        self, event: asyncio.Event | None, duration: timedelta, at_most: timedelta | None = None, *, first: bool = False
    ) -> None:
        await self._first_of(event, [self.sleep(duration if at_most is None else min(duration, at_most))])
