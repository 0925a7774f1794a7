"""Schedules of a docket: made, looked at, altered and taken away while workers run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from datetime import datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypedDict, Unpack, overload

from dovetail import checks
from dovetail.clock import from_microseconds
from dovetail.codec import CallTypes
from dovetail.errors import (
    DovetailError,
    DuplicateSchedule,
    EngineUnavailable,
    InvalidArgument,
    UnknownParent,
    UnknownSchedule,
)
from dovetail.execution import Disposition, Execution
from dovetail.model import PENDING, Cancelled, Conflict, NewRun, Placement, Placing, Run, RunQuery, State
from dovetail.observe.tracing import carried_context, carried_link
from dovetail.queues import Pause
from dovetail.schedules.calling import drafted, redrafted
from dovetail.schedules.definition import QUEUE, Definition, Misfire, Overlap, is_tick, key_of
from dovetail.schedules.schedule import Schedule, shown
from dovetail.schedules.ticking import tick
from dovetail.schedules.timing import Timing
from dovetail.tasks import Task, TaskFunction, unregistered
from dovetail.tasks.flow import UNSET, Unset
from dovetail.telemetry import DocketTelemetry, tell

if TYPE_CHECKING:
    from dovetail.docket import Docket

P = ParamSpec("P")

LIVE = (*PENDING, State.RUNNING)
TRIES = 100
"""How often an alteration is begun anew because others were faster."""
LONGEST_NAME = 500

Find = Callable[[TaskFunction | str], tuple[TaskFunction, str, Task]]
PutDown = Callable[[list[NewRun], Any], Awaitable[list[Placement]]]
Alter = Callable[[Definition], Definition]


class Added(Protocol[P]):
    """What `add` returns: called with the task's own arguments it makes the schedule."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Schedule]: ...


class AddOptions(TypedDict, total=False):
    """What `add` takes besides a name, a task and an expression."""

    every: timedelta | None
    tz: tzinfo | str
    overlap: Overlap
    misfire: Misfire
    until: datetime | None
    queue: str
    priority: int
    group: str | None
    tags: Iterable[str]
    replace: bool
    connection: Any


