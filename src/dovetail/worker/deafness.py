"""Deafness: when a process whose bodies ignore their cancellation makes room for another."""

from __future__ import annotations

import time
from collections.abc import Callable

from dovetail.observe.health import Vitals

TELLING = 60.0
"""Seconds that whoever fetches the metrics has to learn of it first: they go with the process."""


class Deafness:
    """Such bodies end with their process. It goes at once, unless its metrics are served and nobody has fetched them
    since, and there are still slots for others."""

    def __init__(self, fetches: Callable[[], int | None]) -> None:
        self._fetches = fetches  # of the metrics so far; None if they are not served
        self._noticed: tuple[float, int | None] | None = None

    def reason_to_go(self, vitals: Vitals | None) -> str | None:
        if vitals is None or not vitals.deaf:
            self._noticed = None
            return None
        now, fetches = time.monotonic(), self._fetches()
        since, before = self._noticed = self._noticed or (now, fetches)
        is_told = fetches is None or fetches != before or now - since >= TELLING
        return f"{vitals.deaf} runs were cancelled and go on" if is_told or vitals.is_helpless else None
