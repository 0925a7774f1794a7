"""Docket: a named collection of scheduled work over one engine. What users schedule on."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ParamSpec, Protocol, Self, TypeVar, Unpack, overload

from dovetail import checks, deadletters, deploying, doctor, finding, graph, queues
from dovetail.clock import SYSTEM_CLOCK, Clock, from_microseconds
from dovetail.codec import CallTypes, Codec, Keyring, codec_named
from dovetail.deadletters import Failures
from dovetail.deploying import CheckReport
from dovetail.engine import Archives, Engine, Enlists
from dovetail.engine.paging import pages
from dovetail.engine.registry import engine_for, redacted
from dovetail.errors import (
    AlreadyOpen,
    CannotDiscard,
    CannotRetry,
    DovetailError,
    EngineUnavailable,
    InvalidArgument,
    InvalidType,
    UnknownRun,
    UnknownTask,
    UsageError,
)
from dovetail.execution import Disposition, Execution
from dovetail.graph import Graph
from dovetail.middleware import Hooks, Middleware
from dovetail.model import (
    Conflict,
    Finding,
    NewRun,
    Page,
    Placement,
    Placing,
    Repair,
    Retention,
    Revival,
    Run,
    RunQuery,
    State,
    WorkerInfo,
    new_id,
)
from dovetail.observe.tracing import carried_context
from dovetail.queues import QueueInfo
from dovetail.schedules import QUEUE, Schedules, is_tick
from dovetail.strikelist import LiteralOperator, Operator, Strike, StrikeList, StrikePreview
from dovetail.tasks import (
    PLAIN,
    AfterFailure,
    ChosenArguments,
    Drafter,
    Flow,
    Options,
    Task,
    TaskCall,
    TaskFunction,
    Unique,
    UniqueOptions,
    load_collection,
    unregistered,
)
from dovetail.tasks.declaring import name_of, refuse_clash
from dovetail.tasks.extras import Extras
from dovetail.tasks.flow import UNSET, Unset, refuse_nameless
from dovetail.tasks.standard import standard_tasks
from dovetail.telemetry import DocketTelemetry, tell
from dovetail.why import Why
from dovetail.why.gathering import Inquiry

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_URL = "sqlite:///dovetail.db"
EXECUTION_TTL = timedelta(minutes=15)
CLEAR_BATCH = 1000
PAGE = 1000
PENDING = (State.SCHEDULED, State.QUEUED, State.WAITING)


class RunningExecution(Execution[Any]):
    """A run in progress: on which worker, since when."""

    @classmethod
    def of(cls, execution: Execution[Any], run: Run) -> RunningExecution:
        running = cls(
            execution.docket, execution.function, execution.args, execution.kwargs, execution.key, execution.when,
            execution.attempt, function_name=execution.function_name,
        )  # fmt: skip
        running.take_in(run)
        return running

    @property
    def started(self) -> datetime | None:
        return self.started_at


@dataclass(frozen=True, slots=True)
class DocketSnapshot:
    """Everything that waits and runs, at one moment."""

    taken: datetime
    total_tasks: int
    future: Sequence[Execution[Any]]
    running: Sequence[RunningExecution]
    workers: Iterable[WorkerInfo] = field(default_factory=list[WorkerInfo])


class Scheduled(Protocol[P, R]):
    """What `add` returns: called with the task's own arguments it schedules the call."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Execution[R]]: ...


