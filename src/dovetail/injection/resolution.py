"""Resolving what a task's parameters ask for, around its body."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from uncalled_for import FailedDependency, resolved_dependencies


@asynccontextmanager
async def resolved(function: Callable[..., Any], given: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
    """The values for a function's dependencies. What is given is not resolved; all failures are raised together."""
    async with resolved_dependencies(function, given) as values:
        failed = [value for value in values.values() if isinstance(value, FailedDependency)]
        if failed:
            names = ", ".join(each.parameter for each in failed)
            raise ExceptionGroup(
                f"Failed to resolve dependencies for parameter(s): {names}", [each.error for each in failed]
            )
        yield {name: value for name, value in values.items() if name not in given}
