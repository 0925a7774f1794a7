"""Runs: what is scheduled, what is kept of it, and the rules that go with it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from dovetail.model.claim import AttemptError, Failure
from dovetail.model.noun import Noun

Due = datetime | timedelta
"""A moment, or a delay from the store's own now."""


class State(StrEnum):
    SCHEDULED = "scheduled"  # due later, a retry's wait included; or parked on a full limit
    QUEUED = "queued"  # due: a worker may take it
    WAITING = "waiting"  # for its parents
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        return self in TERMINAL


TERMINAL = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})
PENDING = (State.SCHEDULED, State.QUEUED, State.WAITING)


class Conflict(StrEnum):
    """What scheduling does when the key is taken."""

    KEEP = "keep"  # a live run, pending or running, stays; the newcomer is not placed
    KEEP_PENDING = "keep_pending"  # only a pending run keeps the newcomer out
    REPLACE = "replace"  # a pending run gives way; a running one goes on, the newcomer waits beside it
    POSTPONE = "postpone"  # a pending run stays, but its due time moves to the newcomer's


class Placing(StrEnum):
    PLACED = "placed"
    KEPT = "kept"
    REPLACED = "replaced"
    POSTPONED = "postponed"


class Placement(Noun, frozen=True):
    """What became of a request to schedule: the run that now holds the key, and how that came about."""

    placing: Placing
    id: str
    state: State


class Limit(Noun, frozen=True):
    """At most `capacity` runs of this key running (no window), or started per `window`."""

    key: str
    capacity: int
    window: timedelta | None = None
    drop: bool = False  # refused: cancelled rather than made to wait

    @property
    def dropped(self) -> Failure:
        """What is recorded of a run that it drops. Every store has these words."""
        return Failure("Dropped", f"the limit {self.key} had no room, and cancels what it does not admit")


FOREVER = timedelta.max
USUAL = timedelta(minutes=15)
_UNSAID = timedelta(microseconds=-1)


class Retention(Noun, frozen=True):
    """How long a run's record and result are kept once it is over, by how it ended. Zero: not at all.

    With `keep` it is a matter of number: of the runs of a task that have a count and ended alike, the newest so many
    stay. A duration that is given beside it counts too; one that is not is for ever, and 15 minutes without a count.
    With `archive` a record past all that is not dropped, but lies in the archive for so long.
    """

    completed: timedelta = _UNSAID
    failed: timedelta = _UNSAID
    cancelled: timedelta = _UNSAID
    keep: int | None = None
    archive: timedelta | None = None

    def __post_init__(self) -> None:
        usual = USUAL if self.keep is None else FOREVER
        for ending in ("completed", "failed", "cancelled"):
            if getattr(self, ending) is _UNSAID:
                msgspec.structs.force_setattr(self, ending, usual)

    @classmethod
    def of(cls, duration: timedelta) -> Retention:
        return cls(duration, duration, duration)

    @classmethod
    def forever(cls) -> Retention:
        return cls.of(FOREVER)


class NewRun(Noun, frozen=True):
    """A call to be scheduled. The id is the caller's, so that a request may be repeated safely."""

    id: str
    key: str
    task: str
    payload: bytes = b""
    due: Due = timedelta()
    queue: str = "default"
    priority: int = 0  # higher first
    group: str | None = None  # within a queue, groups take turns
    weight: float = 1.0  # a group of weight 2 gets twice the turns
    after: tuple[str, ...] = ()  # ids or keys of the runs it waits for
    after_failure: bool = False  # start also when a parent failed or was cancelled
    limits: tuple[Limit, ...] = ()
    conflict: Conflict = Conflict.KEEP
    attempt: int = 1
    crash_limit: int = 3  # leases that may lapse before the run counts as poisoned
    retention: Retention = Retention()
    headers: Mapping[str, str] = {}  # carried along untouched: trace context, for one
    instead_of: str | None = None  # with REPLACE: the id of the one run that it may take the place of
    wants_results: bool = False  # its claim brings along what its parents have returned


class Progress(Noun, frozen=True):
    """How far a running task says it is."""

    current: int
    total: int
    message: str | None
    updated: datetime | None


class ProgressReport(Noun, frozen=True):
    """A change of a running task's progress. With an epoch it is fenced; without, anyone may report."""

    key: str
    id: str | None = None  # None: the newest run of the key
    epoch: int | None = None
    increment: int = 0
    total: int | None = None
    message: str | None = None
    clear_message: bool = False


class Revival(Noun, frozen=True):
    """A terminal run that is to go again, with new arguments if given."""

    id: str
    payload: bytes | None = None


class Cancelled(StrEnum):
    """What a request to cancel met."""

    CANCELLED = "cancelled"  # it was pending, and never starts
    STOPPING = "stopping"  # it is running, and was asked to stop
    OVER = "over"  # it had ended already
    UNKNOWN = "unknown"


class Run(Noun, frozen=True):
    """What the store knows of a run."""

    id: str
    key: str
    task: str
    state: State
    queue: str
    priority: int
    due: datetime
    created: datetime
    attempt: int
    epoch: int
    payload: bytes
    crashes: int = 0
    crash_limit: int = 3
    group: str | None = None
    worker: str | None = None
    started: datetime | None = None
    finished: datetime | None = None
    lease_until: datetime | None = None
    stopping: bool = False  # it was asked to stop
    parked_on: str | None = None  # the full limit it waits for
    limits: tuple[Limit, ...] = ()
    parents: tuple[str, ...] = ()
    doomed_by: str | None = None  # the parent whose end cancelled it
    result: bytes | None = None
    error: str | None = None  # the last failure, as "Type: message"
    errors: tuple[AttemptError, ...] = ()
    progress: Progress | None = None
    headers: Mapping[str, str] = {}
