"""A task: a function, read once for all that its runs need to know of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from uncalled_for import (
    get_annotation_dependencies,
    get_dependency_parameters,
    get_signature,
)

from dovetail.annotations import Logged
from dovetail.behaviors import Behavior
from dovetail.codec import CallTypes
from dovetail.errors import ConflictingBehaviors, InvalidType, UsageError
from dovetail.tasks.binding import Binding
from dovetail.tasks.conflicts import declared, refuse_conflicts
from dovetail.tasks.crossing import refuse_what_cannot_cross
from dovetail.tasks.declaring import PLAINLY, Declaration, declaration_of
from dovetail.tasks.refusals import refuse_what_cannot_be

TaskFunction = Callable[..., Any]

REMEMBERED = 5000
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_known: dict[TaskFunction, Task] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """What a function declares: its parameters' types, its behaviors and its dependencies."""

    function: TaskFunction
    signature: inspect.Signature
    names: tuple[str, ...]  # of the parameters that positional arguments fall to
    types: CallTypes
    bind: Binding
    is_async: bool
    behaviors: Mapping[str, Behavior]  # by parameter, as defaults: the parameter receives them
    wrappers: tuple[Behavior, ...] = ()  # in a parameter's metadata, which keeps its value, or on the task itself
    has_dependencies: bool = False
    planners: tuple[Behavior, ...] = field(default=())  # those with something to say when a run is scheduled
    logged: Mapping[str, Logged] = field(default_factory=dict[str, Logged])  # what log lines may show
    enters: bool = False  # whether a behavior is a context manager of its own
    name: str = ""  # what it is called where it was given no other name
    declaration: Declaration = PLAINLY

    @classmethod
    def of(cls, function: TaskFunction) -> Task:
        """The task that a function is; the same one every time."""
        try:
            known = _known.get(function)
        except TypeError:
            raise InvalidType(f"a task must be a function that can be hashed, not {function!r}") from None
        if known is None:
            if len(_known) >= REMEMBERED:
                _known.clear()  # a program that makes its tasks anew for every call must not grow for ever
            known = _known[function] = _read(function)
        return known

    @staticmethod
    def known() -> int:
        """How many functions are remembered."""
        return len(_known)

    @property
    def all_behaviors(self) -> tuple[Behavior, ...]:
        return (*self.behaviors.values(), *self.wrappers)


def _read(function: TaskFunction) -> Task:
    if not callable(function):
        raise InvalidType(f"a task must be a function, not {function!r}")
    name = getattr(function, "__name__", repr(function))
    try:
        parameters = get_dependency_parameters(function)
        metadata = get_annotation_dependencies(function)
        signature = get_signature(function)
        refuse_conflicts(declared(function))
        refuse_what_cannot_be(function, signature, parameters)
        if declaration_of(function).executor == "process":
            refuse_what_cannot_cross(function, parameters, metadata)
    except UsageError as error:
        raise type(error)(f"task {name!r}: {error}") from None
    except (TypeError, ValueError) as error:
        raise ConflictingBehaviors(f"task {name!r}: {error}") from error
    behaviors = {name: each for name, each in parameters.items() if isinstance(each, Behavior)}
    wrappers = tuple(each.on(name) for name, among in metadata.items() for each in among if isinstance(each, Behavior))
    declaration = declaration_of(function)
    wrappers += declaration.behaviors
    others = len(parameters) > len(behaviors) or any(
        not isinstance(each, Behavior) for among in metadata.values() for each in among
    )
    everything: tuple[Behavior, ...] = (*behaviors.values(), *wrappers)
    asked_of_callers = {name: each for name, each in signature.parameters.items() if name not in parameters}
    for behavior in everything:
        try:
            behavior.check(asked_of_callers)
        except UsageError as error:
            raise type(error)(f"task {name!r}: {error}") from None
    return Task(
        function=function,
        signature=signature,
        names=tuple(each.name for each in signature.parameters.values() if each.kind in POSITIONAL),
        types=CallTypes.of(function),
        bind=Binding(signature),
        is_async=_is_async(function),
        behaviors=behaviors,
        wrappers=wrappers,
        has_dependencies=others,
        planners=tuple(each for each in everything if type(each).plan is not Behavior.plan),
        logged=Logged.of(function),
        enters=any(type(each).__aenter__ is not Behavior.__aenter__ for each in everything),
        name=declaration.name or name,
        declaration=declaration,
    )


def _is_async(function: TaskFunction) -> bool:
    if inspect.iscoroutinefunction(function):
        return True
    call = getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__ is a task too
    return inspect.iscoroutinefunction(call)


@lru_cache(maxsize=1_000)
def unregistered(name: str) -> TaskFunction:
    """What stands for a function that this process does not know: the same for all runs of a task, of which there may
    be very many."""

    async def placeholder(*args: Any, **kwargs: Any) -> None:
        raise LookupError(f"the task {name!r} is not registered here")

    placeholder.__name__ = placeholder.__qualname__ = name
    return placeholder
