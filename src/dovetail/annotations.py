"""Logged: which arguments may be shown in logs. No other ever is."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Self, get_origin, get_type_hints


class Annotation:
    """Something said of a parameter in its `Annotated` metadata."""

    @classmethod
    def annotated_parameters(cls, signature: inspect.Signature) -> Mapping[str, Self]:
        """What a signature says of this kind, by parameter."""
        hints = {name: each.annotation for name, each in signature.parameters.items()}
        return cls._among(hints)

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Mapping[str, Self]:
        """What a function says of this kind, by parameter; annotations written as text are understood too."""
        try:
            return cls._among(get_type_hints(function, include_extras=True))
        except Exception:  # a name that is not known here, or something that is no function
            return cls.annotated_parameters(inspect.signature(function))

    @classmethod
    def _among(cls, hints: Mapping[str, Any]) -> dict[str, Self]:
        found: dict[str, Self] = {}
        for name, hint in hints.items():
            for said in hint.__metadata__ if get_origin(hint) is Annotated else ():
                if isinstance(said, cls):
                    found[name] = said
                elif isinstance(said, type) and issubclass(said, cls):
                    found[name] = said()
        return found


class Logged(Annotation):
    """Lets log lines show this argument; with `length_only`, how long it is.

    async def greet(customer: Annotated[int, Logged], letter: Annotated[str, Logged(length_only=True)]) -> None: ...
    """

    def __init__(self, length_only: bool = False) -> None:
        self.length_only = length_only

    def format(self, argument: Any) -> str:
        """The argument as it is shown."""
        if not self.length_only or not hasattr(argument, "__len__"):
            return repr(argument)
        return _brackets(argument).format(f"len {len(argument)}")


def _brackets(argument: object) -> str:
    if isinstance(argument, dict | set | frozenset):
        return "{{{}}}"
    return "({})" if isinstance(argument, tuple) else "[{}]"
