"""Events: hints that something happened. They may be lost; nothing is ever decided by one alone."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from dovetail.model.noun import Noun
from dovetail.model.run import Progress, State


class EventKind(StrEnum):
    WORK = "work"  # something may be there to claim
    STOP = "stop"  # a running run was asked to stop
    HOLDS = "holds"  # a hold was laid or lifted
    STATE = "state"  # a run changed its state
    PROGRESS = "progress"  # a run reported progress


class Topic(Noun, frozen=True):
    """What a watcher wants to hear of. STATE and PROGRESS may be narrowed to one key."""

    kind: EventKind
    key: str | None = None


class Event(Noun, frozen=True):
    """One hint."""

    kind: EventKind
    key: str | None = None
    id: str | None = None
    state: State | None = None
    when: datetime | None = None
    worker: str | None = None
    started: datetime | None = None
    finished: datetime | None = None
    error: str | None = None
    has_result: bool = False  # the run ended with one, whether or not it is kept
    progress: Progress | None = None
