"""Execution: the handle a caller, or a running task, holds on a run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeGuard, TypeVar, cast, overload

from dovetail import checks
from dovetail.codec.references import Reference, Refers
from dovetail.errors import ExecutionCancelled, InvalidArgument, PayloadError, ResultExpired
from dovetail.failures import failed
from dovetail.model import Event, EventKind, Run, RunQuery, State, Topic, tags_of
from dovetail.observe.text import escaped
from dovetail.observe.tracing import links_of
from dovetail.progress import ExecutionProgress, ProgressEvent
from dovetail.subscribing import StateEvent, is_known, news_of, progress_now, state_now
from dovetail.tasks import Task, TaskCall, TaskFunction, compact_signature, get_signature, positional_names
from dovetail.tasks.declaring import name_of
from dovetail.tasks.extras import metadata_of

if TYPE_CHECKING:
    from opentelemetry.trace import Link

    from dovetail.docket import Docket

__all__ = [
    "Disposition",
    "Execution",
    "ExecutionCancelled",
    "ExecutionProgress",
    "ExecutionState",
    "ProgressEvent",
    "StateEvent",
    "TaskCall",
    "TaskFunction",
    "compact_signature",
    "get_signature",
    "result_of",
    "schedule_many",
]

R = TypeVar("R")

ExecutionState = State
"""The states of a run, by docket's name for them."""

LOOKING = 10.0
"""Seconds that a look at what is there may take, even for one who has no time to wait."""
HINT_SETTLES = 0.2
"""Seconds that the news may take to follow the hint that there is some."""
LOOK_AGAIN = 2.0
"""Seconds after which a waiter reads for itself, should an event have been lost."""


class Disposition(StrEnum):
    """What scheduling did."""

    LOADED = "loaded"  # this handle does not come from scheduling
    SCHEDULED = "scheduled"
    ALREADY_SCHEDULED = "already_scheduled"  # the key was taken, and the run that holds it stays
    STRUCK = "struck"
    SUPERSEDED = "superseded"
    FAILED = "failed"


