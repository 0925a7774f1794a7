"""Scheduling: a call becomes a run that the store keeps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ParamSpec, Protocol, TypeVar, Unpack, overload

from dovetail import checks
from dovetail.docket.sight import Sight
from dovetail.engine import Enlists
from dovetail.engine.registry import redacted
from dovetail.errors import (
    InvalidArgument,
    UsageError,
)
from dovetail.execution import Disposition, Execution
from dovetail.model import (
    Conflict,
    NewRun,
    Placement,
    Placing,
    new_id,
)
from dovetail.observe.tracing import carried_context
from dovetail.tasks import (
    PLAIN,
    AfterFailure,
    ChosenArguments,
    Flow,
    Options,
    Task,
    TaskCall,
    TaskFunction,
    Unique,
    UniqueOptions,
)
from dovetail.tasks.declaring import name_of
from dovetail.tasks.extras import Extras
from dovetail.tasks.flow import UNSET, Unset, refuse_nameless
from dovetail.telemetry import tell

P = ParamSpec("P")
R = TypeVar("R")


class Scheduled(Protocol[P, R]):
    """What `add` returns: called with the task's own arguments it schedules the call."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Execution[R]]: ...


class Scheduling(Sight):
    """Puts calls down."""

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
            chosen_queue = declared.queue if queue is UNSET else checks.queue(queue)
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
            # A call without a key is called by the id of its first run. One with a key has its id from here too, since
            # runs that are equal in all else start in the order of their ids.
            run_id = new_id()
            return TaskCall(
                known, args, kwargs, chosen or run_id, when, name, chosen_queue, chosen_priority, [run_id], flow,
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
        checks.instance(execution, Execution, "execution must be an Execution")
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
        wanted = checks.members(calls, "calls must be an iterable of what docket.call() returns", but=())
        for call in wanted:
            checks.instance(call, TaskCall, "calls must hold what docket.call(function)(...) returns")
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
            self._docket, call.function, call.args, call.kwargs, key or call.key, when, trace_context=headers,
            function_name=call.function_name,
        )  # fmt: skip


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
    execution.state = placement.state
    if placement.placing is Placing.KEPT:
        execution.disposition = Disposition.ALREADY_SCHEDULED
        return
    execution.disposition = Disposition.SCHEDULED
