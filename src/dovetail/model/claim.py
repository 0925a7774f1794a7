"""Claims, and the verdicts that end them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from dovetail.model.noun import Noun

if TYPE_CHECKING:
    from dovetail.model.run import Due, NewRun, State


BROUGHT = 16_384
"""Bytes of a result that a claim brings along at most. One that is larger is read by whoever needs it."""


class Result(Noun, frozen=True):
    """What a run that completed has returned."""

    id: str
    task: str
    value: bytes | None


class Claim(Noun, frozen=True):
    """A run leased to a worker. The epoch proves it: once the run has a newer one, this claim is void."""

    id: str
    epoch: int
    key: str
    task: str
    payload: bytes
    attempt: int
    due: datetime
    queue: str = "default"
    priority: int = 0
    group: str | None = None
    redelivered: bool = False  # an earlier lease lapsed without a word
    crashes: int = 0
    headers: Mapping[str, str] = {}
    results: tuple[Result, ...] = ()  # of its parents, if it wants them


class Claimed(Noun, frozen=True):
    """What a claim brought, and how long until there is known reason to look again."""

    claims: list[Claim]
    wait: timedelta | None = None  # None: only new work, or a slot set free, is a reason
    lapsed: int = 0  # leases that had lapsed: their runs are among the claims, or have ended
    poisoned: tuple[str, ...] = ()  # of those that have ended, the tasks of the ones that crashed too often


class Failure(Noun, frozen=True):
    """An exception as text: nothing is ever revived from it."""

    type: str
    message: str
    traceback: str = ""

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


class AttemptError(Noun, frozen=True):
    """One line of a run's error history."""

    attempt: int
    at: datetime
    worker: str | None
    failure: Failure


class Settle(Noun, frozen=True):
    """The run is over. `then` is scheduled in the same unit: the next turn of a perpetual task, for one."""

    claim: Claim
    state: State
    result: bytes | None = None
    failure: Failure | None = None
    then: tuple[NewRun, ...] = ()
    unbegun: bool = False  # and its body never began: the claim's starts count in no window; not if it completed


class Requeue(Noun, frozen=True):
    """The run goes again: a retry, a snooze, a hand-back that costs no attempt, or after a crash of its own."""

    claim: Claim
    attempt: int
    due: Due = timedelta()
    payload: bytes | None = None  # None: the same arguments
    failure: Failure | None = None
    crashed: bool = False  # its process died under it: one crash more, and at the crash limit it has failed
    unbegun: bool = False  # its body never began: the claim's starts count in no window

    @property
    def poisoned(self) -> Failure:
        """What is recorded if this was one crash too many."""
        crashes, last = self.claim.crashes + 1, self.failure
        message = f"the run crashed {crashes} times" + (f"; the last time: {last}" if last else "")
        return Failure("Poisoned", message, last.traceback if last else "")


Verdict = Settle | Requeue


class Finished(StrEnum):
    """What the store says to a verdict."""

    DONE = "done"
    ALREADY = "already"  # this very verdict was accepted before
    FENCED = "fenced"  # the claim is void; nothing was changed
    YIELDED = "yielded"  # a requeue gave way to another pending run of its key
