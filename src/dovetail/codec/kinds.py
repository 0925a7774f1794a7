"""The exact type of a value, and its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# `type` itself, declared so that the type of something unknown is not "unknown" to the type checker.
kind_of: Callable[[Any], type[Any]] = type


def name_of(kind: type[Any]) -> str:
    return kind.__qualname__
