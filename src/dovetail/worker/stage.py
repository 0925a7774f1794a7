"""A task as a worker runs it: with the dependencies that the worker adds, and what its attempts may ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import wraps
from inspect import Parameter
from typing import TYPE_CHECKING, Any

from uncalled_for import get_dependency_parameters

from dovetail.behaviors import Arguments, Attempt, Behavior
from dovetail.errors import ConflictingBehaviors
from dovetail.injection.quick import quick_dependencies
from dovetail.model import Due, NewRun
from dovetail.tasks import REMEMBERED, Task, TaskFunction
from dovetail.tasks.conflicts import declared, refuse_conflicts
from dovetail.tasks.declaring import ATTRIBUTE
from dovetail.worker.reporter import Report

if TYPE_CHECKING:
    from dovetail.docket import Docket


class Stage:
    """One task on one worker."""

    def __init__(self, docket: Docket, function: TaskFunction, added: Mapping[str, Any], report: Report) -> None:
        self._docket = docket
        self._own = Task.of(function)
        _refuse_conflicts(function, added)
        # In a process of its own a task resolves there what it asks for.
        self._is_abroad = self._own.declaration.executor == "process"
        has_own = self._own.has_dependencies and self._is_abroad
        self.resolver = self._with_parameters(function, added) if added or has_own else function
        combined = Task.of(self.resolver)
        # Parameters that are the worker's own: the body does not receive them.
        self.extra = frozenset(combined.signature.parameters) - frozenset(self._own.signature.parameters)
        self.task = replace(
            combined, declaration=self._own.declaration, function=function, signature=self._own.signature,
            types=self._own.types, names=self._own.names, bind=self._own.bind,
            is_async=self._own.is_async and not self._is_abroad,
        )  # fmt: skip
        self.quick = quick_dependencies(self.resolver, but=lambda each: isinstance(each, Behavior))
        self.report = report

    def _with_parameters(self, function: TaskFunction, added: Mapping[str, Any]) -> TaskFunction:
        """A function that asks for what the worker adds, and then for what the task asks for."""

        @wraps(function)
        def resolver(*args: Any, **kwargs: Any) -> Any: ...

        own = self._own.signature.parameters
        first = [Parameter(_free(name, own), Parameter.KEYWORD_ONLY, default=each) for name, each in added.items()]
        elsewhere = _resolved_abroad(function) if self._is_abroad else frozenset[str]()
        rest = [_as_keyword(each) for name, each in own.items() if name not in elsewhere]
        stand_in: Any = resolver
        stand_in.__signature__ = self._own.signature.replace(parameters=[*first, *rest])
        setattr(stand_in, ATTRIBUTE, replace(self._own.declaration, executor=None))
        return resolver

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


def _refuse_conflicts(function: TaskFunction, added: Mapping[str, Any]) -> None:
    try:
        refuse_conflicts(
            [*((f"worker dependency {name!r}", each) for name, each in added.items()), *declared(function)]
        )
    except ConflictingBehaviors as error:
        raise ConflictingBehaviors(f"task {function.__name__!r}: {error}") from None


def _resolved_abroad(function: TaskFunction) -> frozenset[str]:
    asked = get_dependency_parameters(function)
    return frozenset(name for name, each in asked.items() if not isinstance(each, Behavior))


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
