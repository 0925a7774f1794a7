"""Dovetail runs Python functions in the background, on the database you already have."""

from importlib.metadata import version

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
    TaskTransaction,
)
from dovetail.worker import Worker

__version__ = version("dovetail-tasks")

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
    "TaskTransaction",
    "Timeout",
    "UnknownTask",
    "UsageError",
    "Worker",
    "__version__",
]