class Schedules:
    """The schedules of a docket.

    await docket.schedules.add("nightly", report, "0 3 * * *", tz="Europe/Vienna")("sales")
    """

    def __init__(self, docket: Docket, find: Find, put_down: PutDown, telemetry: DocketTelemetry) -> None:
        self._docket = docket
        self._find = find
        self._put_down = put_down
        self._telemetry = telemetry

    # Making

    @overload
    def add(
        self, name: str, function: Callable[P, Any], cron: str | None = None, **options: Unpack[AddOptions]
    ) -> Added[P]: ...
    @overload
    def add(self, name: str, function: str, cron: str | None = None, **options: Unpack[AddOptions]) -> Added[...]: ...
    def add(
        self,
        name: str,
        function: TaskFunction | str,
        cron: str | None = None,
        *,
        every: timedelta | None = None,
        tz: tzinfo | str = "UTC",
        overlap: Overlap = "queue",
        misfire: Misfire = "once",
        until: datetime | None = None,
        queue: str | Unset = UNSET,
        priority: int | Unset = UNSET,
        group: str | None = None,
        tags: Iterable[str] | Unset = UNSET,
        replace: bool = False,
        connection: Any = None,
    ) -> Any:
        """Let a call come again, at the times of a cron expression or every so often.

        To add the same schedule once more does nothing, so that each process may declare what it needs. One of the same
        name that is different is refused, or altered with `replace`; it then stays paused if it was, and misses no
        time. With a `connection` to the docket's own database it is made in the transaction that is open there.
        """
        _check_name(name)
        checks.truth(replace, "replace")
        _, task_name, task = self._find(function)
        now = self._now()
        timing = Timing.of(cron, every, tz, now)
        chosen_overlap: Overlap = checks.one_of(overlap, "overlap", ("queue", "skip", "allow"))
        chosen_misfire: Misfire = checks.one_of(misfire, "misfire", ("once", "all", "skip"))

        async def make(*args: Any, **kwargs: Any) -> Schedule:
            call = drafted(
                self._docket.drafter, task, task_name, args, kwargs, self._docket.retention, queue, priority, group,
                tags,
            )  # fmt: skip
            wanted = Definition(
                name, call, timing, now, timing.next_after(now), chosen_overlap, chosen_misfire,
                None if until is None else checks.moment(until, "until"),
            )  # fmt: skip
            _refuse_over(wanted)
            return await self._add(wanted, replace=replace, connection=connection)

        return make

    async def _add(self, wanted: Definition, *, replace: bool, connection: Any) -> Schedule:
        conflict = Conflict.KEEP
        for _ in range(TRIES):
            run = wanted.waiting(self._docket.codec, conflict).but(headers=carried_link())
            (placement,) = await self._put_down([run], connection)
            if placement.id == run.id:
                return self._shown(wanted)
            held = await self._held(wanted.name)
            if held is None and connection is not None and conflict is Conflict.KEEP_PENDING:
                raise _in_hand(wanted.name)
            if held is None:
                # One that was deleted while it ticked: what it places it has placed, and it places no successor.
                conflict = Conflict.KEEP_PENDING
            elif replace or self._read(held).is_like(wanted):
                return await self._alter(wanted.name, lambda known: _declared(known, wanted), connection)
            else:
                raise DuplicateSchedule(
                    f"there is a schedule {wanted.name!r} already, and it is not the same; alter it with"
                    " schedules.change(), or add it with replace=True (--replace)"
                )
        raise _too_busy(wanted.name)

    # Looking

    async def get(self, name: str) -> Schedule | None:
        """The schedule of a name, or None if there is none."""
        held = await self._held(_check_name(name))
        return None if held is None else self._shown(self._read(held))

    async def list(self) -> list[Schedule]:
        """All schedules, by name."""
        runs = await self._docket.find_all(RunQuery(queues=(QUEUE,), states=LIVE))
        by_key: dict[str, list[Run]] = {}
        for run in runs:
            by_key.setdefault(run.key, []).append(run)
        latest = [found for among in by_key.values() if (found := _latest(among)) is not None]
        return sorted(map(self._shown, map(self._read, latest)), key=lambda each: each.name)

    # Altering

    async def pause(self, name: str, reason: str | None = None, owner: str | None = None) -> Schedule:
        """Let a schedule have no more times until it is resumed. What has been started goes on."""
        pause = Pause(
            None if reason is None else checks.text(reason, "reason"),
            None if owner is None else checks.text(owner, "owner"),
            self._now(),
        )
        return await self._alter(name, lambda known: known.but(paused=pause))

    async def resume(self, name: str) -> Schedule:
        """Let a paused schedule go on. Of the times it missed it makes what its misfire policy says."""
        return await self._alter(name, lambda known: known.but(paused=None))

    async def change(
        self,
        name: str,
        cron: str | None = None,
        *,
        every: timedelta | None = None,
        tz: tzinfo | str | None = None,
        overlap: Overlap | None = None,
        misfire: Misfire | None = None,
        until: datetime | Unset | None = UNSET,
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        queue: str | Unset = UNSET,
        priority: int | Unset = UNSET,
        group: str | Unset | None = UNSET,
        tags: Iterable[str] | Unset = UNSET,
    ) -> Schedule:
        """Alter what is given, and nothing else. With `args` or `kwargs` it has these arguments and no others.

        What its task declares, limits for one, is read anew if the task is known here.
        """
        if overlap is not None:
            checks.one_of(overlap, "overlap", ("queue", "skip", "allow"))
        if misfire is not None:
            checks.one_of(misfire, "misfire", ("once", "all", "skip"))
        if not isinstance(until, Unset | None):
            checks.moment(until, "until")

        def alter(known: Definition) -> Definition:
            call = redrafted(
                self._docket.codec, self._docket.drafter, self._docket.tasks, known.call, args, kwargs,
                self._docket.retention, queue, priority, group, tags,
            )  # fmt: skip
            return self._timed(known, cron, every, tz).but(
                call=call,
                overlap=overlap or known.overlap,
                misfire=misfire or known.misfire,
                until=known.until if isinstance(until, Unset) else until,
            )

        return await self._alter(name, alter)

    def _timed(
        self, known: Definition, cron: str | None, every: timedelta | None, tz: tzinfo | str | None
    ) -> Definition:
        timing = known.timing
        if cron is None and every is None:
            cron, every = timing.cron, timing.every
        return _retimed(known, Timing.of(cron, every, timing.tz if tz is None else tz, self._now()), self._now())

    async def _alter(self, name: str, alter: Alter, connection: Any = None) -> Schedule:
        """Read, alter, and put in its place; again if it ticked, or somebody else altered it, in the meantime."""
        refused: str | None = None
        for _ in range(TRIES):
            held = await self._held(_check_name(name))
            if held is not None and held.id == refused and connection is not None:
                raise _in_hand(name)
            known = None if held is None else self._as_it_will_be(held)
            if held is None or known is None:
                raise UnknownSchedule(f"there is no schedule {name!r} on the docket {self._docket.name!r}")
            altered = alter(known)
            if altered == known:
                return self._shown(known)
            _refuse_over(altered)
            # Beside one that ticks it waits for that to end: the time that is being placed has its own.
            after = (held.id,) if held.state is State.RUNNING else held.parents
            run = altered.waiting(self._docket.codec, Conflict.REPLACE).but(
                instead_of=held.id, after=after, after_failure=True, headers=carried_link() or held.headers
            )
            try:
                (placement,) = await self._put_down([run], connection)
            except UnknownParent:
                continue  # what it was to wait for has ended in this moment
            if placement.id == run.id:
                return self._shown(altered)
            refused = held.id
        raise _too_busy(name)

    def _as_it_will_be(self, held: Run) -> Definition | None:
        """The schedule, or what it is after the tick that is under way; None if that was its last."""
        known = self._read(held)
        if held.state is not State.RUNNING:
            return known
        return tick(known, held.started or self._now()).following

    async def delete(self, name: str) -> None:
        """Take a schedule away. What has been started goes on."""
        key = key_of(_check_name(name))
        was_there = False
        # One that was altered while it ticked is two runs: the one that waits, and the one that ticks.
        while (answer := (await self._docket.engine.cancel([key]))[0]) is Cancelled.CANCELLED:
            was_there = True
        if not was_there and answer is not Cancelled.STOPPING:
            raise UnknownSchedule(f"there is no schedule {name!r} on the docket {self._docket.name!r}")

    # Going

    async def trigger(self, name: str) -> Execution[Any]:
        """Make a run now, besides its times, paused or not. Where runs must not overlap, one that is there stays, and
        the `disposition` says so."""
        held = await self._held(_check_name(name))
        if held is None:
            raise UnknownSchedule(f"there is no schedule {name!r} on the docket {self._docket.name!r}")
        known = self._read(held)
        now = self._now()
        run = known.run_at(now)
        run = known.run_at(now, name=run.id).but(id=run.id, due=timedelta())
        with self._telemetry.placing("trigger", run.task, run.key, run.queue) as span:
            run = run.but(headers={**run.headers, **carried_context()})
            (placement,) = await self._put_down([run], None)
            execution = self._triggered(known, run, placement, now)
            tell(span, execution)
        self._telemetry.put_down(execution)
        return execution

    def _triggered(self, known: Definition, run: NewRun, placement: Placement, now: datetime) -> Execution[Any]:
        args, kwargs = self._arguments(known)
        task = known.call.task
        execution: Execution[Any] = Execution(
            self._docket, self._docket.tasks.get(task) or unregistered(task), args or (), kwargs or {}, run.key, now,
            trace_context=run.headers, function_name=task,
        )  # fmt: skip
        execution.id, execution.state = placement.id, placement.state
        is_kept = placement.placing is Placing.KEPT
        execution.disposition = Disposition.ALREADY_SCHEDULED if is_kept else Disposition.SCHEDULED
        return execution

    # Reading

    async def _held(self, name: str) -> Run | None:
        page = await self._docket.engine.find(RunQuery(keys=(key_of(name),), states=LIVE))
        return _latest(page.items)

    def _read(self, run: Run) -> Definition:
        return Definition.read(self._docket.codec, run.payload)

    def _shown(self, definition: Definition) -> Schedule:
        return shown(definition, *self._arguments(definition))

    def _arguments(self, definition: Definition) -> tuple[tuple[Any, ...] | None, dict[str, Any] | None]:
        function = self._docket.tasks.get(definition.call.task)
        types = CallTypes.unknown(definition.call.task) if function is None else Task.of(function).types
        try:
            return self._docket.codec.load_call(types, definition.call.payload, definition.call.task)
        except DovetailError:
            return None, None  # it can still be seen, altered and deleted

    def _now(self) -> datetime:
        return from_microseconds(self._docket.clock.microseconds())


