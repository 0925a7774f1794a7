"""Reminders: hints about what a transaction did whose commit nobody sees here."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress

DELAYS = (0.02, 0.1, 0.4, 1.5)
"""Seconds after which those who wait are told to look. Most transactions are over by one of them; for the others, they
look by themselves. PostgreSQL could tell at the commit itself, but would make every such commit wait for all others."""


class Reminders:
    """Tells again and again, for a short while. However much is scheduled, each delay passes once at a time."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._running: dict[float, asyncio.TimerHandle] = {}
        self._again: set[float] = set()
        self._is_closed = False

    def begin(self) -> None:
        """Something was scheduled. From whichever thread: a connection of the caller's is used in its own."""
        if self._pid != os.getpid():
            return  # in a child made by fork the loop is the parent's
        with suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self._start_all)

    def _start_all(self) -> None:
        for delay in () if self._is_closed else DELAYS:
            if delay in self._running:
                self._again.add(delay)
            else:
                self._start(delay)

    def _start(self, delay: float) -> None:
        self._running[delay] = self._loop.call_later(delay, self._remind, delay)

    def _remind(self, delay: float) -> None:
        del self._running[delay]
        self._tell()
        if delay in self._again:
            self._again.discard(delay)
            self._start(delay)

    def close(self) -> None:
        self._is_closed = True
        for timer in self._running.values():
            timer.cancel()
