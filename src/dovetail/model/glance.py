"""What can be seen of a docket at little cost, whatever the backlog."""

from __future__ import annotations

from datetime import datetime

from dovetail.model.noun import Noun
from dovetail.model.run import State
from dovetail.model.worker import WorkerInfo


class QueueGlance(Noun, frozen=True):
    """How many runs of a queue are due, are due later, and run; and since when the first in line is due."""

    queue: str
    queued: int = 0
    scheduled: int = 0  # without those that are parked on a limit
    running: int = 0
    oldest_due: datetime | None = None


class RunGlance(Noun, frozen=True):
    """A run without its arguments and its history."""

    id: str
    key: str
    task: str
    queue: str
    state: State
    attempt: int = 1
    worker: str | None = None
    started: datetime | None = None
    finished: datetime | None = None
    lease_until: datetime | None = None
    error: str | None = None


class Glance(Noun, frozen=True):
    """A docket in one bounded look: what waits and runs, and some of what failed."""

    at: datetime
    queues: list[QueueGlance]
    waiting: int  # for their parents
    parked: int  # on a full limit
    kept: int  # records of runs that are over, counted up to KEPT
    workers: list[WorkerInfo]
    running: list[RunGlance]  # some, those whose lease ends first
    failures: list[RunGlance]  # some of those that failed, the newest first

    @property
    def queued(self) -> int:
        return sum(each.queued for each in self.queues)


KEPT = 100_000
"""How far records of what is over are counted."""
SHOWN = 100
"""How many running and failed runs a glance shows at most."""
EXAMINED = 1000
"""Among how many records of what is over the failures are looked for."""
