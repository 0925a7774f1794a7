"""What the limits have in common: a key that says which runs share one, and how it is planned."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from inspect import Parameter
from typing import Any, ClassVar, Self, cast

from dovetail import checks
from dovetail.behaviors.base import Arguments, Attempt, Behavior
from dovetail.codec.references import Refers
from dovetail.errors import InvalidArgument, InvalidType
from dovetail.model import Limit, NewRun

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+>")
LONGEST_VALUE = 100
"""Characters of a value that a key shows as they are; a longer value is shown by its hash."""


class Keyed(Behavior):
    """A behavior whose runs share something: all runs of a task, or those with one value of an argument.

    Unless a `scope` is given, tasks share nothing with each other. With one, whatever declares the same scope does.
    """

    kind: ClassVar[str]
    shows_value: ClassVar[bool] = True
    """Whether the key shows a value as it is, or only its hash."""

    def __init__(self, argument: str | None, scope: str | None) -> None:
        self.argument = None if argument is None else checks.text(argument, "argument_name")
        self.scope = None if scope is None else checks.text(scope, "scope")
        self._key: str | None = None

    def on(self, parameter: str) -> Self:
        placed = super().on(parameter)
        placed.argument = self.argument or parameter
        return placed

    def check(self, parameters: Mapping[str, Parameter]) -> None:
        if self.argument is None or self.argument in parameters:
            return
        if any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values()):
            return  # it may come with any name
        known = ", ".join(parameters) or "none"
        raise InvalidArgument(
            f"{type(self).__name__} names the parameter {self.argument!r}, which callers of the task do not give; they"
            f" give {known}"
        )

    def key_for(self, task: str, arguments: Arguments) -> str:
        """What the runs that share something have in common, as text."""
        owner = f"{self.kind}:task:{task}" if self.scope is None else f"{self.kind}:scope:{self.scope}"
        if self.argument is None:
            return _fitting(owner)
        if self.argument not in arguments:
            given = ", ".join(arguments) or "none"
            raise InvalidArgument(
                f"{type(self).__name__} of the task {task!r} needs the argument {self.argument!r}; given were: {given}"
            )
        return _fitting(f"{owner}:{self.argument}={self._value(arguments[self.argument], task)}")

    def _value(self, value: Any, task: str) -> str:
        if isinstance(value, Refers):
            raise InvalidArgument(
                f"{type(self).__name__} of the task {task!r} goes by the argument {self.argument!r}, which has to be"
                " known when the call is scheduled: it cannot be the result of another run"
            )
        text = _written(value, self.argument or "", task)
        return text if self.shows_value and len(text) <= LONGEST_VALUE else _hashed(text)

    def bind(self, attempt: Attempt) -> Self:
        bound = self.copy()
        bound._key = self.key_for(attempt.claim.task, attempt.arguments if self.argument is not None else {})
        return bound


class Limiting(Keyed):
    """A behavior that adds a limit to each run. Which runs may start is then the store's decision, in the claim."""

    def limit(self, key: str) -> Limit:
        raise NotImplementedError

    def plan(self, draft: NewRun, arguments: Arguments) -> NewRun:
        if self.argument is not None and self.argument not in arguments:
            return draft  # the call does not fit the task: the attempt will say so
        return draft.but(limits=_with(self.limit(self.key_for(draft.task, arguments)), draft.limits))


def _with(limit: Limit, others: tuple[Limit, ...]) -> tuple[Limit, ...]:
    """A limit among others. Starts are counted by key, so of two windows under one key the longer gets its own, in
    whatever order they were declared: otherwise every start would count twice for both."""
    twin = next((each for each in others if each.key == limit.key), None)
    if twin is None or twin.window is None or limit.window is None:
        return (*others, limit)
    shorter, longer = (twin, limit) if twin.window <= limit.window else (limit, twin)
    apart = longer.but(key=_fitting(f"{longer.key}:per={longer.window}"))
    return _with(apart, (*(each for each in others if each is not twin), shorter))


def _written(value: Any, argument: str, task: str) -> str:
    """A value as it tells itself apart from others."""
    text = _repr(value)
    if _ADDRESS.search(text):
        raise InvalidType(
            f"the argument {argument!r} of the task {task!r} is or holds an object whose repr() says where it lies in"
            f" memory and not what it is ({type(value).__name__}); limit by an argument that can be told apart, or"
            " give the class a __repr__"
        )
    return text


def _repr(value: Any) -> str:
    """The repr of a value, the same for equal ones: the members of sets and dicts come in no order that counts."""
    if type(value) in (set, frozenset):
        return f"set({', '.join(sorted(map(_repr, value)))})"
    if type(value) is dict:
        items = cast("dict[Any, Any]", value).items()
        return f"{{{', '.join(sorted(f'{_repr(key)}: {_repr(each)}' for key, each in items))}}}"
    if type(value) in (list, tuple):
        return f"{type(value).__name__}({', '.join(map(_repr, value))})"
    return repr(value)


def _fitting(key: str) -> str:
    """A key that every store can keep."""
    if len(key) <= checks.LONGEST_TEXT:
        return key
    return f"{key.partition(':')[0]}:{_hashed(key)}"


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()
