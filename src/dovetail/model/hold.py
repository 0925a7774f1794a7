"""Holds: what keeps runs from starting."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from dovetail.model.noun import Noun


class HoldKind(StrEnum):
    STRIKE = "strike"  # calls of a task, or with an argument; judged by clients and workers
    PAUSE = "pause"  # a queue; enforced by the store


class Hold(Noun, frozen=True):
    """A strike (task, parameter, operator, value) or a paused queue. The last four fields describe it; the
    others are what it is: two holds that agree in those are the same hold."""

    kind: HoldKind
    queue: str | None = None
    task: str | None = None
    parameter: str | None = None
    operator: str = "=="
    value: bytes | None = None
    reason: str | None = None
    owner: str | None = None
    since: datetime | None = None
    until: datetime | None = None  # None: until it is lifted

    @property
    def identity(self) -> tuple[str, str | None, str | None, str | None, str, bytes | None]:
        return (self.kind, self.queue, self.task, self.parameter, self.operator, self.value)
