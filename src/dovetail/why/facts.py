"""What was gathered of a run: all that its causes follow from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dovetail.holds import Strike
from dovetail.model import Hold, LimitUse, Run, Standing, WorkerInfo
from dovetail.schedules import is_tick

MISSED = 5
"""Heartbeats that a worker may miss before it counts as gone."""


@dataclass(frozen=True, slots=True)
class Facts:
    """A run and its surroundings, as read at one moment. Without a run there is no record of it."""

    key: str
    at: datetime
    run: Run | None = None
    standing: Standing | None = None  # of a live run
    pause: Hold | None = None  # of its queue
    strikes: tuple[Strike, ...] = ()  # that forbid it
    doubtful: tuple[Strike, ...] = ()  # that may forbid it: its arguments cannot be told apart here
    relatives: Mapping[str, Run] = field(default_factory=dict[str, Run])  # by id: parents, and who holds its limits
    silence: timedelta = timedelta(seconds=10)  # a worker not heard of for so long is gone

    @property
    def limits(self) -> tuple[LimitUse, ...]:
        return self.standing.limits if self.standing else ()

    @property
    def ahead(self) -> int:
        return self.standing.ahead if self.standing else 0

    @property
    def workers(self) -> list[WorkerInfo]:
        """Those that are alive."""
        return [worker for worker in self._kept if self._is_alive(worker)]

    @property
    def silent(self) -> list[WorkerInfo]:
        """Those that have not been heard of for too long."""
        return [worker for worker in self._kept if not self._is_alive(worker)]

    def takers(self, run: Run) -> list[WorkerInfo]:
        """Those that are alive and take its queue. Schedules are everybody's, whichever queues a worker takes, and
        whichever tasks it knows."""
        return [worker for worker in self.workers if is_tick(run) or not worker.queues or run.queue in worker.queues]

    @property
    def _kept(self) -> tuple[WorkerInfo, ...]:
        return self.standing.workers if self.standing else ()

    def _is_alive(self, worker: WorkerInfo) -> bool:
        # One that speaks seldom has more time: this program may be set up otherwise than the worker is.
        silence = max(self.silence, worker.interval * MISSED) if worker.interval else self.silence
        return worker.last_seen is None or worker.last_seen > self.at - silence
