"""What a body may raise to say what becomes of its run."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TypeVar, cast

from dovetail import checks
from dovetail.model import Due

E = TypeVar("E", bound=BaseException)


class Fail(Exception):
    """The run has failed for good: it is not tried again, whatever retry the task declares.

    raise Fail("there is no such account")
    """


class Snooze(Exception):
    """The run goes again after a delay, or at a time. It is no failure and costs no attempt.

    raise Snooze(timedelta(minutes=5))
    """

    def __init__(self, delay: timedelta | datetime) -> None:
        if isinstance(delay, datetime):
            self.due: Due = checks.moment(delay, "delay")
        else:
            demand = "delay must be a timedelta or a datetime, such as timedelta(minutes=5)"
            self.due = checks.duration(checks.instance(delay, timedelta, demand), "delay")
        super().__init__(delay)

    def __str__(self) -> str:
        return f"asked to go again {'at' if isinstance(self.due, datetime) else 'after'} {self.due}"


def raised(kind: type[E], error: BaseException | None) -> E | None:
    """An exception of this kind in an error, alone or among others: a task group raises what its members raised."""
    return next((each for each in members_of(error) if isinstance(each, kind)), None)


def members_of(error: BaseException | None) -> list[BaseException]:
    """The exceptions that an error stands for: itself, or the members of a group, to any depth."""
    if error is None:
        return []
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return [each for member in group.exceptions for each in members_of(member)]
    return [error]
