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
        needed = [each for each in given if each.default is Parameter.empty and each.kind not in _ANY_NUMBER]
        self._signature = Signature(given, __validate_parameters__=False)
        # The two usual ways to call, for which the signature need not be asked.
        self._most = sum(each.kind in _BY_PLACE for each in given)
        self._least = len(needed) if all(each.kind in _BY_PLACE for each in needed) else self._most + 1
        self._needed = frozenset(each.name for each in needed)
        self._names = frozenset(each.name for each in given if each.kind in _BY_NAME)

    def mistake(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        """What is missing or too many in a call, in Python's words."""
        if not kwargs and self._least <= len(args) <= self._most:
            return None
        if not args and self._needed <= kwargs.keys() <= self._names:
            return None
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            return str(error)
        return None


def _optional(parameter: Parameter) -> Parameter:
    return parameter if parameter.kind in _ANY_NUMBER else parameter.replace(default=None)
