"""Everything that a parameter can ask for, in one place: dependencies, context values and behaviors."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import uncalled_for
from uncalled_for import (
    get_annotation_dependencies,
    get_dependency_parameters,
    validate_dependencies,
)

from dovetail.behaviors import (
    AdmissionBlocked,
    Behavior,
    CompletionHandler,
    ConcurrencyBlocked,
    ConcurrencyLimit,
    Cooldown,
    Cron,
    Debounce,
    ExponentialRetry,
    FailureHandler,
    ForcedRetry,
    Perpetual,
    Progress,
    RateLimit,
    Retry,
    Runtime,
    TaskOutcome,
    Timeout,
)
from dovetail.execution import Execution
from dovetail.injection import (
    CallArgument,
    CurrentDocket,
    CurrentExecution,
    CurrentWorker,
    CycleError,
    Dependency,
    Depends,
    FailedDependency,
    Provided,
    Provider,
    Shared,
    SharedContext,
    TaskArgument,
    TaskKey,
    TaskLogger,
    current_docket,
    current_execution,
    current_worker,
)
from dovetail.worker import Worker
from dovetail.worker.lines import format_duration

D = TypeVar("D")

DependencyFunction = Callable[..., Any]
"""What `Depends` takes."""


@asynccontextmanager
async def resolved_dependencies(worker: Worker, execution: Execution[Any]) -> AsyncGenerator[dict[str, Any]]:
    """The values that a worker would give to an execution's parameters, for as long as the context is open."""
    variables: list[tuple[ContextVar[Any], Any]] = [
        (current_docket, worker.docket), (current_worker, worker), (current_execution, execution),
    ]  # fmt: skip
    tokens = [(variable, variable.set(value)) for variable, value in variables]
    try:
        async with uncalled_for.resolved_dependencies(execution.function, execution.kwargs) as values:
            yield values
    finally:
        for variable, token in tokens:
            variable.reset(token)


def get_single_dependency_parameter_of_type(function: Callable[..., Any], dependency_type: type[D]) -> D | None:
    """The one dependency of this kind that a function declares, or None."""
    declared: list[Any] = list(get_dependency_parameters(function).values())
    declared += [each for among in get_annotation_dependencies(function).values() for each in among]
    return get_single_dependency_of_type(dict(enumerate(declared)), dependency_type)


def get_single_dependency_of_type(dependencies: dict[Any, Any], dependency_type: type[D]) -> D | None:
    """The one among these that is of this kind, or None."""
    return next((each for each in dependencies.values() if isinstance(each, dependency_type)), None)


__all__ = [
    "AdmissionBlocked",
    "Behavior",
    "CallArgument",
    "CompletionHandler",
    "ConcurrencyBlocked",
    "ConcurrencyLimit",
    "Cooldown",
    "Cron",
    "CurrentDocket",
    "CurrentExecution",
    "CurrentWorker",
    "CycleError",
    "Debounce",
    "Dependency",
    "DependencyFunction",
    "Depends",
    "ExponentialRetry",
    "FailedDependency",
    "FailureHandler",
    "ForcedRetry",
    "Perpetual",
    "Progress",
    "Provided",
    "Provider",
    "RateLimit",
    "Retry",
    "Runtime",
    "Shared",
    "SharedContext",
    "TaskArgument",
    "TaskKey",
    "TaskLogger",
    "TaskOutcome",
    "Timeout",
    "current_docket",
    "current_execution",
    "current_worker",
    "format_duration",
    "get_annotation_dependencies",
    "get_dependency_parameters",
    "get_single_dependency_of_type",
    "get_single_dependency_parameter_of_type",
    "resolved_dependencies",
    "validate_dependencies",
]
