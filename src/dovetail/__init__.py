"""Dovetail runs Python functions in the background, on the database you already have.

The names are loaded when they are first used, so that what needs few of them starts soon: the command line, and the
plugin that every run of pytest loads.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail.agenda import Agenda
    from dovetail.annotations import Logged
    from dovetail.behaviors import (
        Behavior,
        ConcurrencyLimit,
        Cooldown,
        Cron,
        Debounce,
        ExponentialRetry,
        Fail,
        Perpetual,
        Progress,
        RateLimit,
        Retry,
        Snooze,
        Timeout,
    )
    from dovetail.deploying import CheckReport, Misfit, Problem
    from dovetail.docket import Docket, DocketSnapshot
    from dovetail.errors import (
        CannotDiscard,
        CannotRetry,
        DovetailError,
        DuplicateSchedule,
        DuplicateTask,
        EngineFull,
        EngineUnavailable,
        ExecutionCancelled,
        ExecutionFailed,
        OutcomeUnknown,
        ParentFailed,
        PayloadError,
        ResultExpired,
        UnknownParent,
        UnknownRun,
        UnknownSchedule,
        UnknownTask,
        UsageError,
        WrongArgument,
    )
    from dovetail.execution import Disposition, Execution, ExecutionState, result_of
    from dovetail.graph import Graph, GraphNode
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
        Stopping,
        TaskArgument,
        TaskKey,
        TaskLogger,
        TaskTransaction,
    )
    from dovetail.middleware import Middleware
    from dovetail.model import Finding, Repair, Retention, Severity
    from dovetail.previewing import StrikePreview
    from dovetail.queues import Pause, Queue, QueueInfo
    from dovetail.schedules import Schedule, Schedules
    from dovetail.strikelist import Operator, Strike, StrikeList
    from dovetail.tasks import TaskCall
    from dovetail.tasks.declaring import task
    from dovetail.why import Cause, CauseCode, Why
    from dovetail.worker import Worker

    __version__: str

_NAMES = {
    "dovetail.agenda": ("Agenda",),
    "dovetail.annotations": ("Logged",),
    "dovetail.behaviors": (
        "Behavior",
        "ConcurrencyLimit",
        "Cooldown",
        "Cron",
        "Debounce",
        "ExponentialRetry",
        "Fail",
        "Perpetual",
        "Progress",
        "RateLimit",
        "Retry",
        "Snooze",
        "Timeout",
    ),
    "dovetail.docket": (
        "Docket",
        "DocketSnapshot",
    ),
    "dovetail.errors": (
        "CannotDiscard",
        "CannotRetry",
        "DovetailError",
        "DuplicateSchedule",
        "DuplicateTask",
        "EngineFull",
        "EngineUnavailable",
        "ExecutionCancelled",
        "ExecutionFailed",
        "OutcomeUnknown",
        "ParentFailed",
        "PayloadError",
        "ResultExpired",
        "UnknownParent",
        "UnknownRun",
        "UnknownSchedule",
        "UnknownTask",
        "UsageError",
        "WrongArgument",
    ),
    "dovetail.execution": (
        "Disposition",
        "Execution",
        "ExecutionState",
        "result_of",
    ),
    "dovetail.graph": (
        "Graph",
        "GraphNode",
    ),
    "dovetail.injection": (
        "CallArgument",
        "CurrentDocket",
        "CurrentExecution",
        "CurrentWorker",
        "CycleError",
        "Dependency",
        "Depends",
        "Provided",
        "Shared",
        "Stopping",
        "TaskArgument",
        "TaskKey",
        "TaskLogger",
        "TaskTransaction",
    ),
    "dovetail.deploying": ("CheckReport", "Misfit", "Problem"),
    "dovetail.middleware": ("Middleware",),
    "dovetail.model": (
        "Finding",
        "Repair",
        "Retention",
        "Severity",
    ),
    "dovetail.previewing": ("StrikePreview",),
    "dovetail.queues": (
        "Pause",
        "Queue",
        "QueueInfo",
    ),
    "dovetail.schedules": (
        "Schedule",
        "Schedules",
    ),
    "dovetail.strikelist": (
        "Operator",
        "Strike",
        "StrikeList",
    ),
    "dovetail.tasks": ("TaskCall",),
    "dovetail.tasks.declaring": ("task",),
    "dovetail.why": ("Cause", "CauseCode", "Why"),
    "dovetail.worker": ("Worker",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "Agenda",
    "Behavior",
    "CallArgument",
    "CannotDiscard",
    "CannotRetry",
    "Cause",
    "CauseCode",
    "CheckReport",
    "ConcurrencyLimit",
    "Cooldown",
    "Cron",
    "CurrentDocket",
    "CurrentExecution",
    "CurrentWorker",
    "CycleError",
    "Debounce",
    "Dependency",
    "Depends",
    "Disposition",
    "Docket",
    "DocketSnapshot",
    "DovetailError",
    "DuplicateSchedule",
    "DuplicateTask",
    "EngineFull",
    "EngineUnavailable",
    "Execution",
    "ExecutionCancelled",
    "ExecutionFailed",
    "ExecutionState",
    "ExponentialRetry",
    "Fail",
    "Finding",
    "Graph",
    "GraphNode",
    "Logged",
    "Middleware",
    "Misfit",
    "Operator",
    "OutcomeUnknown",
    "ParentFailed",
    "Pause",
    "PayloadError",
    "Perpetual",
    "Problem",
    "Progress",
    "Provided",
    "Queue",
    "QueueInfo",
    "RateLimit",
    "Repair",
    "ResultExpired",
    "Retention",
    "Retry",
    "Schedule",
    "Schedules",
    "Severity",
    "Shared",
    "Snooze",
    "Stopping",
    "Strike",
    "StrikeList",
    "StrikePreview",
    "TaskArgument",
    "TaskCall",
    "TaskKey",
    "TaskLogger",
    "TaskTransaction",
    "Timeout",
    "UnknownParent",
    "UnknownRun",
    "UnknownSchedule",
    "UnknownTask",
    "UsageError",
    "Why",
    "Worker",
    "WrongArgument",
    "__version__",
    "result_of",
    "task",
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
