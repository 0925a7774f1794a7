"""Deploying: whether what is queued right now would run with this code."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from dovetail import checks
from dovetail.checks import RESERVED
from dovetail.codec import CallTypes, Codec
from dovetail.codec.demands import Demands
from dovetail.engine import Engine
from dovetail.engine.paging import WHOLE, pages
from dovetail.errors import DovetailError, WrongArgument
from dovetail.model import PENDING, Run, RunQuery
from dovetail.tasks import Task, TaskFunction

EXAMPLES = 5
_PLACE = re.compile(r"\[\d+\]")


class Problem(StrEnum):
    """Why a run could not run. The codes never change."""

    UNKNOWN_TASK = "unknown_task"
    MISSING_ARGUMENT = "missing_argument"
    SURPLUS_ARGUMENT = "surplus_argument"
    WRONG_ARGUMENT = "wrong_argument"  # it does not fit the annotation of its parameter
    UNREADABLE = "unreadable"  # another codec or signing key, or damage


@dataclass(frozen=True, slots=True)
class Misfit:
    """Runs of one task that could not run, all for the same reason."""

    task: str
    problem: Problem
    text: str
    count: int
    keys: tuple[str, ...]  # of some of them


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check of the pending runs found."""

    at: datetime
    checked: int
    findings: tuple[Misfit, ...] = ()
    is_whole: bool = True  # False: there was more than was asked for

    @property
    def is_fit(self) -> bool:
        """Whether everything that was checked would run."""
        return not self.findings

    @property
    def count(self) -> int:
        """How many runs would not run."""
        return sum(finding.count for finding in self.findings)


class Reason(NamedTuple):
    """What is wrong with one run."""

    problem: Problem
    text: str


Group = tuple[str, Reason]
"""A task, and what is wrong with some of its runs."""
Shape = tuple[str | int, ...]
"""A task, how many positional arguments a call has, and the names of the others."""
UNKNOWN = Reason(Problem.UNKNOWN_TASK, "no task of that name is registered")


@dataclass(slots=True)
class Fitting:
    """Binds runs to the tasks of this program. Decides only; knows no store."""

    tasks: Mapping[str, TaskFunction]
    codec: Codec
    checked: int = 0
    _shapes: dict[Shape, Reason | None] = field(default_factory=dict[Shape, Reason | None])
    _counts: Counter[Group] = field(default_factory=Counter[Group])
    _examples: dict[Group, list[str]] = field(default_factory=dict[Group, list[str]])

    def check(self, run: Run) -> None:
        self.checked += 1
        reason = self.reason_against(run)
        if reason is None:
            return
        group = (run.task, reason)
        self._counts[group] += 1
        examples = self._examples.setdefault(group, [])
        if len(examples) < EXAMPLES:
            examples.append(run.key)

    def findings(self) -> tuple[Misfit, ...]:
        """By task, and of each task the most frequent first."""
        groups = sorted(self._counts.items(), key=lambda each: (each[0][0], -each[1]))
        return tuple(
            Misfit(task, reason.problem, reason.text, count, tuple(self._examples[task, reason]))
            for (task, reason), count in groups
        )

    def reason_against(self, run: Run) -> Reason | None:
        """Why a run could not run, or None if it could."""
        function = self.tasks.get(run.task)
        if function is None:
            # Every worker knows the tasks that Dovetail itself schedules.
            return None if run.task.startswith(RESERVED) else UNKNOWN
        task = Task.of(function)
        try:
            args, kwargs = self.codec.load_call(task.types, run.payload, run.task)
        except DovetailError as error:
            return self._unloadable(run, error)
        return self._misshapen(run.task, task, args, kwargs) or _wrong(task, args, kwargs)

    def _misshapen(self, name: str, task: Task, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Reason | None:
        """What is wrong with how many arguments there are, and with their names: calls that are alike in these are
        judged once."""
        shape = (name, len(args), *kwargs)
        if shape not in self._shapes:
            self._shapes[shape] = _misbound(task.types.demands, args, kwargs)
        return self._shapes[shape]

    def _unloadable(self, run: Run, error: DovetailError) -> Reason:
        try:
            self.codec.load_call(CallTypes.unknown(), run.payload, run.task)
        except DovetailError as unreadable:
            return Reason(Problem.UNREADABLE, str(unreadable))
        return Reason(Problem.WRONG_ARGUMENT, _PLACE.sub("[]", str(error)))


def _misbound(demands: Demands | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Reason | None:
    if demands is None:  # it does not tell
        return None
    if surplus := demands.surplus(args, kwargs):
        return Reason(Problem.SURPLUS_ARGUMENT, surplus)
    if missing := demands.missing(args, kwargs):
        return Reason(Problem.MISSING_ARGUMENT, f"the argument {missing!r} is missing")
    return None


def _wrong(task: Task, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Reason | None:
    try:
        task.types.refuse_misfits(args, kwargs)
    except WrongArgument as error:
        return Reason(Problem.WRONG_ARGUMENT, _PLACE.sub("[]", str(error)))
    return None


async def check(
    engine: Engine,
    tasks: Mapping[str, TaskFunction],
    codec: Codec,
    now: datetime,
    limit: int | None,
    progress: Callable[[int], None] | None,
) -> CheckReport:
    """Bind everything that is pending, the oldest first, up to so many runs."""
    if limit is not None:
        checks.whole(limit, "limit", least=1)
    fitting = Fitting(tasks, codec)
    async for page in pages(engine.find, RunQuery(states=PENDING, limit=min(WHOLE, limit or WHOLE))):
        for run in page.items[: None if limit is None else limit - fitting.checked]:
            fitting.check(run)
        if progress is not None:
            progress(fitting.checked)
        if fitting.checked == limit:
            return CheckReport(now, fitting.checked, fitting.findings(), is_whole=page.cursor is None)
    return CheckReport(now, fitting.checked, fitting.findings())
