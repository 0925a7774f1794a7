"""The grounds of a docket: its settings, its store while it is open, and the tasks it knows."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self, cast

from dovetail import checks
from dovetail.clock import SYSTEM_CLOCK, Clock, from_microseconds
from dovetail.codec import CallTypes, Codec, Keyring, codec_named
from dovetail.engine import Archives, Engine, Lends
from dovetail.engine.registry import engine_for, redacted
from dovetail.engine.tracing import show_calls
from dovetail.errors import (
    AlreadyOpen,
    DovetailError,
    EngineUnavailable,
    InvalidArgument,
    InvalidType,
    UnknownRun,
    UnknownTask,
    UsageError,
)
from dovetail.execution import Execution
from dovetail.middleware import Hooks, Middleware
from dovetail.model import (
    Retention,
    Run,
    RunQuery,
)
from dovetail.strikelist import StrikeList, prefix_of
from dovetail.tasks import (
    Drafter,
    Task,
    TaskFunction,
    load_collection,
    unregistered,
)
from dovetail.tasks.declaring import refuse_clash
from dovetail.tasks.standard import standard_tasks
from dovetail.telemetry import DocketTelemetry

if TYPE_CHECKING:
    from redis.asyncio import Redis
    from redis.credentials import CredentialProvider

    from dovetail.docket import Docket

DEFAULT_URL = "sqlite:///dovetail.db"
EXECUTION_TTL = timedelta(minutes=15)


class Grounds:
    """What everything else about a docket stands on."""

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
        durability: str | None = None,
        codec: str | None = None,
        signing: Keyring | None = None,
        credential_provider: CredentialProvider | None = None,
        clock: Clock = SYSTEM_CLOCK,
        middleware: Iterable[Middleware] = (),
    ) -> None:
        self.name = checks.text(_setting(name, "DOVETAIL_NAME", "docket"), "name")
        self.url = _setting(url, "DOVETAIL_URL", DEFAULT_URL)
        if isinstance(self.url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            checks.text(self.url, "url")
        self.heartbeat_interval = checks.window(heartbeat_interval, "heartbeat_interval")
        self.missed_heartbeats = checks.whole(missed_heartbeats, "missed_heartbeats", least=1)
        self._retention = _retention(execution_ttl, retention)
        if not hasattr(clock, "microseconds"):
            raise InvalidType(f"clock must be a clock of dovetail.clock, not {clock!r}")
        keyring: Any = signing
        if keyring is not None and not isinstance(keyring, Keyring):
            raise InvalidType(f"signing must be a Keyring of dovetail.codec, not {type(keyring).__name__}")
        self.enable_internal_instrumentation = enable_internal_instrumentation
        self.credential_provider = credential_provider
        self.clock = clock
        self.hooks = Hooks(middleware)
        self.codec: Codec = codec_named(_setting(codec, "DOVETAIL_CODEC", "json"), signing=signing)
        self.tasks: dict[str, TaskFunction] = {task.__name__: task for task in standard_tasks}
        self.drafter = Drafter(self.codec)
        self.strike_list = StrikeList(
            name=self.name, enable_internal_instrumentation=enable_internal_instrumentation, codec=self.codec,
            clock=clock, tasks=self.tasks,
        )  # fmt: skip
        self._durability = _setting(durability, "DOVETAIL_DURABILITY", "durable")
        self._telemetry = DocketTelemetry(self.name)
        self._engine: Engine | None = None
        self._stack: AsyncExitStack | None = None
        # A wrong URL or durability is refused here, before anything is opened.
        self._has_archive = isinstance(self._make_engine(), Archives)
        self._refuse_archive(self._retention, "retention")

    def __repr__(self) -> str:
        return f"<Docket {self.name!r} at {redacted(self.url)!r}>"

    def _make_engine(self) -> Engine:
        engine = engine_for(
            self.url, self.name, clock=self.clock, durability=self._durability,
            credential_provider=self.credential_provider,
        )  # fmt: skip
        return show_calls(engine, self.url, self.name) if self.enable_internal_instrumentation else engine

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
    def _silence(self) -> timedelta:
        """After which a worker counts as dead."""
        return self.heartbeat_interval * self.missed_heartbeats

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
        """The name, as programs put it before names of their own. In a cluster, what begins with it is in one slot."""
        return prefix_of(self.name, self.url)

    def key(self, suffix: str) -> str:
        """A name for a key of your own, beside those of the docket."""
        return f"{self.prefix}:{suffix}"

    def redis(self) -> AbstractAsyncContextManager[Redis]:
        """A client to the Redis or Valkey server that keeps this docket, for keys of your own. On memory:// it leads to
        a Redis within the process."""
        engine = self.engine
        if not isinstance(engine, Lends):
            raise UsageError(
                f"redis() needs a docket in Redis, Valkey or memory, and this one is kept at {redacted(self.url)}; keep"
                " what is yours in that store, with a connection of your own"
            )
        return engine.client()

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

    def _name_of(self, task: TaskFunction | str | None, argument: str = "task") -> str | None:
        if task is None or isinstance(task, str):
            return task
        return self._task(checks.callable_task(task, argument))[1]

    # Handles

    @property
    def _docket(self) -> Docket:
        """The docket itself: its parts are one object."""
        return cast("Docket", self)

    def execution_of(self, run: Run) -> Execution[Any]:
        """A handle on a run that was read from the store."""
        function = self.tasks.get(run.task) or unregistered(run.task)
        types = Task.of(function).types if run.task in self.tasks else CallTypes.unknown()
        args: tuple[Any, ...] = ()
        kwargs: dict[str, Any] = {}
        problem: DovetailError | None = None
        try:
            args, kwargs = self.codec.load_call(types, run.payload, run.task)
        except DovetailError as error:
            problem = error  # it can still be seen, cancelled and counted
        execution: Execution[Any] = Execution(
            self._docket, function, args, kwargs, run.key, run.due, run.attempt, run.headers or None,
            run.crashes > 0, run.task,
        )  # fmt: skip
        execution.schedule_exception = problem
        execution.take_in(run)
        return execution

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