def _check_name(name: Any) -> str:
    if len(checks.text(name, "name")) > LONGEST_NAME:
        raise InvalidArgument(f"name must be at most {LONGEST_NAME} characters long, not {len(name)}")
    return name


def _latest(runs: list[Run]) -> Run | None:
    """The run that is the schedule: the one that waits, or else the one that ticks, unless it was deleted."""
    live = [run for run in runs if is_tick(run) and not run.stopping]
    return next((run for run in live if run.state is not State.RUNNING), live[0] if live else None)


def _declared(known: Definition, wanted: Definition) -> Definition:
    """What is known, in the words that are wanted."""
    if known.is_like(wanted):
        return known
    return _retimed(known, wanted.timing, wanted.created).but(
        call=wanted.call, overlap=wanted.overlap, misfire=wanted.misfire, until=wanted.until
    )


def _retimed(known: Definition, timing: Timing, now: datetime) -> Definition:
    """The schedule with other times. One that has come already, and that no worker has seen yet, still counts."""
    if timing.is_like(known.timing):
        return known
    return known.but(timing=timing, slot=known.slot if known.slot <= now else timing.next_after(now))


def _refuse_over(definition: Definition) -> None:
    if definition.is_over_at(definition.slot):
        raise InvalidArgument(
            f"until {definition.until} is over before the schedule {definition.name!r} would have its next time,"
            f" {definition.slot}"
        )


def _in_hand(name: str) -> InvalidArgument:
    return InvalidArgument(
        f"the schedule {name!r} was made or altered in this transaction before, which cannot be seen until it is"
        " committed; add it once, or commit in between"
    )


def _too_busy(name: str) -> EngineUnavailable:
    return EngineUnavailable(f"the schedule {name!r} is altered by others all the time; nothing was done, try again")
