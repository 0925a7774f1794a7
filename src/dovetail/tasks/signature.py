"""Signatures as people read them."""

from __future__ import annotations

import inspect
from typing import Annotated, Any, get_args, get_origin

from uncalled_for import Dependency, get_signature

__all__ = ["compact_signature", "get_signature", "positional_names"]


def compact_signature(signature: inspect.Signature) -> str:
    """The parameters that a caller gives, in short; whatever is injected is one `...` in the end."""
    given = [each for each in signature.parameters.values() if not isinstance(each.default, Dependency)]
    shown = [_parameter(each) for each in given]
    return ", ".join(shown if len(given) == len(signature.parameters) else [*shown, "..."])


def positional_names(signature: inspect.Signature, count: int) -> list[str]:
    """The parameter to which each of so many positional arguments goes; those without one are left out."""
    names: list[str] = []
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            return [*names, *[name] * (count - len(names))]
        if len(names) == count or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD):
            break
        names.append(name)
    return names


def _parameter(parameter: inspect.Parameter) -> str:
    text = parameter.name
    if parameter.annotation is not parameter.empty:
        text += f": {_type(parameter.annotation)}"
    return text if parameter.default is parameter.empty else f"{text} = {parameter.default!r}"


def _type(annotation: Any) -> str:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
