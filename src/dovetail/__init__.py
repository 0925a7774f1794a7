"""Dovetail runs Python functions in the background, on the database you already have.

The names are loaded when they are first used, so that what needs few of them starts soon: the command line, and the
plugin that every run of pytest loads.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail.behaviors import Behavior, ExponentialRetry, Perpetual, Retry, Timeout
    from dovetail.docket import Docket, DocketSnapshot, TaskCall
    from dovetail.errors import (
        DovetailError,
        EngineFull,
        EngineUnavailable,
        ExecutionCancelled,
        ExecutionFailed,
        OutcomeUnknown,
        PayloadError,
        ResultExpired,
        UnknownTask,
        UsageError,
    )
    from dovetail.execution import Disposition, Execution, ExecutionState
    from dovetail.injection import (
        CallArgument,
        CurrentDocket,
        CurrentExecution,
        CurrentWorker,
        CycleError,
        Dependency,
        Depends,
        Provided,
        Shared,
        TaskArgument,
        TaskKey,
        TaskLogger,
    )
    from dovetail.worker import Worker

    __version__: str

_HOMES = {
    "Behavior": "dovetail.behaviors",
    "ExponentialRetry": "dovetail.behaviors",
    "Perpetual": "dovetail.behaviors",
    "Retry": "dovetail.behaviors",
    "Timeout": "dovetail.behaviors",
    "Docket": "dovetail.docket",
    "DocketSnapshot": "dovetail.docket",
    "TaskCall": "dovetail.docket",
    "DovetailError": "dovetail.errors",
    "EngineFull": "dovetail.errors",
    "EngineUnavailable": "dovetail.errors",
    "ExecutionCancelled": "dovetail.errors",
    "ExecutionFailed": "dovetail.errors",
    "OutcomeUnknown": "dovetail.errors",
    "PayloadError": "dovetail.errors",
    "ResultExpired": "dovetail.errors",
    "UnknownTask": "dovetail.errors",
    "UsageError": "dovetail.errors",
    "Disposition": "dovetail.execution",
    "Execution": "dovetail.execution",
    "ExecutionState": "dovetail.execution",
    "CallArgument": "dovetail.injection",
    "CurrentDocket": "dovetail.injection",
    "CurrentExecution": "dovetail.injection",
    "CurrentWorker": "dovetail.injection",
    "CycleError": "dovetail.injection",
    "Dependency": "dovetail.injection",
    "Depends": "dovetail.injection",
    "Provided": "dovetail.injection",
    "Shared": "dovetail.injection",
    "TaskArgument": "dovetail.injection",
    "TaskKey": "dovetail.injection",
    "TaskLogger": "dovetail.injection",
    "Worker": "dovetail.worker",
}

__all__ = [
    "Behavior",
    "CallArgument",
    "CurrentDocket",
    "CurrentExecution",
    "CurrentWorker",
    "CycleError",
    "Dependency",
    "Depends",
    "Disposition",
    "Docket",
    "DocketSnapshot",
    "DovetailError",
    "EngineFull",
    "EngineUnavailable",
    "Execution",
    "ExecutionCancelled",
    "ExecutionFailed",
    "ExecutionState",
    "ExponentialRetry",
    "OutcomeUnknown",
    "PayloadError",
    "Perpetual",
    "Provided",
    "ResultExpired",
    "Retry",
    "Shared",
    "TaskArgument",
    "TaskCall",
    "TaskKey",
    "TaskLogger",
    "Timeout",
    "UnknownTask",
    "UsageError",
    "Worker",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value = import_module("importlib.metadata").version("dovetail-tasks")
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        return _module(name)
    globals()[name] = value
    return value


def _module(name: str) -> ModuleType:
    """A module of ours that nobody has imported yet."""
    missing = f"module {__name__!r} has no attribute {name!r}"
    if name.startswith("_"):
        raise AttributeError(missing)
    try:
        return import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{name}":
            raise
        raise AttributeError(missing) from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
