"""Dependencies: values that a task's parameters receive when it runs.

Resolution is that of the `uncalled-for` package; what a run knows of itself is added here.
"""

from uncalled_for import (
    CallArgument,
    CycleError,
    Depends,
    FailedDependency,
    Provided,
    Provider,
    Shared,
    SharedContext,
)

from dovetail.injection.context import (
    CurrentDocket,
    CurrentExecution,
    CurrentWorker,
    Dependency,
    TaskArgument,
    TaskKey,
    TaskLogger,
    current_docket,
    current_execution,
    current_worker,
)
from dovetail.injection.stopping import Stopping, ask_to_stop
from dovetail.injection.transaction import TaskTransaction, open_transactions

__all__ = [
    "CallArgument",
    "CurrentDocket",
    "CurrentExecution",
    "CurrentWorker",
    "CycleError",
    "Dependency",
    "Depends",
    "FailedDependency",
    "Provided",
    "Provider",
    "Shared",
    "SharedContext",
    "Stopping",
    "TaskArgument",
    "TaskKey",
    "TaskLogger",
    "TaskTransaction",
    "ask_to_stop",
    "current_docket",
    "current_execution",
    "current_worker",
    "open_transactions",
]