class Execution(Refers, Generic[R]):
    """One scheduled call of a task: what was asked for, and, as last read, what became of it."""

    def __init__(
        self,
        docket: Docket,
        function: TaskFunction,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        key: str,
        when: datetime,
        attempt: int = 1,
        trace_context: Any = None,
        redelivered: bool = False,
        function_name: str | None = None,
        generation: int = 0,
        message_id: str | None = None,
    ) -> None:
        self._docket = docket
        self._function = function
        self._function_name = function_name or name_of(function)
        self._args = args
        self._kwargs = dict(kwargs)
        self._key = key
        self._trace_context = trace_context
        self._redelivered = redelivered
        self._generation = generation
        self.when = when
        self.attempt = attempt
        self.message_id = message_id
        self.id: str | None = None  # the run's own id, once the store has it
        self.state = State.SCHEDULED
        self.disposition = Disposition.LOADED
        self.schedule_exception: BaseException | None = None
        self.worker: str | None = None
        self.started_at: datetime | None = None
        self.completed_at: datetime | None = None
        self.error: str | None = None
        self.result_key: str | None = None  # None if no result is kept
        self.run: Run | None = None  # the whole record, as last read
        self._progress: ExecutionProgress | None = None

    @property
    def docket(self) -> Docket:
        return self._docket

    @property
    def function(self) -> TaskFunction:
        return self._function

    @property
    def function_name(self) -> str:
        return self._function_name

    @property
    def args(self) -> tuple[Any, ...]:
        return self._args

    @property
    def kwargs(self) -> dict[str, Any]:
        return self._kwargs

    @property
    def key(self) -> str:
        return self._key

    @property
    def trace_context(self) -> Any:
        return self._trace_context

    @property
    def tags(self) -> tuple[str, ...]:
        """The labels that the run carries."""
        return tags_of(self._trace_context or {})

    @property
    def metadata(self) -> dict[str, Any]:
        """What the caller noted with `add(..., metadata=...)`. The task is not given it."""
        return metadata_of(self._trace_context or {})

    @property
    def redelivered(self) -> bool:
        return self._redelivered

    @property
    def generation(self) -> int:
        return self._generation

    @property
    def progress(self) -> ExecutionProgress:
        """How far the run is, as last read."""
        if self._progress is None:
            self._progress = ExecutionProgress(self._docket, self._key)
            if self.run is not None:
                self._progress.take_in(self.run.progress)
        return self._progress

    def __repr__(self) -> str:
        return f"<Execution {self.call_repr()} {self.state}>"

    # Describing

    def get_argument(self, parameter: str) -> Any:
        """An argument as the caller gave it; a KeyError if it was not given."""
        bound = Task.of(self._function).signature.bind_partial(*self._args, **self._kwargs)
        if parameter in bound.arguments:
            return bound.arguments[parameter]
        return self._kwargs[parameter]

    def call_repr(self) -> str:
        """The call as it may be logged: only arguments that are `Logged` show their value."""
        task = Task.of(self._function)
        names = positional_names(task.signature, len(self._args))
        positional = [_shown(task, *each) for each in zip(names, self._args, strict=False)]
        named = [f"{name}={_shown(task, name, value)}" for name, value in self._kwargs.items()]
        # A key, or what a value says of itself, must not forge another line of the log.
        return escaped(f"{self._function_name}({', '.join([*positional, *named])}){{{self._key}}}")

    def general_labels(self) -> dict[str, Any]:
        return {"docket.task": self._function_name}

    def specific_labels(self) -> dict[str, Any]:
        return {
            **self.general_labels(),
            "docket.key": self._key,
            "docket.when": self.when.isoformat(),
            "docket.attempt": self.attempt,
        }

    def incoming_span_links(self) -> list[Link]:
        """A link to the span in which the run was scheduled; none if there was none."""
        return links_of(self._trace_context)

    # Scheduling

    @property
    def reference(self) -> Reference:
        """What stands for the run where it is an argument of another."""
        if self.disposition is Disposition.STRUCK:
            raise InvalidArgument(f"{self.call_repr()} was stricken and never scheduled: nothing can wait for it")
        return Reference(self.id, self._key)

    async def schedule(self, replace: bool = False) -> Disposition:
        """Put the call down on its docket, as `docket.add` would, or `docket.replace`."""
        await self._docket.schedule(self, replace=replace)
        return self.disposition

    # Reading

    async def is_superseded(self) -> bool:
        """Whether a newer run has the key: a body that is slow can ask, and stop."""
        if self.id is None:
            return False
        page = await self._docket.engine.find(RunQuery.newest_of(self._key))
        return bool(page.items) and page.items[0].id != self.id

    async def sync(self) -> None:
        """Read what has become of the run."""
        self.take_in(await self._read())

    async def _read(self) -> Run | None:
        """The run itself, or, where a newer one has taken its place, that."""
        engine = self._docket.engine
        if self.id is not None:
            page = await engine.find(RunQuery(ids=(self.id,), limit=1))
            if page.items:
                return page.items[0]
        page = await engine.find(RunQuery.newest_of(self._key))
        return page.items[0] if page.items else None

    def take_in(self, run: Run | None) -> None:
        """Show what the store said."""
        self.run = run
        if self._progress is not None:
            self._progress.take_in(run.progress if run else None)
        if run is None:
            self.state = State.SCHEDULED
            self.worker = self.started_at = self.completed_at = self.error = self.result_key = None
            return
        self.id = run.id
        self.state = run.state
        self.when = run.due
        self.attempt = run.attempt
        self.worker = run.worker
        self.started_at = run.started
        self.completed_at = run.finished
        self.error = run.error
        self.result_key = None if run.result is None else f"{run.key}:{run.epoch}"
        self._generation = run.epoch

    # Waiting

    async def get_result(self, *, timeout: timedelta | None = None, deadline: datetime | None = None) -> R:
        """Wait until the run is over and return its result, or raise what it failed with.

        The time limit is for waiting: of a run that is over already the result is told even if there is none left.
        """
        seconds = _seconds_left(timeout, deadline)
        until = None if seconds is None else asyncio.get_running_loop().time() + seconds
        try:
            async with asyncio.timeout(None if seconds is None else max(seconds, LOOKING)):
                run = await self._if_over()
            if run is None:
                async with asyncio.timeout_at(until):
                    run = await self._wait_for_end()
        except ResultExpired:
            raise
        except TimeoutError:
            raise TimeoutError(f"Timeout waiting for execution {self._key!r} to complete") from None
        return self._outcome(run)

    async def _if_over(self) -> Run | None:
        """The run, if it is over already."""
        state, error = self.state, self.error
        await self.sync()
        if self.run is None and state.is_terminal:
            raise self._gone(state, error)
        return self.run if self.run is not None and self.run.state.is_terminal else None

    async def _wait_for_end(self) -> Run:
        # Subscribe first, then read, then wait: an end in between is seen by the read.
        async with self._docket.engine.watch(Topic(EventKind.STATE, self._key)) as events:
            last: Run | None = None
            while True:
                run = await self._read()
                if run is not None:
                    self.take_in(run)
                    if run.state.is_terminal:
                        return run
                last = run or last
                event = await _next(events, LOOK_AGAIN) if last is not None else None
                if last is not None and _is_end(event, last):
                    ended = await self._ended(event, last)
                    if ended.state.is_terminal:
                        return ended
                if run is None and event is None:
                    raise self._expired()

    async def _ended(self, event: Event, last: Run) -> Run:
        """A run that is over, or back at work. The end itself comes with its event, in case the record is not kept."""
        found = await self._docket.engine.find(RunQuery(ids=(last.id,), limit=1))
        if not found.items and event.has_result and event.state is State.COMPLETED:
            raise self._expired()
        ended = found.items[0] if found.items else last.but(state=event.state, error=event.error)
        self.take_in(ended)
        return ended

    def _gone(self, state: State, error: str | None) -> Exception:
        """What to say of a run whose record is gone: how it ended, if that was known here."""
        if state is State.FAILED and error is not None:
            return failed(error, None, None)
        if state is State.CANCELLED:
            return _cancelled(self._key, error)
        return self._expired()

    def _expired(self) -> ResultExpired:
        return ResultExpired(
            f"the run {self._key!r} is over and its record is no longer kept; give the docket a longer execution_ttl to"
            " fetch results"
        )

    def _outcome(self, run: Run) -> R:
        codec, types = self._docket.codec, Task.of(self._function).types
        if run.state is State.CANCELLED:
            raise _cancelled(run.key, run.error)
        if run.state is State.FAILED:
            if run.result is not None:
                raise codec.load_exception(run.result)
            raise failed(run.error, run.errors[-1].failure if run.errors else None, run)
        if run.result is not None:
            return codec.load_result(types, run.result)
        if run.error is not None:
            raise PayloadError(f"the run {run.key!r} completed, but its result could not be stored: {run.error}")
        return cast(R, None)

    async def subscribe(self, *, ready: asyncio.Event | None = None) -> AsyncIterator[StateEvent | ProgressEvent]:
        """The present state and progress, then every change as it happens."""
        await self.sync()
        before = self.run
        yield state_now(self._key, before)
        yield progress_now(self._key, before)
        topics = (Topic(EventKind.STATE, self._key), Topic(EventKind.PROGRESS, self._key))
        async with self._docket.engine.watch(*topics) as events:
            now = await self._read()
            self.take_in(now)
            if ready is not None:
                ready.set()
            if state_now(self._key, now) != state_now(self._key, before):
                yield state_now(self._key, now)
            if progress_now(self._key, now) != progress_now(self._key, before):
                yield progress_now(self._key, now)
            told = now.state if now else None
            hinted = False
            while True:
                event = await _next(events, HINT_SETTLES if hinted else None)
                # After a hint that something has changed, the news itself mostly follows: a read is the last resort.
                hinted = event is not None and event.state is None and event.progress is None
                if event is not None and not hinted and not is_known(event, now):
                    told = event.state or told
                    yield news_of(self._key, event)
                    now = None  # from here on every event is news
                elif event is None and (now := await self._read()) is not None and now.state is not told:
                    told = now.state
                    yield state_now(self._key, now)