class Docket:
    """A named collection of scheduled work.

        async with Docket(name="emails", url="sqlite:///emails.db") as docket:
            await docket.add(greet, when=tomorrow, key="greet:ann")("ann@example.com")

    Without a URL, DOVETAIL_URL is asked, then ./dovetail.db is used. Dockets of different names never see each other.
    """

    def __init__(
        self,
        name: str | None = None,
        url: str | None = None,
        heartbeat_interval: timedelta = timedelta(seconds=2),
        missed_heartbeats: int = 5,
        execution_ttl: timedelta = EXECUTION_TTL,
        enable_internal_instrumentation: bool = False,
        *,
        retention: timedelta | Retention | None = None,
        durability: str = "durable",
        codec: str | None = None,
        signing: Keyring | None = None,
        clock: Clock = SYSTEM_CLOCK,
        middleware: Iterable[Middleware] = (),
    ) -> None:
        self.name = checks.text(_setting(name, "DOVETAIL_NAME", "docket"), "name")
        self.url = _setting(url, "DOVETAIL_URL", DEFAULT_URL)
        if isinstance(self.url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            checks.text(self.url, "url")
        self.heartbeat_interval = checks.duration(heartbeat_interval, "heartbeat_interval", positive=True)
        self.missed_heartbeats = checks.whole(missed_heartbeats, "missed_heartbeats", least=1)
        self._retention = _retention(execution_ttl, retention)
        if not hasattr(clock, "microseconds"):
            raise InvalidType(f"clock must be a clock of dovetail.clock, not {clock!r}")
        if signing is not None and not isinstance(signing, Keyring):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidType(f"signing must be a Keyring of dovetail.codec, not {type(signing).__name__}")
        self.enable_internal_instrumentation = enable_internal_instrumentation
        self.clock = clock
        self.hooks = Hooks(middleware)
        self.codec: Codec = codec_named(_setting(codec, "DOVETAIL_CODEC", "json"), signing=signing)
        self.tasks: dict[str, TaskFunction] = {task.__name__: task for task in standard_tasks}
        self.drafter = Drafter(self.codec)
        self.strike_list = StrikeList(
            name=self.name, enable_internal_instrumentation=enable_internal_instrumentation, codec=self.codec,
            clock=clock, tasks=self.tasks,
        )  # fmt: skip
        self._schedules = Schedules(self, self._task, self._put_down)
        self._durability = durability
        self._telemetry = DocketTelemetry(self.name)
        self._engine: Engine | None = None
        self._stack: AsyncExitStack | None = None
        # A wrong URL or durability is refused here, before anything is opened.
        self._has_archive = isinstance(self._make_engine(), Archives)
        self._refuse_archive(self._retention, "retention")

    def __repr__(self) -> str:
        return f"<Docket {self.name!r} at {redacted(self.url)!r}>"

    def _make_engine(self) -> Engine:
        return engine_for(self.url, self.name, clock=self.clock, durability=self._durability)

    def _refuse_archive(self, retention: Retention | None, name: str) -> None:
        """An error if records are to go to an archive and the store has none."""
        if retention is not None and retention.archive is not None and not self._has_archive:
            raise UsageError(
                f"{name}: an archive needs a docket in PostgreSQL or SQLite, and this one is kept at"
                f" {redacted(self.url)}; leave archive out, and keep the records for longer instead"
            )

    async def __aenter__(self) -> Self:
        if self._stack is not None:
            raise AlreadyOpen(f"the docket {self.name!r} is open already; leave it before entering it again")
        self._stack = AsyncExitStack()
        try:
            self._engine = await self._stack.enter_async_context(self._make_engine())
            await self._stack.enter_async_context(self.strike_list.following(self._engine))
        except BaseException:
            self._stack = None
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        stack, self._stack, self._engine = self._stack, None, None
        if stack is not None:
            await stack.aclose()

    @property
    def engine(self) -> Engine:
        """The store beneath. Most programs never need it."""
        if self._engine is None:
            raise EngineUnavailable(f"the docket {self.name!r} is not open; use it inside 'async with'")
        return self._engine

    def _now(self) -> datetime:
        return from_microseconds(self.clock.microseconds())

    @property
    def retention(self) -> Retention:
        """How long the records of runs that are over are kept, and how many, where the task does not say."""
        return self._retention

    @property
    def execution_ttl(self) -> timedelta:
        """How long the record of a run that completed is kept."""
        return self._retention.completed

    @execution_ttl.setter
    def execution_ttl(self, duration: timedelta) -> None:
        self._retention = _retention(duration, None)

    @property
    def prefix(self) -> str:
        """The name, as programs put it before names of their own."""
        return self.name

    def labels(self) -> dict[str, str]:
        return {"docket.name": self.name}

    # Registering

    def register(self, function: TaskFunction, names: Iterable[str] | None = None) -> None:
        """Make a task known, under its own name or under those given."""
        checks.callable_task(function, "function")
        task = Task.of(function)
        name = checks.text(task.name, "function's name")
        self._refuse_archive(task.declaration.retention, f"the retention of the task {name!r}")
        known_as = checks.texts(names, "names") if names is not None else []
        if not known_as:
            refuse_clash(name, self.tasks.get(name), function)
        for each in known_as or [name]:
            self.tasks[each] = function

    def register_collection(self, collection_path: str) -> None:
        """Register every function of a collection, named as `module:member`."""
        for function in load_collection(checks.text(collection_path, "collection_path")):
            self.register(function)

    # Scheduling

    @overload
    def add(
        self,
        function: Callable[P, Awaitable[R]],
        when: datetime | None = None,
        key: str | None = None,
        *,
        connection: Any = None,
        **options: Unpack[UniqueOptions],
    ) -> Scheduled[P, R]: ...
    @overload
    def add(
        self,
        function: Callable[P, R],
        when: datetime | None = None,
        key: str | None = None,
        *,
        connection: Any = None,
        **options: Unpack[UniqueOptions],
    ) -> Scheduled[P, R]: ...
    @overload
    def add(
        self,
        function: str,
        when: datetime | None = None,
        key: str | None = None,
        *,
        connection: Any = None,
        **options: Unpack[UniqueOptions],
    ) -> Scheduled[..., Any]: ...
    def add(
        self,
        function: TaskFunction | str,
        when: datetime | None = None,
        key: str | None = None,
        *,
        queue: str | Unset = UNSET,
        priority: int | Unset = UNSET,
        group: str | None = None,
        after: Iterable[Any] = (),
        after_failure: AfterFailure = "cancel",
        tags: Iterable[str] | Unset = UNSET,
        metadata: Mapping[str, Any] | None = None,
        attempts: int | Unset | None = UNSET,
        timeout: timedelta | None = None,
        unique: Unique = "live",
        unique_by: Iterable[str] = (),
        connection: Any = None,
    ) -> Any:
        """Schedule a call: now, or at a time, and after other runs. A key that is taken keeps the newcomer out.

        `docket.add(send, when=tomorrow)("ann@example.com")` returns an Execution; its `disposition` says what happened.
        An Execution among the arguments is waited for, and the task receives its result.
        With a `connection` to the docket's own database it is scheduled in the transaction that is open there.
        """
        extras = Extras(metadata, attempts, timeout)
        call = self._call(
            function, when, key, queue, priority, group, after, after_failure, tags, extras, unique, unique_by
        )

        async def schedule(*args: Any, **kwargs: Any) -> Execution[Any]:
            return await self._schedule_one(call(*args, **kwargs), None, connection)

        return schedule

    @overload
    def replace(
        self,
        function: Callable[P, Awaitable[R]],
        when: datetime,
        key: str,
        *,
        connection: Any = None,
        **options: Unpack[Options],
    ) -> Scheduled[P, R]: ...
    @overload
    def replace(
        self,
        function: Callable[P, R],
        when: datetime,
        key: str,
        *,
        connection: Any = None,
        **options: Unpack[Options],
    ) -> Scheduled[P, R]: ...
    @overload
    def replace(
        self, function: str, when: datetime, key: str, *, connection: Any = None, **options: Unpack[Options]
    ) -> Scheduled[..., Any]: ...
    def replace(
        self,
        function: TaskFunction | str,
        when: datetime,
        key: str,
        *,
        queue: str | Unset = UNSET,
        priority: int | Unset = UNSET,
        group: str | None = None,
        after: Iterable[Any] = (),
        after_failure: AfterFailure = "cancel",
        tags: Iterable[str] | Unset = UNSET,
        metadata: Mapping[str, Any] | None = None,
        attempts: int | Unset | None = UNSET,
        timeout: timedelta | None = None,
        connection: Any = None,
    ) -> Any:
        """Schedule a call in the place of whatever waits under the key. A run in progress goes on."""
        checks.moment(when, "when")
        extras = Extras(metadata, attempts, timeout)
        call = self._call(
            function, when, checks.text(key, "key"), queue, priority, group, after, after_failure, tags, extras
        )

        async def schedule(*args: Any, **kwargs: Any) -> Execution[Any]:
            return await self._schedule_one(call(*args, **kwargs), Conflict.REPLACE, connection)

        return schedule

    @overload
    def call(
        self,
        function: Callable[P, Any],
        when: datetime | None = None,
        key: str | None = None,
        **options: Unpack[UniqueOptions],
    ) -> Callable[P, TaskCall]: ...
    @overload
    def call(
        self,
        function: str,
        when: datetime | None = None,
        key: str | None = None,
        **options: Unpack[UniqueOptions],
    ) -> Callable[..., TaskCall]: ...
    def call(
        self,
        function: TaskFunction | str,
        when: datetime | None = None,
        key: str | None = None,
        *,
        queue: str | Unset = UNSET,
        priority: int | Unset = UNSET,
        group: str | None = None,
        after: Iterable[Any] = (),
        after_failure: AfterFailure = "cancel",
        tags: Iterable[str] | Unset = UNSET,
        metadata: Mapping[str, Any] | None = None,
        attempts: int | Unset | None = UNSET,
        timeout: timedelta | None = None,
        unique: Unique = "live",
        unique_by: Iterable[str] = (),
    ) -> Any:
        """A call to be scheduled later, with others: nothing reaches the store yet."""
        extras = Extras(metadata, attempts, timeout)
        return self._call(
            function, when, key, queue, priority, group, after, after_failure, tags, extras, unique, unique_by
        )

    def _call(
        self,
        function: TaskFunction | str,
        when: datetime | None,
        key: str | None,
        queue: str | Unset,
        priority: int | Unset,
        group: str | None,
        after: Iterable[Any],
        after_failure: AfterFailure,
        tags: Iterable[str] | Unset,
        extras: Extras,
        unique: Unique = "live",
        unique_by: Iterable[str] = (),
    ) -> Callable[..., TaskCall]:
        known, name, task = self._task(function)
        declared = task.declaration
        try:
            if when is not None:
                checks.moment(when, "when")
            if key is not None:
                checks.text(key, "key")
            chosen_queue = declared.queue if queue is UNSET else checks.text(queue, "queue")
            chosen_priority = declared.priority if priority is UNSET else checks.whole(priority, "priority")
            headers = extras.headers(task)
        except UsageError as error:
            raise type(error)(f"task {name!r}: {error}") from None
        is_plain = group is None and after == () and after_failure == "cancel" and tags is UNSET and not headers
        if is_plain and unique == "live" and unique_by == ():
            flow, keyed = PLAIN, None
        else:
            flow = Flow.of(group, after, after_failure, unique, tags, headers)
            keyed = _keyed(task, name, key, unique, unique_by)

        def make(*args: Any, **kwargs: Any) -> TaskCall:
            chosen = key if keyed is None else keyed.key_of(args, kwargs)
            # A call without a key is called by the id of its first run.
            run_id = new_id()
            return TaskCall(
                known, args, kwargs, chosen or run_id, when, name, chosen_queue, chosen_priority,
                [] if chosen else [run_id], flow,
            )  # fmt: skip

        return make

    async def add_many(
        self, calls: Iterable[TaskCall], *, chunk_size: int | None = 1000, connection: Any = None
    ) -> list[Execution[Any]]:
        """Schedule many calls with few round trips, in the order given. Each stands for itself, as with `add`, except
        that calls of which some wait for others are scheduled together or not at all."""
        return await self._schedule_many(calls, None, chunk_size, connection)

    async def replace_many(
        self, calls: Iterable[TaskCall], *, chunk_size: int | None = 1000, connection: Any = None
    ) -> list[Execution[Any]]:
        """As `add_many`, but each takes the place of whatever waits under its key."""
        return await self._schedule_many(calls, Conflict.REPLACE, chunk_size, connection)

    async def schedule(self, execution: Execution[R], *, replace: bool = False) -> Execution[R]:
        """Put a ready-made execution down, as `add` would, or `replace`."""
        if not isinstance(execution, Execution):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidType(f"execution must be an Execution, not {execution!r}")
        call = TaskCall(
            execution.function, execution.args, execution.kwargs, execution.key, execution.when,
            execution.function_name,
        )  # fmt: skip
        with self._telemetry.scheduling("schedule", call) as span:
            await self._put_ready_made(execution, call, replace)
            tell(span, execution)
        self._telemetry.put_down(execution)
        return execution

    async def _put_ready_made(self, execution: Execution[Any], call: TaskCall, replace: bool) -> None:
        if self.hooks.around_enqueues:
            (call,) = await self.hooks.before_enqueues([call])
        if self.strike_list.is_clear or not await self.strike_list.strikes_out(execution):
            run = self._draft(call, Conflict.REPLACE if replace else Conflict.KEEP, carried_context())
            (placement,) = await self.engine.schedule([run.but(attempt=execution.attempt)])
            _note(execution, run, placement)
        if self.hooks.around_enqueues:
            await self.hooks.after_enqueues([execution])

    def _task(self, function: TaskFunction | str) -> tuple[TaskFunction, str, Task]:
        if isinstance(function, str):
            if function not in self.tasks:
                raise UnknownTask(
                    f"Task {function!r} is not registered on the docket {self.name!r}; call docket.register() with the"
                    " function, or pass the function itself"
                )
            known = self.tasks[function]
            return known, function, Task.of(known)
        if not hasattr(function, "__name__"):
            checks.callable_task(function, "function")  # which says what is wrong with it
        task = Task.of(function)
        if self.tasks.get(task.name) is not function:
            self.register(function)
        return function, task.name, task

    def _draft(self, call: TaskCall, conflict: Conflict | None, carried: Mapping[str, str]) -> NewRun:
        """The run of a call, which says itself what becomes of it when its key is taken, unless that is said here."""
        run_id = call.fresh.pop() if call.fresh else None
        due = timedelta() if call.when is None else call.when
        flow = call.flow
        task = Task.of(call.function)
        task.types.refuse_misfits(call.args, call.kwargs)
        run = self.drafter.draft(
            task, call.function_name or name_of(call.function), call.args, call.kwargs,
            id=run_id, key=call.key, due=due, conflict=conflict or flow.conflict, retention=self.retention,
            queue=call.queue, priority=call.priority, group=flow.group, after=flow.after,
            after_failure=flow.after_failure, tags=flow.tags, headers=flow.headers,
        )  # fmt: skip
        return run.but(headers={**run.headers, **carried}) if carried else run

    async def _schedule_one(self, call: TaskCall, conflict: Conflict | None, connection: Any) -> Execution[Any]:
        replaces = conflict is Conflict.REPLACE
        with self._telemetry.scheduling("replace" if replaces else "add", call) as span:
            execution = await self._put_one(call, conflict, connection)
            tell(span, execution)
        self._telemetry.scheduled(execution, replaces=replaces, enlisted=connection is not None)
        return execution

    async def _put_one(self, call: TaskCall, conflict: Conflict | None, connection: Any) -> Execution[Any]:
        if self.hooks.around_enqueues:
            (execution,) = await self._put_many([call], conflict, 1, connection)
            return execution
        if not self.strike_list.is_clear and await self.strike_list.strikes_out(struck := self._execution(call)):
            return struck
        run = self._draft(call, conflict, carried_context())
        (placement,) = await self._put_down([run], connection)
        return self._placed(call, run, placement)

    async def _put_down(self, runs: list[NewRun], connection: Any) -> list[Placement]:
        if connection is None:
            return await self.engine.schedule(runs)
        if not isinstance(self.engine, Enlists):
            raise UsageError(
                "connection= needs a docket in a database with transactions, PostgreSQL or SQLite, and this one is"
                f" kept at {redacted(self.url)}; leave it out and schedule once your transaction is committed"
            )
        return await self.engine.schedule_within(connection, runs)

    async def _schedule_many(
        self, calls: Iterable[TaskCall], conflict: Conflict | None, chunk_size: int | None, connection: Any
    ) -> list[Execution[Any]]:
        if chunk_size is not None:
            checks.whole(chunk_size, "chunk_size", least=1)
        if not isinstance(calls, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidType(f"calls must be an iterable of what docket.call() returns, not {calls!r}")
        wanted = list(calls)
        for call in wanted:
            if not isinstance(call, TaskCall):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidType(f"calls must hold what docket.call(function)(...) returns, not {call!r}")
        replaces = conflict is Conflict.REPLACE
        with self._telemetry.scheduling_many("replace_many" if replaces else "add_many", len(wanted)) as span:
            executions = await self._put_many(wanted, conflict, chunk_size, connection)
            struck = sum(each.disposition is Disposition.STRUCK for each in executions)
            span.set_attribute("docket.batch.stricken", struck)
        self._telemetry.scheduled_many(executions, replaces=replaces, enlisted=connection is not None)
        return executions

    async def _put_many(
        self, wanted: list[TaskCall], conflict: Conflict | None, chunk_size: int | None, connection: Any
    ) -> list[Execution[Any]]:
        if self.hooks.around_enqueues:
            wanted = await self.hooks.before_enqueues(wanted)
        struck = {} if self.strike_list.is_clear else await self._struck(wanted)
        allowed = [call for place, call in enumerate(wanted) if place not in struck]
        # Everything is drafted before anything is sent: a call that cannot be stored leaves none behind.
        carried = carried_context()
        runs = [self._draft(call, conflict, carried) for call in allowed]
        hang_together = any(run.after for run in runs)
        size = max(len(runs), 1) if hang_together or chunk_size is None else chunk_size
        placements: list[Placement] = []
        for start in range(0, len(runs), size):
            placements += await self._put_down(runs[start : start + size], connection)
        placed = map(self._placed, allowed, runs, placements)
        executions = [struck[place] if place in struck else next(placed) for place in range(len(wanted))]
        if self.hooks.around_enqueues:
            await self.hooks.after_enqueues(executions)
        return executions

    async def _struck(self, calls: Sequence[TaskCall]) -> dict[int, Execution[Any]]:
        """Those of the calls that are stricken, by their place."""
        handles = enumerate(map(self._execution, calls))
        return {place: each for place, each in handles if await self.strike_list.strikes_out(each)}

    def _placed(self, call: TaskCall, run: NewRun, placement: Placement) -> Execution[Any]:
        execution = self._execution(call, run.key, run.headers or None)
        _note(execution, run, placement)
        return execution

    def _execution(
        self, call: TaskCall, key: str | None = None, headers: Mapping[str, str] | None = None
    ) -> Execution[Any]:
        when = call.when or self._now()
        return Execution(
            self, call.function, call.args, call.kwargs, key or call.key, when, trace_context=headers,
            function_name=call.function_name,
        )  # fmt: skip

    # Schedules

    @property
    def schedules(self) -> Schedules:
        """Calls that come again at set times, kept in the store."""
        return self._schedules

    # Controlling

    async def cancel(self, key: str) -> None:
        """Cancel what waits or runs under a key. A running task is asked to stop; one that is over is left alone."""
        with self._telemetry.doing("cancel", key=checks.text(key, "key")):
            await self.engine.cancel([key])
        self._telemetry.cancelled()

    async def clear(self) -> int:
        """Cancel everything that waits, and say how much that was. Running tasks go on, and schedules stay."""
        cleared = 0
        with self._telemetry.doing("clear"):
            async for page in pages(self.engine.find, RunQuery(states=PENDING, limit=CLEAR_BATCH)):
                # A run that has started in the meantime goes on.
                answers = await self.engine.cancel([run.key for run in page if not is_tick(run)], running=False)
                cleared += sum(answer == "cancelled" for answer in answers)
        self._telemetry.cancelled(cleared)
        return cleared

    # Queues

    async def pause(
        self, queue: str, reason: str | None = None, owner: str | None = None, until: datetime | None = None
    ) -> None:
        """Let nothing of a queue start, until it is resumed or the time has come. What runs goes on, and calls can be
        scheduled as before."""
        await queues.pause(self.engine, self._now(), queue, reason, owner, until)

    async def resume(self, queue: str) -> None:
        """Let a paused queue go on. One that is not paused goes on as it did."""
        await queues.resume(self.engine, queue)

    async def queues(self) -> list[QueueInfo]:
        """Every queue that holds runs or is paused: how many in which state, since when work waits, who paused it."""
        # Schedules wait in a queue of their own, which concerns nobody unless it was paused.
        return [each for each in await queues.queues(self.engine) if each.name != QUEUE or each.is_paused]

    # Dead letters

    async def failed(
        self,
        *,
        task: TaskFunction | str | None = None,
        queue: str | None = None,
        group: str | None = None,
        since: datetime | None = None,
        before: datetime | None = None,
        error: str | None = None,
        tags: Iterable[str] = (),
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Execution[Any]]:
        """The runs that failed and are kept, the newest first: of a task, a queue or a group, in a time, with a text in
        their error, with all these tags. The `cursor` of a page asks for the next one."""
        failures = self._failures(task, queue, group, since, before, error, tags)
        page = await deadletters.page_of(self.engine, failures, limit, cursor)
        return Page([self.execution_of(run) for run in page], page.cursor)

    async def retry(
        self,
        key: str | Execution[Any],
        *,
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> Execution[Any]:
        """Run again what is over, with a clean slate, and with it the dependents that its end had cancelled. With
        `args` or `kwargs` it has these arguments and no others."""
        run = await self._run_of(key)
        if not run.state.is_terminal:
            raise CannotRetry(f"the run {run.key!r} is {run.state}; only one that is over can be run again")
        payload = self._payload(run.task, args, kwargs)
        (revived,) = await self.engine.revive([Revival(run.id, payload)])
        if not revived:
            raise CannotRetry(f"the run {run.key!r} cannot be run again: another run holds its key")
        execution = self.execution_of(run if payload is None else run.but(payload=payload))
        await execution.sync()
        return execution

    async def retry_failed(
        self,
        *,
        task: TaskFunction | str | None = None,
        queue: str | None = None,
        group: str | None = None,
        since: datetime | None = None,
        before: datetime | None = None,
        error: str | None = None,
        tags: Iterable[str] = (),
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> int:
        """Run again all that failed and is meant, and say how many that were. One whose key another run holds is left
        as it is. New arguments, the same for all, need the task to be named."""
        failures = self._failures(task, queue, group, since, before, error, tags)
        if failures.task is None and not (args is None and kwargs is None):
            raise InvalidArgument("args and kwargs are the arguments of one task; say which with task=")
        payload = self._payload(failures.task or "", args, kwargs)
        return await deadletters.revive_all(self.engine, failures, payload)

    async def discard(self, key: str | Execution[Any]) -> None:
        """Drop the record of a run that is over, at once. Dependents that its end had cancelled stay as they are."""
        run = await self._run_of(key)
        if not run.state.is_terminal:
            raise CannotDiscard(
                f"the run {run.key!r} is {run.state}; only one that is over can be discarded: cancel it, or wait for it"
            )
        (gone,) = await self.engine.discard([run.id])
        if not gone:
            raise CannotDiscard(f"the run {run.key!r} was run again, or its record was dropped, in this moment")

    async def discard_failed(
        self,
        *,
        task: TaskFunction | str | None = None,
        queue: str | None = None,
        group: str | None = None,
        since: datetime | None = None,
        before: datetime | None = None,
        error: str | None = None,
        tags: Iterable[str] = (),
    ) -> int:
        """Drop the records of all that failed and is meant, and say how many that were."""
        failures = self._failures(task, queue, group, since, before, error, tags)
        return await deadletters.discard_all(self.engine, failures)

    def _failures(
        self,
        task: TaskFunction | str | None,
        queue: str | None,
        group: str | None,
        since: datetime | None,
        before: datetime | None,
        error: str | None,
        tags: Iterable[str],
    ) -> Failures:
        labels = tuple(checks.texts(tags, "tags"))
        return Failures(self._name_of(task), queue, group, since, before, error, labels)

    def _payload(self, name: str, args: Iterable[Any] | None, kwargs: Mapping[str, Any] | None) -> bytes | None:
        if args is None and kwargs is None:
            return None
        function, _, _ = self._task(name)
        return deadletters.payload_of(self.codec, function, args, kwargs)

    def _name_of(self, task: TaskFunction | str | None) -> str | None:
        return task if task is None or isinstance(task, str) else self._task(task)[1]

    # Striking

    async def strike(
        self,
        function: TaskFunction | str | None = None,
        parameter: str | None = None,
        operator: Operator | LiteralOperator = "==",
        value: Any = None,
        *,
        reason: str | None = None,
        owner: str | None = None,
        until: datetime | None = None,
    ) -> None:
        """Forbid calls: all of a task, all with such an argument, or those of a task with such an argument.

        They are not scheduled, and what waits is cancelled when it would start. What runs goes on. A strike is in force
        until it is restored, or until its time is over.
        """
        with self._telemetry.doing("strike", **self._words(function, parameter, operator)):
            await self.strike_list.strike(function, parameter, operator, value, reason=reason, owner=owner, until=until)

    async def restore(
        self,
        function: TaskFunction | str | None = None,
        parameter: str | None = None,
        operator: Operator | LiteralOperator = "==",
        value: Any = None,
    ) -> None:
        """Allow again what a strike of the same words forbade. What it has cancelled does not come back."""
        with self._telemetry.doing("restore", **self._words(function, parameter, operator)):
            await self.strike_list.restore(function, parameter, operator, value)

    def _words(self, function: Any, parameter: Any, operator: Any) -> dict[str, str | None]:
        """What a span says of a strike: not the value, which may be anybody's name."""
        task = function if function is None or isinstance(function, str) else getattr(function, "__name__", None)
        return {"task": task, "parameter": parameter, "operator": str(operator) if parameter else None}

    async def strikes(self) -> list[Strike]:
        """The strikes that are in force."""
        return await self.strike_list.strikes()

    def preview_strike(
        self,
        function: TaskFunction | str | None = None,
        parameter: str | None = None,
        operator: Operator | LiteralOperator = "==",
        value: Any = None,
    ) -> StrikePreview:
        """What waits and would be kept from starting by such a strike. Nothing is stricken."""
        strike = self.strike_list.draft(function, parameter, operator, value)
        return StrikePreview(strike, self.engine.find, self.execution_of)

    async def wait_for_strikes_loaded(self) -> None:
        """Until the strikes laid so far are known here."""
        await self.strike_list.wait_for_strikes_loaded()

    # Reading back

    async def get_execution(self, key: str) -> Execution[Any] | None:
        """The newest run of a key, or None if there is no record of one."""
        page = await self.engine.find(RunQuery.newest_of(checks.text(key, "key")))
        return self.execution_of(page.items[0]) if page.items else None

    async def find(
        self,
        *,
        states: Iterable[State | str] = (),
        tasks: Iterable[TaskFunction | str] = (),
        queues: Iterable[str] = (),
        groups: Iterable[str] = (),
        tags: Iterable[str] = (),
        key_prefix: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        error: str | None = None,
        newest_first: bool = True,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Execution[Any]]:
        """Runs of any kind that are kept, a page at a time. All that is given must hold: a run is in one of the states,
        of one of the tasks, queues and groups, and carries all the tags. The `cursor` of a page asks for the next."""
        query = finding.query_of(
            states, self._names_of(tasks), queues, groups, tags, key_prefix, created_after, created_before, error,
            newest_first, limit, cursor,
        )  # fmt: skip
        page = await self.engine.find(query)
        return Page([self.execution_of(run) for run in page], page.cursor)

    def _names_of(self, tasks: Iterable[TaskFunction | str]) -> tuple[str, ...]:
        if isinstance(tasks, str) or not isinstance(tasks, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidType(f"tasks must be a list of functions or names, not {tasks!r}")
        return tuple(checks.text(self._name_of(each), "each of tasks") for each in tasks)

    async def graph(self, key: str | Execution[Any], *, at_most: int = 10_000) -> Graph:
        """What hangs on what: the run of a key, all that it waits for, and all that hangs on those, to any depth."""
        checks.whole(at_most, "at_most", least=1)
        return await graph.graph(self.engine, await self._run_of(key), at_most)

    async def why(self, key: str | Execution[Any]) -> Why:
        """Why a run is not running: all causes that hold, the decisive one first. A key that nobody knows is an answer
        too."""
        meant = key if isinstance(key, Execution) else checks.text(key, "key")
        silence = self.heartbeat_interval * self.missed_heartbeats
        inquiry = Inquiry(self.engine, self.strike_list, self.tasks, self.execution_of, self._now, silence)
        return await inquiry.why(meant)

    async def check(self, *, limit: int | None = None, progress: Callable[[int], None] | None = None) -> CheckReport:
        """Bind all that is pending to the tasks registered here, and report what would not run: for the moment before a
        deploy. `progress` is told from time to time how many were checked."""
        return await deploying.check(self.engine, self.tasks, self.codec, self._now(), limit, progress)

    async def _run_of(self, key: str | Execution[Any]) -> Run:
        """The run of an execution, or the newest of a key."""
        if isinstance(key, Execution):
            name, run_id = key.key, key.id
        else:
            name, run_id = checks.text(key, "key"), None
        # An execution means its own run, and not whatever has its key by now.
        which = RunQuery.newest_of(name) if run_id is None else RunQuery(ids=(run_id,), limit=1)
        page = await self.engine.find(which)
        found = page.items[0] if page.items else None
        if found is None:
            raise UnknownRun(f"there is no record of a run {name!r} on the docket {self.name!r}")
        return found

    def execution_of(self, run: Run) -> Execution[Any]:
        """A handle on a run that was read from the store."""
        function = self.tasks.get(run.task) or unregistered(run.task)
        types = Task.of(function).types if run.task in self.tasks else CallTypes.unknown()
        args: tuple[Any, ...] = ()
        kwargs: dict[str, Any] = {}
        problem: DovetailError | None = None
        try:
            args, kwargs = self.codec.load_call(types, run.payload)
        except DovetailError as error:
            problem = error  # it can still be seen, cancelled and counted
        execution: Execution[Any] = Execution(
            self, function, args, kwargs, run.key, run.due, run.attempt, run.headers or None,
            run.crashes > 0, run.task,
        )  # fmt: skip
        execution.schedule_exception = problem
        execution.take_in(run)
        return execution

    async def snapshot(self) -> DocketSnapshot:
        """Everything that waits and runs, without a cap. Schedules are listed by `schedules.list()`."""
        taken = self._now()
        pending = await self.find_all(RunQuery(states=PENDING))
        waiting = [self.execution_of(run) for run in pending if not is_tick(run)]
        runs = [run for run in await self.find_all(RunQuery(states=(State.RUNNING,))) if not is_tick(run)]
        running = [RunningExecution.of(self.execution_of(run), run) for run in runs]
        return DocketSnapshot(taken, len(waiting) + len(running), waiting, running, await self.workers())

    async def find_all(self, query: RunQuery) -> list[Run]:
        """All the pages of a query."""
        return [run async for page in pages(self.engine.find, query.but(limit=PAGE)) for run in page]

    async def workers(self) -> Sequence[WorkerInfo]:
        """The workers heard of lately."""
        survey = await self.engine.survey()
        oldest = survey.at - self._silence
        return [worker for worker in survey.workers if worker.last_seen is None or worker.last_seen > oldest]

    async def task_workers(self, task_name: str) -> Sequence[WorkerInfo]:
        """The workers that know a task."""
        checks.text(task_name, "task_name")
        return [worker for worker in await self.workers() if task_name in worker.tasks]

    # Health

    async def examine(self) -> list[Finding]:
        """What is right and wrong with the store, the workers and the runs, the gravest first, and what to do."""
        return await doctor.examine(self.engine, self.clock, self._silence)

    async def repair(self) -> list[Repair]:
        """Put right what can be derived from what is there, and say what that was. Safe while workers run; no run is
        lost by it."""
        return await doctor.repair(self.engine, self._silence)

    @property
    def _silence(self) -> timedelta:
        """After which a worker counts as dead."""
        return self.heartbeat_interval * self.missed_heartbeats


def _keyed(task: Task, name: str, key: str | None, unique: str, unique_by: Iterable[str]) -> ChosenArguments | None:
    """What makes the key of a call out of its arguments, if anything does."""
    if unique_by == ():
        refuse_nameless(unique, key)
        return None
    if key is not None:
        raise InvalidArgument(f"key {key!r} and unique_by both say what the run of {name!r} is called; give one")
    return ChosenArguments(task, name, unique_by)


def _note(execution: Execution[Any], run: NewRun, placement: Placement) -> None:
    """Show on a handle what scheduling did."""
    execution.id = placement.id
    if placement.placing is Placing.KEPT:
        execution.disposition = Disposition.ALREADY_SCHEDULED
        return
    execution.disposition = Disposition.SCHEDULED
    execution.state = placement.state


def _retention(execution_ttl: timedelta, retention: timedelta | Retention | None) -> Retention:
    if retention is None:
        return Retention.of(checks.duration(execution_ttl, "execution_ttl"))
    if execution_ttl is not EXECUTION_TTL:
        raise InvalidArgument("execution_ttl and retention both say how long records are kept; give one")
    return checks.retention(retention, "retention")


def _setting(given: str | None, variable: str, default: str) -> str:
    """What was given, else what the environment says, else the default."""
    if given is not None:
        return given
    return os.environ.get(variable) or default
