"""Dovetail runs Python functions in the background, on the database you already have."""

from importlib.metadata import version

from dovetail.agenda import Agenda
from dovetail.annotations import Logged
from dovetail.behaviors import (
    Behavior,
    ConcurrencyLimit,
    Cooldown,
    Cron,
    Debounce,
    ExponentialRetry,
    Perpetual,
    Progress,
    RateLimit,
    Retry,
    Timeout,
)
from dovetail.docket import Docket, DocketSnapshot
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
from dovetail.strikelist import Operator, Strike, StrikeList, StrikePreview
from dovetail.tasks import TaskCall
from dovetail.worker import Worker

__version__ = version("dovetail-tasks")

__all__ = [
    "Agenda",
    "Behavior",
    "CallArgument",
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
    "EngineFull",
    "EngineUnavailable",
    "Execution",
    "ExecutionCancelled",
    "ExecutionFailed",
    "ExecutionState",
    "ExponentialRetry",
    "Logged",
    "Operator",
    "OutcomeUnknown",
    "PayloadError",
    "Perpetual",
    "Progress",
    "Provided",
    "RateLimit",
    "ResultExpired",
    "Retry",
    "Shared",
    "Strike",
    "StrikeList",
    "StrikePreview",
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
