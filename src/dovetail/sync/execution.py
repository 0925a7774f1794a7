"""Execution: the handle that a sync program holds on a run."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast, overload

import dovetail.execution
from dovetail.codec.references import Reference, Refers
from dovetail.execution import Disposition, StateEvent
from dovetail.model import Run, State
from dovetail.progress import ExecutionProgress as AsyncProgress
from dovetail.progress import ProgressEvent
from dovetail.sync.portal import PORTALS
from dovetail.tasks import TaskFunction

if TYPE_CHECKING:
    from dovetail.sync.docket import Docket

T = TypeVar("T")
R = TypeVar("R")

AsyncExecution = dovetail.execution.Execution


class Shown(Generic[T]):
    """A value of the handle beneath, as it is there now."""

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> Self: ...
    @overload
    def __get__(self, instance: Any, owner: type[Any]) -> T: ...
    def __get__(self, instance: Any, owner: type[Any]) -> Self | T:
        return self if instance is None else getattr(instance._handle, self._name)


class Execution(Refers, Generic[R]):
    """One scheduled call of a task: what was asked for, and, as last read, what became of it."""

    __slots__ = ("_docket", "_handle")

    def __init__(self, docket: Docket, handle: AsyncExecution[R]) -> None:
        self._docket = docket
        self._handle = handle

    # What was asked for
    function = Shown[TaskFunction]()
    function_name = Shown[str]()
    args = Shown[tuple[Any, ...]]()
    kwargs = Shown[Mapping[str, Any]]()
    key = Shown[str]()
    when = Shown[datetime]()
    trace_context = Shown[Any]()
    tags = Shown[tuple[str, ...]]()
    metadata = Shown[dict[str, Any]]()

    # What became of it, as last read
    id = Shown[str | None]()
    state = Shown[State]()
    disposition = Shown[Disposition]()
    attempt = Shown[int]()
    worker = Shown[str | None]()
    started_at = Shown[datetime | None]()
    completed_at = Shown[datetime | None]()
    error = Shown[str | None]()
    result_key = Shown[str | None]()
    redelivered = Shown[bool]()
    generation = Shown[int]()
    schedule_exception = Shown[BaseException | None]()
    run = Shown[Run | None]()

    def __repr__(self) -> str:
        return repr(self._handle)

    @property
    def docket(self) -> Docket:
        return self._docket

    @property
    def handle(self) -> AsyncExecution[R]:
        """The async handle beneath."""
        return self._handle

    @property
    def reference(self) -> Reference:
        """What stands for the run where it is an argument of another."""
        return self._handle.reference

    @property
    def progress(self) -> ExecutionProgress:
        """How far the run is, as last read."""
        return ExecutionProgress(self._docket, self._handle.progress)

    def get_argument(self, parameter: str) -> Any:
        """An argument as the caller gave it; a KeyError if it was not given."""
        return self._handle.get_argument(parameter)

    def call_repr(self) -> str:
        """The call as it may be logged: only arguments that are `Logged` show their value."""
        return self._handle.call_repr()

    def schedule(self, replace: bool = False) -> Disposition:
        """Put the call down on its docket, as `docket.add` would, or `docket.replace`."""
        return self._docket.carry(lambda _: self._handle.schedule(replace))

    def is_superseded(self) -> bool:
        """Whether a newer run has the key: a body that is slow can ask, and stop."""
        return self._docket.carry(lambda _: self._handle.is_superseded())

    def sync(self) -> None:
        """Read what has become of the run."""
        self._docket.carry(lambda _: self._handle.sync())

    def get_result(self, *, timeout: timedelta | None = None, deadline: datetime | None = None) -> R:
        """Wait until the run is over and return its result, or raise what it failed with."""
        return self._docket.carry(lambda _: self._handle.get_result(timeout=timeout, deadline=deadline), may_wait=True)

    def subscribe(self) -> Iterator[StateEvent | ProgressEvent]:
        """The present state and progress, then every change as it happens."""
        return iterated(self._docket, lambda: self._handle.subscribe())


class RunningExecution(Execution[Any]):
    """A run in progress: on which worker, since when."""

    __slots__ = ()

    started = Shown[datetime | None]()


class ExecutionProgress:
    """The progress of a run, as last read; anyone may add to it while the run is running."""

    __slots__ = ("_docket", "_handle")

    def __init__(self, docket: Docket, handle: AsyncProgress) -> None:
        self._docket = docket
        self._handle = handle

    key = Shown[str]()
    current = Shown[int | None]()
    total = Shown[int]()
    message = Shown[str | None]()
    updated_at = Shown[datetime | None]()

    def sync(self) -> None:
        """Read how far the run is."""
        self._docket.carry(lambda _: self._handle.sync())

    def set_total(self, total: int) -> None:
        """How many steps there are in all."""
        self._docket.carry(lambda _: self._handle.set_total(total))

    def increment(self, amount: int = 1) -> None:
        """So many steps further."""
        self._docket.carry(lambda _: self._handle.increment(amount))

    def set_message(self, message: str | None) -> None:
        """What is being done; None takes the last message away."""
        self._docket.carry(lambda _: self._handle.set_message(message))

    def subscribe(self) -> Iterator[ProgressEvent]:
        """Every change of the progress, as it happens."""
        return iterated(self._docket, lambda: self._handle.subscribe())


def iterated(docket: Docket, start: Callable[[], Any]) -> Iterator[Any]:
    """What an async generator yields, one by one."""
    events = cast("AsyncGenerator[Any]", start())
    try:
        while True:
            try:
                event = docket.carry(lambda _: _next(events), may_wait=True)
            except StopAsyncIteration:
                return
            yield event
    finally:
        PORTALS.post(lambda: _ended(events))


def _next(events: AsyncGenerator[T]) -> Coroutine[Any, Any, T]:
    async def following() -> T:
        return await anext(events)

    return following()


async def _ended(events: AsyncGenerator[Any]) -> None:
    await events.aclose()
