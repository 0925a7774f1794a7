"""What a worker counts run by run: added up here, and handed to OpenTelemetry when there is time for it.

To add to a counter takes an SDK microseconds, and there are five of them to a run. So a worker that has much to do adds
up plain numbers, and hands over the sums ten times a second; one that has little to do hands over everything at once.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass

from dovetail.instrumentation import (
    TASKS_COMPLETED,
    TASKS_FAILED,
    TASKS_PERPETUATED,
    TASKS_REDELIVERED,
    TASKS_RETRIED,
    TASKS_RUNNING,
    TASKS_STARTED,
    TASKS_SUCCEEDED,
    Labels,
    TaskLabels,
)

WHILE = 0.1
"""Seconds for which counts are gathered."""
AT_ONCE = 10
"""How many times they are handed over at once within such a while, before they are gathered."""

COUNTERS = {
    "started": TASKS_STARTED,
    "redelivered": TASKS_REDELIVERED,
    "completed": TASKS_COMPLETED,
    "succeeded": TASKS_SUCCEEDED,
    "failed": TASKS_FAILED,
    "retried": TASKS_RETRIED,
    "perpetuated": TASKS_PERPETUATED,
}


@dataclass(slots=True)
class Counts:
    """What has become of the runs of a task since it was last handed over."""

    started: int = 0
    redelivered: int = 0
    completed: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    perpetuated: int = 0

    def hand_over(self, labels: Labels) -> None:
        for name, counter in COUNTERS.items():
            if count := getattr(self, name):
                counter.add(count, labels)
        if self.started or self.completed:
            TASKS_RUNNING.add(self.started - self.completed, labels)


class Gathering:
    """The counts of all tasks of a worker, which uses it from its event loop alone."""

    def __init__(self, of_task: TaskLabels) -> None:
        self._of_task = of_task
        self.of: defaultdict[str, Counts] = defaultdict(Counts)
        self._ends: asyncio.TimerHandle | None = None
        self._left = AT_ONCE

    def added(self) -> None:
        """Something was counted: hand it over, now or at the end of the while that it is in."""
        if self._ends is None:
            self._ends = asyncio.get_running_loop().call_later(WHILE, self.end)
            self._left = AT_ONCE
        if self._left:
            self._left -= 1
            self._hand_over()

    def end(self) -> None:
        """Hand over everything that was gathered."""
        if self._ends is not None:
            self._ends.cancel()
            self._ends = None
        self._hand_over()

    def _hand_over(self) -> None:
        counts, self.of = self.of, defaultdict(Counts)
        for task, each in counts.items():
            each.hand_over(self._of_task[task])
