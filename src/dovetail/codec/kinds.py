"""The exact type of a value, its name, and the fields that it declares."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, cast

# `type` itself, declared so that the type of something unknown is not "unknown" to the type checker.
kind_of: Callable[[Any], type[Any]] = type


def name_of(kind: type[Any]) -> str:
    return kind.__qualname__


def fields_of(kind: Any) -> tuple[str, ...]:
    """The names of the fields of a dataclass, a struct or a NamedTuple; () for anything else."""
    if not isinstance(kind, type):
        return ()
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    name = "_fields" if issubclass(kind, tuple) else "__struct_fields__"
    return getattr(cast("type[Any]", kind), name, ())
