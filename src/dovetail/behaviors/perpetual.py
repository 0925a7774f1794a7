"""Perpetual: a task that goes again and again."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from inspect import Parameter
from typing import Any, Self

from dovetail import checks
from dovetail.behaviors.base import Attempt, Outcome
from dovetail.behaviors.roles import CompletionHandler, TaskOutcome
from dovetail.errors import InvalidArgument, PayloadError
from dovetail.model import Due, NewRun, Settle, State, Verdict

NEEDED = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
logger = logging.getLogger("dovetail.worker")


class Perpetual(CompletionHandler["Perpetual"], native=True):
    """After each run, good or bad, schedule the next one, `every` after this one began.

    The end of a run and the next one are written in one unit, so the chain cannot be cut. With `automatic` any worker
    that knows the task starts it, and heals it should it ever be gone.
    """

    def __init__(self, every: timedelta = timedelta(), automatic: bool = False) -> None:
        self.every = every
        self.automatic = checks.truth(automatic, "automatic")
        self.cancelled = False
        self._next: Due | None = None
        self._args: tuple[Any, ...] | None = None
        self._kwargs: dict[str, Any] | None = None

    def check(self, parameters: Mapping[str, Parameter]) -> None:
        needed = [each.name for each in parameters.values() if each.default is each.empty and each.kind in NEEDED]
        if self.automatic and needed:
            raise InvalidArgument(
                f"{type(self).__name__} is automatic, and nobody gives its runs the parameter {needed[0]!r}: give it a"
                " default, or schedule the first run yourself with automatic=False"
            )

    def seed(self, now: datetime) -> Due | None:
        return timedelta() if self.automatic else None

    @property
    def every(self) -> timedelta:
        """From start to start. A body may set another, for the next run."""
        return self._every

    @every.setter
    def every(self, every: timedelta) -> None:
        self._every = checks.duration(every, "every")

    def bind(self, attempt: Attempt) -> Self:
        return self.copy()

    def cancel(self) -> None:
        """Let this run be the last. Its result is kept."""
        self.cancelled = True

    def perpetuate(self, *args: Any, **kwargs: Any) -> None:
        """The arguments of the next run; without this they stay the same."""
        self._args, self._kwargs = args, kwargs

    def after(self, delay: timedelta) -> None:
        """The next run comes after this delay, counted from the end of this one."""
        self._next = checks.duration(delay, "delay")

    def at(self, when: datetime) -> None:
        """The next run comes at this time."""
        self._next = checks.moment(when, "when")

    def next_due(self, attempt: Attempt, outcome: Outcome) -> Due:
        """When the next run comes, if the body did not say."""
        return max(self.every - outcome.took, timedelta())

    async def on_complete(self, execution: Any, outcome: TaskOutcome) -> bool:
        """For subclasses to call: whether there is a next run. Their own answer decides."""
        return not self.cancelled

    def follow_up(self, attempt: Attempt, outcome: Outcome) -> Verdict | None:
        if self.cancelled or self.declined:
            return None
        due = self.next_due(attempt, outcome) if self._next is None else self._next
        successor = self._successor(attempt, due)
        state = State.FAILED if outcome.error else State.COMPLETED
        return Settle(attempt.claim, state, failure=outcome.failure, then=(successor,))

    def _successor(self, attempt: Attempt, due: Due) -> NewRun:
        """The next run. Arguments that cannot be stored do not end the chain: it goes on with the last ones."""
        try:
            return attempt.successor(due, self._args, self._kwargs)
        except PayloadError:
            logger.exception("the next run of %r keeps its arguments", attempt.claim.key)
            return attempt.successor(due)
