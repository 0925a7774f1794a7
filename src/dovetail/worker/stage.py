"""A task as a worker runs it: with the dependencies that the worker adds, and what its attempts may ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import wraps
from inspect import Parameter
from typing import TYPE_CHECKING, Any

from dovetail.behaviors import Arguments, Attempt
from dovetail.errors import ConflictingBehaviors
from dovetail.model import Due, NewRun
from dovetail.tasks import REMEMBERED, Task, TaskFunction
from dovetail.worker.reporter import Report

if TYPE_CHECKING:
    from dovetail.docket import Docket


class Stage:
    """One task on one worker."""

    def __init__(self, docket: Docket, function: TaskFunction, added: Mapping[str, Any], report: Report) -> None:
        self._docket = docket
        self._own = Task.of(function)
        self.resolver = _with_parameters(function, self._own, added) if added else function
        try:
            combined = Task.of(self.resolver)
        except ConflictingBehaviors as error:
            raise ConflictingBehaviors(f"{error}, and the worker adds {', '.join(added)}") from None
        # Parameters that are the worker's own: the body does not receive them.
        self.extra = frozenset(combined.signature.parameters) - frozenset(self._own.signature.parameters)
        self.task = replace(
            combined, function=function, signature=self._own.signature, types=self._own.types,
            is_async=self._own.is_async,
        )  # fmt: skip
        self.report = report

    def arguments(self, attempt: Attempt) -> Arguments:
        return self._own.bind(attempt.args, attempt.kwargs)

    def successor(self, attempt: Attempt, due: Due, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NewRun:
        docket = self._docket
        return docket.drafter.follow(attempt.claim, self._own, due, args, kwargs, retention=docket.retention)


class Stages:
    """The stages of a worker, each made when it is first needed."""

    def __init__(self, docket: Docket, added: Mapping[str, Any], report: Report) -> None:
        self._docket = docket
        self._added = added
        self._report = report
        self._made: dict[TaskFunction, Stage] = {}

    def of(self, function: TaskFunction) -> Stage:
        stage = self._made.get(function)
        if stage is None:
            if len(self._made) >= REMEMBERED:
                self._made.clear()
            stage = self._made[function] = Stage(self._docket, function, self._added, self._report)
        return stage


def _with_parameters(function: TaskFunction, task: Task, added: Mapping[str, Any]) -> TaskFunction:
    """A function that asks for what the worker adds, and then for what the task asks for."""

    @wraps(function)
    def resolver(*args: Any, **kwargs: Any) -> Any: ...

    own = task.signature.parameters
    first = [Parameter(_free(name, own), Parameter.KEYWORD_ONLY, default=each) for name, each in added.items()]
    rest = [_as_keyword(each) for each in own.values()]
    resolver.__signature__ = task.signature.replace(parameters=[*first, *rest])  # type: ignore[attr-defined]
    return resolver


def _free(name: str, taken: Mapping[str, Any]) -> str:
    return name if name not in taken else _free(f"worker_{name}", taken)


def _as_keyword(parameter: Parameter) -> Parameter:
    """The parameter as one that may come after others that have defaults."""
    if parameter.kind in (Parameter.VAR_KEYWORD, Parameter.KEYWORD_ONLY):
        return parameter
    if parameter.kind is Parameter.VAR_POSITIONAL:
        return Parameter(parameter.name, Parameter.KEYWORD_ONLY, default=())
    default = None if parameter.default is Parameter.empty else parameter.default
    return parameter.replace(kind=Parameter.KEYWORD_ONLY, default=default)
