"""What was gathered of a run: all that its causes follow from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dovetail.holds import Strike
from dovetail.model import Hold, LimitUse, Run, Standing, WorkerInfo


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
        kept = self.standing.workers if self.standing else ()
        return [each for each in kept if each.last_seen is None or each.last_seen > self.at - self.silence]

    @property
    def silent(self) -> list[WorkerInfo]:
        """Those that have not been heard of for too long."""
        kept = self.standing.workers if self.standing else ()
        return [each for each in kept if each not in self.workers]
