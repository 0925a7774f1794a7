"""Assertions on what is scheduled: everything that waits, due or not, and nothing that runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from dovetail import checks
from dovetail.clock import from_microseconds
from dovetail.docket import PENDING, Docket
from dovetail.execution import Execution
from dovetail.model import TERMINAL, RunQuery, State
from dovetail.tasks import Task
from dovetail.tasks.declaring import name_of

Function = Callable[..., Any] | str
SHOWN = 20
"""How many runs a message lists."""


# As docket has them


async def assert_task_scheduled(
    docket: Docket,
    function: Function,
    *,
    args: tuple[Any, ...] | None = None,
    kwargs: dict[str, Any] | None = None,
    key: str | None = None,
) -> None:
    """A call of this task waits, with these positional arguments, at least these named ones, and this key."""
    scheduled = await _scheduled(docket)
    if any(_is_such(each, function, args, kwargs, key) for each in scheduled):
        return
    name = _name(function)
    if not scheduled:
        raise AssertionError(f"task {name} not found: no tasks scheduled on docket {docket.name!r}")
    raise AssertionError(
        f"task {_criteria(name, args, kwargs, key)} not found among what is scheduled:\n{_listed(scheduled)}"
    )


async def assert_task_not_scheduled(
    docket: Docket,
    function: Function,
    *,
    args: tuple[Any, ...] | None = None,
    kwargs: dict[str, Any] | None = None,
    key: str | None = None,
) -> None:
    """No such call waits."""
    found = [each for each in await _scheduled(docket) if _is_such(each, function, args, kwargs, key)]
    if found:
        criteria = _criteria(_name(function), args, kwargs, key)
        raise AssertionError(f"task {criteria} found, and should not be scheduled:\n{_listed(found)}")


async def assert_task_count(docket: Docket, function: Function | None = None, *, count: int) -> None:
    """So many calls wait: of this task, or of all."""
    scheduled = await _scheduled(docket)
    if function is not None:
        scheduled = [each for each in scheduled if each.function_name == _name(function)]
    if len(scheduled) != count:
        whose = "" if function is None else f" of {_name(function)}"
        raise AssertionError(f"Expected {count} scheduled calls{whose}, found {len(scheduled)}\n{_listed(scheduled)}")


async def assert_no_tasks(docket: Docket) -> None:
    """Nothing waits."""
    scheduled = await _scheduled(docket)
    if scheduled:
        raise AssertionError(
            f"Expected no tasks on docket {docket.name!r}, found {len(scheduled)}:\n{_listed(scheduled)}"
        )


# Our own


async def assert_scheduled(
    docket: Docket,
    function: Function,
    /,
    *args: Any,
    key: str | None = None,
    when: datetime | None = None,
    within: timedelta | None = None,
    **kwargs: Any,
) -> Execution[Any]:
    """A call of this task with at least these arguments waits; the first to become due is returned.

        await assert_scheduled(docket, send, "ann@example.com", when=tomorrow, within=timedelta(minutes=1))

    It does not matter whether an argument was passed by position or by name. `when` is the time at which it is due,
    give or take `within`; `within` alone means that it is due no later than that from now.
    """
    wanted = Wanted(docket, function, args, kwargs, key, when, within)
    scheduled = await _scheduled(docket)
    found = [each for each in scheduled if not wanted.differences(each)]
    if found:
        return min(found, key=lambda each: each.when)
    raise AssertionError(await _what_is_there_instead(docket, wanted, scheduled))


class Wanted:
    """A call that is looked for, and how another differs from it."""

    def __init__(
        self,
        docket: Docket,
        function: Function,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        key: str | None,
        when: datetime | None,
        within: timedelta | None,
    ) -> None:
        if when is not None:
            checks.moment(when, "when")
        if within is not None:
            checks.duration(within, "within")
        self.name = _name(function)
        self.names = {self.name, *(name for name, known in docket.tasks.items() if known is function)}
        self._args, self._kwargs = args, dict(kwargs)
        self._key = key
        self._when = when
        self._within = within
        self._now = from_microseconds(docket.clock.microseconds())

    def __str__(self) -> str:
        parts = [*map(repr, self._args), *(f"{name}={value!r}" for name, value in self._kwargs.items())]
        text = f"{self.name}({', '.join(parts)})"
        if self._key is not None:
            text += f" key={self._key!r}"
        if self._when is not None:
            text += f" due {self._when}"
        if self._within is not None:
            text += f" {'give or take' if self._when else 'due within'} {self._within}"
        return text

    def differences(self, execution: Execution[Any]) -> list[str]:
        """What is different about a call; of another task, nothing more is said."""
        if execution.function_name not in self.names:
            return ["task"]
        differences: list[str] = []
        if self._key is not None and execution.key != self._key:
            differences.append("key")
        differences += self._different_arguments(execution)
        if not self._is_in_time(execution.when):
            differences.append("due")
        return differences

    def likeness(self, execution: Execution[Any]) -> tuple[Any, ...]:
        """Sorts calls by how near they come."""
        differences = self.differences(execution)
        aim = self._when or self._now
        return "task" in differences, len(differences), abs(execution.when - aim), execution.key

    def _different_arguments(self, execution: Execution[Any]) -> list[str]:
        wanted = _by_parameter(execution, self._args, self._kwargs)
        given = _by_parameter(execution, execution.args, execution.kwargs)
        return [str(name) for name, value in wanted.items() if name not in given or given[name] != value]

    def _is_in_time(self, due: datetime) -> bool:
        if self._when is not None:
            return abs(due - self._when) <= (self._within or timedelta())
        return self._within is None or due <= self._now + self._within


async def _what_is_there_instead(docket: Docket, wanted: Wanted, scheduled: list[Execution[Any]]) -> str:
    lines = [f"{wanted} is not scheduled on docket {docket.name!r}"]
    if scheduled:
        nearest = sorted(scheduled, key=wanted.likeness)
        lines.append("scheduled are, the nearest first:")
        lines += [f"{_line(each)}  <- other: {', '.join(wanted.differences(each))}" for each in nearest[:SHOWN]]
        lines += _rest(nearest)
    else:
        lines.append("nothing is scheduled")
    begun = await docket.find_all(RunQuery(tasks=tuple(wanted.names), states=(State.RUNNING, *TERMINAL)))
    if begun:
        lines.append("no longer waiting are:")
        lines += [f"{_line(docket.execution_of(run))} {run.state}" for run in begun[:SHOWN]]
    return "\n".join(lines)


# What they share


async def _scheduled(docket: Docket) -> list[Execution[Any]]:
    """Everything that waits, page by page, in the order in which it is due."""
    runs = await docket.find_all(RunQuery(states=PENDING))
    return sorted((docket.execution_of(run) for run in runs), key=lambda each: each.when)


def _name(function: Function) -> str:
    return function if isinstance(function, str) else name_of(function)


def _is_such(
    execution: Execution[Any],
    function: Function,
    args: tuple[Any, ...] | None,
    kwargs: dict[str, Any] | None,
    key: str | None,
) -> bool:
    if execution.function_name != _name(function) or key not in (None, execution.key):
        return False
    if args is not None and execution.args != args:
        return False
    given = execution.kwargs
    return all(name in given and given[name] == value for name, value in (kwargs or {}).items())


def _by_parameter(execution: Execution[Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str | int, Any]:
    """Arguments by the name of their parameter, or, where they do not fit the signature, as they were passed."""
    try:
        return {**Task.of(execution.function).signature.bind_partial(*args, **kwargs).arguments}
    except TypeError:
        return {**dict(enumerate(args)), **kwargs}


def _criteria(name: str, args: tuple[Any, ...] | None, kwargs: dict[str, Any] | None, key: str | None) -> str:
    asked = {"args": args, "kwargs": kwargs, "key": key}
    given = ", ".join(f"{what}={value!r}" for what, value in asked.items() if value is not None)
    return f"{name} with {given}" if given else name


def _listed(executions: list[Execution[Any]]) -> str:
    return "\n".join([*map(_line, executions[:SHOWN]), *_rest(executions)])


def _rest(executions: list[Execution[Any]]) -> list[str]:
    more = len(executions) - SHOWN
    return [f"  ... and {more} more"] if more > 0 else []


def _line(execution: Execution[Any]) -> str:
    parts = [*map(repr, execution.args), *(f"{name}={value!r}" for name, value in execution.kwargs.items())]
    return f"  - {execution.function_name}({', '.join(parts)}) key={execution.key!r} due {execution.when}"
