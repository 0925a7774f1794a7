"""The answer: causes, the decisive one first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from dovetail.model import State


class CauseCode(StrEnum):
    """What keeps a run. The codes never change."""

    UNKNOWN = "unknown"  # there is no record of it
    COMPLETED = "completed"
    FAILED = "failed"
    POISONED = "poisoned"  # its workers vanished too often
    CANCELLED = "cancelled"
    CANCELLED_BY_PARENT = "cancelled_by_parent"
    SCHEDULED = "scheduled"  # it is due later
    RETRYING = "retrying"  # an attempt failed, and the next is due later
    WAITING_FOR_PARENTS = "waiting_for_parents"
    STRUCK = "struck"
    MAY_BE_STRUCK = "may_be_struck"  # a strike goes by arguments that cannot be read here
    PAUSED = "paused"
    NO_WORKER = "no_worker"
    NO_WORKER_FOR_QUEUE = "no_worker_for_queue"
    NO_WORKER_FOR_TASK = "no_worker_for_task"
    LIMIT_FULL = "limit_full"
    WINDOW_CLOSED = "window_closed"
    WORKERS_BUSY = "workers_busy"
    READY = "ready"  # nothing is in its way
    RUNNING = "running"
    STOPPING = "stopping"  # it was asked to stop
    UNHEEDING = "unheeding"  # it was cancelled, by whomever, and goes on
    LEASE_LAPSED = "lease_lapsed"  # its worker is silent
    LOOP_BLOCKED = "loop_blocked"  # a worker's event loop does not turn
    CRASHED = "crashed"  # its worker vanished, not too often yet


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that keeps a run: a code for programs, what is known of it, and a text for people."""

    code: CauseCode
    text: str
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Why:
    """Why a run is not running, as it was at one moment. All causes that hold are here, the decisive one first."""

    key: str
    at: datetime
    causes: tuple[Cause, ...]
    id: str | None = None
    task: str | None = None
    state: State | None = None  # None: there is no record of the run

    @property
    def cause(self) -> Cause:
        """The decisive one."""
        return self.causes[0]

    @property
    def codes(self) -> tuple[CauseCode, ...]:
        return tuple(cause.code for cause in self.causes)

    @property
    def is_known(self) -> bool:
        return self.state is not None

    def __str__(self) -> str:
        return "\n".join(cause.text for cause in self.causes)
