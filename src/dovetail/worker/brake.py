"""The brake: a worker that fails at whatever it takes in takes in less.

One whose tasks share something that cannot be made, a pool of connections say, fails at once, and so would be the first
to take the next run, and the next: all the work of a docket would go through the one worker that cannot do it.
"""

from __future__ import annotations

import random
from datetime import timedelta

from dovetail.clock import Clock

FIRST, LONGEST = 0.25, 5.0
"""Seconds of the first pause, and of the longest: other tasks of the worker have to wait as well."""
CALM = 30.0
"""Seconds without trouble after which the next is a first one."""


class Brake:
    """Says how long to wait before the next claim."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pause = 0.0
        self._until = -CALM

    def press(self) -> None:
        """Something failed that will fail again. What had been taken in by then fails with it, and counts once."""
        now = self._clock.monotonic()
        if now < self._until:
            return
        self._pause = min(self._pause * 2, LONGEST) if now < self._until + CALM else FIRST
        self._until = now + self._pause * random.uniform(0.75, 1)

    @property
    def pause(self) -> timedelta:
        return timedelta(seconds=max(self._until - self._clock.monotonic(), 0))
