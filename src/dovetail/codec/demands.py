"""Whether a call has the arguments its function asks for: none missing, none too many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import Parameter, Signature
from typing import Any

_BY_PLACE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_ANY_NUMBER = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


class Demands:
    """What a function asks for of its caller. What it is provided with, nobody has to give."""

    def __init__(self, parameters: Iterable[Parameter], provided: Iterable[str] = ()) -> None:
        provided = set(provided)
        given = [_optional(each) if each.name in provided else each for each in parameters]
        self._signature = Signature(given, __validate_parameters__=False)
        self._places = tuple(each.name for each in given if each.kind in _BY_PLACE)
        self._names = frozenset(each.name for each in given if each.kind in _BY_NAME)
        self._needed = {
            each.name: each for each in given if each.default is Parameter.empty and each.kind not in _ANY_NUMBER
        }.keys()

    def mistake(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        """What is missing or too many in a call, in Python's words."""
        # This is done for every call. What inspect does takes ten times as long.
        if len(args) <= len(self._places) and kwargs.keys() <= self._names:
            given = self._places[: len(args)]
            if self._needed <= {*given, *kwargs} and kwargs.keys().isdisjoint(given):
                return None
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            return str(error)
        return None

    def surplus(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        """What is too many in a call, in Python's words."""
        try:
            self._signature.bind_partial(*args, **kwargs)
        except TypeError as error:
            return str(error)
        return None

    def missing(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        """The first parameter that a call without surplus leaves out."""
        given = self._signature.bind_partial(*args, **kwargs).arguments
        return next((name for name in self._needed if name not in given), None)


def _optional(parameter: Parameter) -> Parameter:
    return parameter if parameter.kind in _ANY_NUMBER else parameter.replace(default=None)
