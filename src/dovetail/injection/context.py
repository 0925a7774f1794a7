"""What a run knows of itself: its docket, its worker, its key, its logger."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import uncalled_for
from uncalled_for import Provider, current_frame

from dovetail.errors import UsageError

if TYPE_CHECKING:
    from dovetail.docket import Docket
    from dovetail.execution import Execution
    from dovetail.worker import Worker

T = TypeVar("T", covariant=True)

current_docket: ContextVar[Docket] = ContextVar("dovetail_docket")
current_worker: ContextVar[Worker] = ContextVar("dovetail_worker")
current_execution: ContextVar[Execution[Any]] = ContextVar("dovetail_execution")


class Dependency(uncalled_for.Dependency[T]):
    """The base of dependencies of one's own: an async context manager whose value the parameter receives.

    A class method `worker_lifecycle(docket, worker)` may return an async context manager (or None): every worker that
    knows a task with such a dependency enters it when it starts, and leaves it when it ends.
    """

    docket: ClassVar[ContextVar[Docket]] = current_docket
    worker: ClassVar[ContextVar[Worker]] = current_worker
    execution: ClassVar[ContextVar[Execution[Any]]] = current_execution


class ContextValue(Provider[T]):
    """A value that is read off the run at hand. If it belongs to the worker, it is not to be had in another process."""

    def __init__(self, name: str, read: Callable[[], T], *, is_the_workers: bool = False) -> None:
        self.name = name
        self.is_the_workers = is_the_workers
        self._read = read

    def read(self) -> T:
        try:
            return self._read()
        except LookupError:
            raise UsageError(f"{self.name} has a value only while a worker runs a task") from None

    async def __aenter__(self) -> T:
        return self.read()


def CurrentDocket() -> Docket:
    """The docket the running task was scheduled on."""
    return cast("Docket", ContextValue("CurrentDocket()", current_docket.get, is_the_workers=True))


def CurrentWorker() -> Worker:
    """The worker that runs the task."""
    return cast("Worker", ContextValue("CurrentWorker()", current_worker.get, is_the_workers=True))


def CurrentExecution() -> Execution[Any]:
    """The execution at hand: its key, attempt, arguments and times."""
    return cast("Execution[Any]", ContextValue("CurrentExecution()", current_execution.get))


def TaskKey() -> str:
    """The key of the running task."""
    return cast(str, ContextValue("TaskKey()", lambda: current_execution.get().key))


def TaskLogger() -> logging.LoggerAdapter[logging.Logger]:
    """A logger for this task that names the run in every record."""
    return cast("logging.LoggerAdapter[logging.Logger]", ContextValue("TaskLogger()", _logger))


def _logger() -> logging.LoggerAdapter[logging.Logger]:
    execution = current_execution.get()
    labels = {**current_worker.get().labels(), **execution.specific_labels()}
    return logging.LoggerAdapter(logging.getLogger(f"dovetail.task.{execution.function_name}"), labels)


class _TaskArgument(Provider[Any]):
    """An argument that the caller gave."""

    def __init__(self, parameter: str | None, optional: bool) -> None:
        self.parameter = parameter
        self.optional = optional

    def for_parameter(self, name: str) -> _TaskArgument:
        if self.parameter is not None:
            return self
        return type(self)(name, self.optional)

    async def __aenter__(self) -> Any:
        if self.parameter is None:
            raise ValueError("No parameter name specified")
        own = current_frame().parameters.get(self.parameter)
        if isinstance(own, _TaskArgument) and own.parameter is None:
            raise ValueError("No parameter name specified")  # it stands on the task itself, and would mean itself
        try:
            return current_execution.get().get_argument(self.parameter)
        except KeyError:
            if self.optional:
                return None
            raise


def TaskArgument(parameter: str | None = None, optional: bool = False) -> Any:
    """An argument that the caller of the task gave; None, if it is optional and was not given."""
    return cast(Any, _TaskArgument(parameter, optional))
