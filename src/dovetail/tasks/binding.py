"""How the arguments of a call fall to the parameters of its task."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import Parameter, Signature
from typing import Any

from uncalled_for import Dependency, Provided

_PLAIN = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


class Binding:
    """The arguments of a call by parameter name, defaults included; what does not fit is left out.

    Dependencies are no arguments, whether declared or passed, unless they are passed by name.
    """

    def __init__(self, signature: Signature) -> None:
        self._signature = signature
        parameters = signature.parameters.values()
        self._is_plain = all(each.kind in _PLAIN for each in parameters)
        self._names = [each.name for each in parameters if each.kind is Parameter.POSITIONAL_OR_KEYWORD]
        self._known = signature.parameters.keys()
        self._defaults = {
            each.name: each.default
            for each in parameters
            if each.default is not Parameter.empty and not _is_injected(each.default)
        }

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        # This is done for every run. What inspect does for any call takes ten times as long.
        if self._is_plain and len(args) <= len(self._names) and not any(map(_is_injected, args)):
            given = dict(zip(self._names, args, strict=False))
            if kwargs.keys() <= self._known and not (kwargs.keys() & given.keys()):
                return {**self._defaults, **given, **kwargs}
        return self._bind_any(args, kwargs)

    def _bind_any(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            bound = self._signature.bind_partial(*args, **kwargs)
        except TypeError:
            return dict(kwargs)
        bound.apply_defaults()
        # Those that only **kwargs takes are arguments under their own names too.
        given = {name: value for name, value in bound.arguments.items() if name in kwargs or not _is_injected(value)}
        return {**kwargs, **given}


def _is_injected(value: Any) -> bool:
    return isinstance(value, Dependency) or value is Provided