async def schedule_many(
    redis: Any, executions: Iterable[Execution[Any]], *, replace: bool, chunk_size: int | None = 1000
) -> None:
    """Put ready-made executions down, each on its own docket. For docket's users: what it calls a connection is not
    needed, and `Docket.add_many` takes few round trips where this takes many."""
    if chunk_size is not None:
        checks.whole(chunk_size, "chunk_size", least=1)
    for execution in executions:
        await execution.schedule(replace=replace)


@overload
def result_of(execution: Execution[R]) -> R: ...
@overload
def result_of(execution: Refers) -> Any: ...
def result_of(execution: Refers) -> Any:
    """The execution itself, which as an argument means its result; to type checkers it is the result.

    await docket.add(charge)(result_of(order))
    """
    return checks.instance(execution, Refers, "execution must be an Execution, or what docket.call() returns")


def _cancelled(key: str, why: str | None) -> ExecutionCancelled:
    return ExecutionCancelled(f"the run {key!r} was cancelled{f': {why}' if why else ''}")


def _shown(task: Task, name: str, value: Any) -> str:
    if name not in task.logged:
        return "..."
    try:
        return task.logged[name].format(value)
    except Exception as error:  # how a value shows itself is its own affair
        return f"<{type(value).__name__}: no repr, {type(error).__name__}>"


async def _next(events: AsyncIterator[Event], within: float | None) -> Event | None:
    """The next event, or None if it is time to look without one."""
    try:
        async with asyncio.timeout(within):
            return await anext(events)
    except TimeoutError:
        return None


def _is_end(event: Event | None, run: Run) -> TypeGuard[Event]:
    return event is not None and event.id == run.id and event.state is not None and event.state.is_terminal


def _seconds_left(timeout: timedelta | None, deadline: datetime | None) -> float | None:
    """How long may be waited; None for as long as it takes."""
    if timeout is not None and deadline is not None:
        raise InvalidArgument("Cannot specify both timeout and deadline; give one of them")
    if timeout is not None:
        return checks.instance(timeout, timedelta, "timeout must be a timedelta").total_seconds()
    if deadline is not None:
        return (checks.moment(deadline, "deadline") - datetime.now(UTC)).total_seconds()
    return None
