"""Retry: a run that fails goes again."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any, Never, Self

from dovetail import checks
from dovetail.behaviors.base import Attempt, Outcome
from dovetail.behaviors.raising import Snooze, members_of
from dovetail.behaviors.roles import FailureHandler, TaskOutcome
from dovetail.errors import InvalidArgument
from dovetail.model import Due, Requeue, Verdict

ErrorTypes = type[BaseException] | tuple[type[BaseException], ...]
"""An exception type, or several."""


ATTEMPTS = "dovetail-attempts"
"""The header in which a call says how often it may be tried; empty, for ever."""


class ForcedRetry(Exception):
    """Raised by `retry.after()` and `retry.at()`: the task asks to be tried again."""


class Retry(FailureHandler["Retry"], native=True):
    """Try a run up to `attempts` times in all; None tries for ever.

        async def fetch(url: str, retry: Retry = Retry(attempts=3, delay=timedelta(seconds=5))) -> None: ...

    With `on` only errors of these types are tried again, with `not_on` all but those. In the body, `retry.attempt` is
    the number of this try; `retry.after(delay)` and `retry.at(when)` ask for another, `retry.snooze(delay)` for the
    same once more.
    """

    def __init__(
        self,
        attempts: int | None = 1,
        delay: timedelta = timedelta(),
        *,
        on: ErrorTypes | None = None,
        not_on: ErrorTypes = (),
    ) -> None:
        self.attempts = attempts if attempts is None else checks.whole(attempts, "attempts", least=1)
        self.delay = delay
        self._on = None if on is None else checks.error_types(on, "on")
        self._not_on = checks.error_types(not_on, "not_on")
        if self._on == ():
            raise InvalidArgument(
                "on names no error, so that nothing would be tried again; leave it out for all errors"
            )
        self.attempt = 1
        self._forced: Due | None = None

    @property
    def delay(self) -> timedelta:
        """How long until the next try. A body may set another."""
        return self._delay

    @delay.setter
    def delay(self, delay: timedelta) -> None:
        self._delay = checks.duration(delay, "delay")

    @classmethod
    def forever(cls, delay: timedelta = timedelta()) -> Self:
        """Try until it succeeds."""
        return cls(attempts=None, delay=delay)

    def bind(self, attempt: Attempt) -> Self:
        bound = self.copy()
        bound.attempt = attempt.number
        if ATTEMPTS in attempt.claim.headers:
            told = attempt.claim.headers[ATTEMPTS]
            bound.attempts = int(told) if told.isdecimal() else None
        bound.delay = bound.next_delay()
        return bound

    def after(self, delay: timedelta) -> Never:
        """Give this try up, and try again after the delay. It counts as an attempt."""
        self._forced = checks.duration(delay, "delay")
        raise ForcedRetry(f"asked to be tried again after {delay}")

    def at(self, when: datetime) -> Never:
        """Give this try up, and try again at that time; a time in the past means now."""
        wanted = checks.moment(when, "when")
        self._forced = wanted
        raise ForcedRetry(f"asked to be tried again at {wanted.isoformat()}")

    def in_(self, delay: timedelta) -> Never:
        """The same as `after`."""
        self.after(delay)

    def snooze(self, delay: timedelta | datetime) -> Never:
        """Go again after the delay, or at a time, at no cost: the next try has the number of this one."""
        raise Snooze(delay)

    def covers(self, error: BaseException | None) -> bool:
        """Whether an error is one to be tried again. A group is, if one of its members is, and none is ruled out."""
        members = members_of(error)
        if any(isinstance(each, self._not_on) for each in members):
            return False
        return self._on is None or any(isinstance(each, (*self._on, ForcedRetry)) for each in members)

    def next_delay(self) -> timedelta:
        """How long to wait before the next try. The body finds it in `delay`, and may set another."""
        return self.delay

    async def handle_failure(self, execution: Any, outcome: TaskOutcome) -> bool:
        """For subclasses to call: whether the run is tried again. Their own answer decides."""
        return self._is_tried_again_after(outcome.exception)

    def _is_tried_again_after(self, error: BaseException | None) -> bool:
        if self.attempts is not None and self.attempt >= self.attempts:
            return False
        return (self._on is None and not self._not_on) or self.covers(error)

    def recover(self, attempt: Attempt, outcome: Outcome) -> Verdict | None:
        if self.declined or not self._is_tried_again_after(outcome.error):
            return None
        due = self.delay if self._forced is None else self._forced
        return Requeue(attempt.claim, attempt.number + 1, due, failure=outcome.failure)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(attempts={self.attempts}, delay={self.delay!r})"


class ExponentialRetry(Retry):
    """Try again after a delay that doubles from `minimum_delay` up to `maximum_delay`.

    With `jitter` each delay is drawn between half of it and the whole, so that runs that failed together do not come
    back together.
    """

    def __init__(
        self,
        attempts: int | None = 1,
        minimum_delay: timedelta = timedelta(seconds=1),
        maximum_delay: timedelta = timedelta(seconds=64),
        jitter: bool = False,
        *,
        on: ErrorTypes | None = None,
        not_on: ErrorTypes = (),
    ) -> None:
        super().__init__(attempts, checks.duration(minimum_delay, "minimum_delay"), on=on, not_on=not_on)
        self.minimum_delay = minimum_delay
        self.maximum_delay = checks.duration(maximum_delay, "maximum_delay")
        self.jitter = checks.truth(jitter, "jitter")

    @classmethod
    def forever(
        cls,
        delay: timedelta = timedelta(seconds=1),
        maximum_delay: timedelta = timedelta(seconds=64),
        jitter: bool = False,
    ) -> Self:
        return cls(None, delay, maximum_delay, jitter)

    def next_delay(self) -> timedelta:
        full = self.minimum_delay
        if self.attempt > 1 and full:
            # A power beyond the maximum is never computed: an attempt's number may be huge.
            doublings = min(self.attempt - 1, 128)
            is_capped = 2**doublings >= self.maximum_delay / full
            full = self.maximum_delay if is_capped else full * 2**doublings
        return full * random.uniform(0.5, 1.0) if self.jitter else full
