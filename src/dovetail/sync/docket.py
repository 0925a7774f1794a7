"""Docket: the same calls without await, for Flask, Django, scripts and threads."""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload

import dovetail.docket
from dovetail import checks
from dovetail.agenda import Agenda
from dovetail.clock import SYSTEM_CLOCK, Clock
from dovetail.codec import Codec, Keyring
from dovetail.errors import AlreadyOpen
from dovetail.graph import Graph
from dovetail.middleware import Hooks, Middleware
from dovetail.model import Page, Retention, Run, WorkerInfo
from dovetail.previewing import StrikePreview as AsyncPreview
from dovetail.strikelist import LiteralOperator, Operator, Strike
from dovetail.sync.carried import CarriedDocket
from dovetail.sync.execution import AsyncExecution, Execution, RunningExecution, iterated
from dovetail.sync.filtering import Filters, Query
from dovetail.sync.portal import PORTALS
from dovetail.sync.schedules import Schedules
from dovetail.tasks import TaskCall, TaskFunction
from dovetail.tasks.flow import Options, UniqueOptions
from dovetail.why import Why

if TYPE_CHECKING:
    from redis.credentials import CredentialProvider

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")

AsyncDocket = dovetail.docket.Docket
EXECUTION_TTL = dovetail.docket.EXECUTION_TTL


@dataclass(frozen=True, slots=True)
class DocketSnapshot:
    """Everything that waits and runs, at one moment."""

    taken: datetime
    total_tasks: int
    future: Sequence[Execution[Any]]
    running: Sequence[RunningExecution]
    workers: Iterable[WorkerInfo] = field(default_factory=list[WorkerInfo])


class StrikePreview:
    """The runs that wait and that a strike would keep from starting: iterate over them, or count them."""

    def __init__(self, docket: Docket, preview: Callable[[AsyncDocket], AsyncPreview], strike: Strike) -> None:
        self.strike = strike
        self._docket = docket
        self._preview = preview
        self._looked: AsyncPreview | None = None

    @property
    def unjudged(self) -> int:
        """How many runs the last look passed over, since their arguments cannot be told apart here."""
        return self._looked.unjudged if self._looked else 0

    def __iter__(self) -> Iterator[Execution[Any]]:
        return map(self._docket.execution, iterated(self._docket, self._look(self._docket.docket).__aiter__))

    def count(self) -> int:
        return self._docket.carry(lambda docket: self._look(docket).count())

    def _look(self, docket: AsyncDocket) -> AsyncPreview:
        self._looked = self._preview(docket)
        return self._looked


def carried(
    method: Callable[Concatenate[AsyncDocket, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Docket, P], R]:
    """A method of the async docket, without await."""

    @wraps(method)
    def carry(self: Docket, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.carry(lambda docket: method(docket, *args, **kwargs))

    return carry


class Docket:
    """A named collection of scheduled work, for code that does not await.

        docket = Docket(name="emails", url="sqlite:///emails.db")
        docket.add(greet, when=tomorrow, key="greet:ann")("ann@example.com")

    It is opened by the first call, in each process anew, and may be used by all threads. `close()` gives up its
    connections, as does leaving it as a context manager; a process that ends does so by itself.
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
        durability: str | None = None,
        codec: str | None = None,
        signing: Keyring | None = None,
        credential_provider: CredentialProvider | None = None,
        clock: Clock = SYSTEM_CLOCK,
        middleware: Iterable[Middleware] = (),
    ) -> None:
        self._docket = CarriedDocket(
            name, url, heartbeat_interval, missed_heartbeats, execution_ttl, enable_internal_instrumentation,
            retention=retention, durability=durability, codec=codec, signing=signing,
            credential_provider=credential_provider, clock=clock, middleware=middleware,
        )  # fmt: skip
        self._is_entered = False
        # Connections of a docket that nobody can reach any more are of no use. At exit the portal sees to it.
        weakref.finalize(self, _forget, self._docket).atexit = False

    def __repr__(self) -> str:
        return f"<sync {repr(self._docket)[1:]}"

    # Opening and closing

    def __enter__(self) -> Self:
        if self._is_entered:
            raise AlreadyOpen(f"the docket {self.name!r} is entered already; leave it before entering it again")
        self.open()
        self._is_entered = True
        return self

    def __exit__(self, *_: object) -> None:
        self._is_entered = False
        self.close()

    def open(self) -> None:
        """Connect now, and be told now if that cannot be. Otherwise the first call does it."""
        PORTALS.call(self._docket.opened)

    def close(self) -> None:
        """Give up the connections once the calls under way have ended. A later call opens them again."""
        if self._docket.is_open:
            PORTALS.call(self._docket.close)

    def carry(self, work: Callable[[AsyncDocket], Coroutine[Any, Any, T]], *, may_wait: bool = False) -> T:
        """Do something with the async docket, in its own event loop, and wait for it. To close the docket cuts off what
        `may_wait` for ever, and lets all else end."""
        return PORTALS.call(lambda: self._docket.do(work, may_wait=may_wait))

    @property
    def docket(self) -> AsyncDocket:
        """The async docket beneath. It is open in an event loop of its own: see `carry`."""
        return self._docket

    # What needs no store

    @property
    def name(self) -> str:
        return self._docket.name

    @property
    def url(self) -> str:
        return self._docket.url

    @property
    def prefix(self) -> str:
        return self._docket.prefix

    def key(self, suffix: str) -> str:
        return self._docket.key(suffix)

    @property
    def tasks(self) -> dict[str, TaskFunction]:
        return self._docket.tasks

    @property
    def codec(self) -> Codec:
        return self._docket.codec

    @property
    def retention(self) -> Retention:
        return self._docket.retention

    @property
    def execution_ttl(self) -> timedelta:
        return self._docket.execution_ttl

    @property
    def hooks(self) -> Hooks:
        """Hooks and middleware. Those around scheduling run in a thread of Dovetail's own."""
        return self._docket.hooks

    def labels(self) -> dict[str, str]:
        return self._docket.labels()

    def register(self, function: TaskFunction, names: Iterable[str] | None = None) -> None:
        """Make a task known, under its own name or under those given."""
        self._docket.register(function, names)

    def register_collection(self, collection_path: str) -> None:
        """Register every function of a collection, named as `module:member`."""
        self._docket.register_collection(collection_path)

    def execution_of(self, run: Run) -> Execution[Any]:
        """A handle on a run that was read from the store."""
        return self.execution(self._docket.execution_of(run))

    def execution(self, handle: AsyncExecution[R]) -> Execution[R]:
        """The sync handle over an async one."""
        return Execution(self, handle)

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
    ) -> Callable[P, Execution[R]]: ...
    @overload
    def add(
        self,
        function: Callable[P, R],
        when: datetime | None = None,
        key: str | None = None,
        *,
        connection: Any = None,
        **options: Unpack[UniqueOptions],
    ) -> Callable[P, Execution[R]]: ...
    @overload
    def add(
        self,
        function: str,
        when: datetime | None = None,
        key: str | None = None,
        *,
        connection: Any = None,
        **options: Unpack[UniqueOptions],
    ) -> Callable[..., Execution[Any]]: ...
    def add(
        self, function: Any, when: datetime | None = None, key: str | None = None, **options: Any
    ) -> Callable[..., Execution[Any]]:
        """Schedule a call: now, or at a time. A key that is taken keeps the newcomer out.

        `docket.add(send, when=tomorrow)("ann@example.com")` returns an Execution; its `disposition` says what happened.
        With a `connection` to the docket's own database it is scheduled in the transaction that is open there.
        """
        return self._scheduling(self._docket.add(function, when, key, **options))

    @overload
    def replace(
        self,
        function: Callable[P, Awaitable[R]],
        when: datetime,
        key: str,
        *,
        connection: Any = None,
        **options: Unpack[Options],
    ) -> Callable[P, Execution[R]]: ...
    @overload
    def replace(
        self,
        function: Callable[P, R],
        when: datetime,
        key: str,
        *,
        connection: Any = None,
        **options: Unpack[Options],
    ) -> Callable[P, Execution[R]]: ...
    @overload
    def replace(
        self, function: str, when: datetime, key: str, *, connection: Any = None, **options: Unpack[Options]
    ) -> Callable[..., Execution[Any]]: ...
    def replace(self, function: Any, when: datetime, key: str, **options: Any) -> Callable[..., Execution[Any]]:
        """Schedule a call in the place of whatever waits under the key. A run in progress goes on."""
        return self._scheduling(self._docket.replace(function, when, key, **options))

    def _scheduling(
        self, schedule: Callable[..., Coroutine[Any, Any, AsyncExecution[Any]]]
    ) -> Callable[..., Execution[Any]]:
        def scheduled(*args: Any, **kwargs: Any) -> Execution[Any]:
            return self.execution(self.carry(lambda _: schedule(*args, **kwargs)))

        return scheduled

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
        self, function: Any, when: datetime | None = None, key: str | None = None, **options: Any
    ) -> Callable[..., TaskCall]:
        """A call to be scheduled later, with others: nothing reaches the store yet."""
        return self._docket.call(function, when, key, **options)

    def add_many(
        self, calls: Iterable[TaskCall], *, chunk_size: int | None = 1000, connection: Any = None
    ) -> list[Execution[Any]]:
        """Schedule many calls with few round trips, in the order given. Each stands for itself, as with `add`."""
        added = self.carry(lambda docket: docket.add_many(calls, chunk_size=chunk_size, connection=connection))
        return [self.execution(each) for each in added]

    def replace_many(
        self, calls: Iterable[TaskCall], *, chunk_size: int | None = 1000, connection: Any = None
    ) -> list[Execution[Any]]:
        """As `add_many`, but each takes the place of whatever waits under its key."""
        placed = self.carry(lambda docket: docket.replace_many(calls, chunk_size=chunk_size, connection=connection))
        return [self.execution(each) for each in placed]

    def schedule(self, execution: Execution[R], *, replace: bool = False) -> Execution[R]:
        """Put a ready-made execution down, as `add` would, or `replace`."""
        checks.instance(execution, Execution, "execution must be an Execution of dovetail.sync")
        self.carry(lambda docket: docket.schedule(execution.handle, replace=replace))
        return execution

    def scatter(
        self,
        agenda: Agenda,
        over: timedelta,
        start: datetime | None = None,
        jitter: timedelta | None = None,
        *,
        shuffle: bool = False,
    ) -> list[Execution[Any]]:
        """Schedule an agenda evenly over the time given: `Agenda.scatter`."""
        checks.instance(agenda, Agenda, "agenda must be an Agenda")
        spread = self.carry(lambda docket: agenda.scatter(docket, over, start, jitter, shuffle=shuffle))
        return [self.execution(each) for each in spread]

    # Schedules

    @property
    def schedules(self) -> Schedules:
        """Calls that come again at set times, kept in the store."""
        return Schedules(self)

    # Controlling

    cancel = carried(AsyncDocket.cancel)
    clear = carried(AsyncDocket.clear)

    # Queues

    pause = carried(AsyncDocket.pause)
    resume = carried(AsyncDocket.resume)
    queues = carried(AsyncDocket.queues)

    # Dead letters

    retry_failed = carried(AsyncDocket.retry_failed)
    discard_failed = carried(AsyncDocket.discard_failed)

    def failed(self, **filters: Unpack[Filters]) -> Page[Execution[Any]]:
        """The runs that failed and are kept, the newest first, a page at a time."""
        page = self.carry(lambda docket: docket.failed(**filters))
        return Page([self.execution(each) for each in page], page.cursor)

    def retry(
        self,
        key: str | Execution[Any],
        *,
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> Execution[Any]:
        """Run again what is over, with a clean slate, and with it the dependents that its end had cancelled."""
        meant = key.handle if isinstance(key, Execution) else key
        return self.execution(self.carry(lambda docket: docket.retry(meant, args=args, kwargs=kwargs)))

    def discard(self, key: str | Execution[Any]) -> None:
        """Drop the record of a run that is over, at once. Dependents that its end had cancelled stay as they are."""
        meant = key.handle if isinstance(key, Execution) else key
        self.carry(lambda docket: docket.discard(meant))

    # Striking

    strike = carried(AsyncDocket.strike)
    restore = carried(AsyncDocket.restore)
    strikes = carried(AsyncDocket.strikes)
    wait_for_strikes_loaded = carried(AsyncDocket.wait_for_strikes_loaded)

    def preview_strike(
        self,
        function: TaskFunction | str | None = None,
        parameter: str | None = None,
        operator: Operator | LiteralOperator = "==",
        value: Any = None,
    ) -> StrikePreview:
        """What waits and would be kept from starting by such a strike. Nothing is stricken."""
        strike = self._docket.strike_list.draft(function, parameter, operator, value)
        self.open()
        return StrikePreview(self, lambda docket: docket.preview_strike(function, parameter, operator, value), strike)

    # Reading back

    def get_execution(self, key: str) -> Execution[Any] | None:
        """The newest run of a key, or None if there is no record of one."""
        found = self.carry(lambda docket: docket.get_execution(key))
        return None if found is None else self.execution(found)

    def find(self, **query: Unpack[Query]) -> Page[Execution[Any]]:
        """Runs of any kind that are kept, a page at a time."""
        page = self.carry(lambda docket: docket.find(**query))
        return Page([self.execution(each) for each in page], page.cursor)

    def snapshot(self) -> DocketSnapshot:
        """Everything that waits and runs, without a cap."""
        shot = self.carry(lambda docket: docket.snapshot())
        return DocketSnapshot(
            shot.taken,
            shot.total_tasks,
            [self.execution(each) for each in shot.future],
            [RunningExecution(self, each) for each in shot.running],
            shot.workers,
        )

    def graph(self, key: str | Execution[Any], *, at_most: int = 10_000) -> Graph:
        """What hangs on what: the run of a key, all that it waits for, and all that hangs on those, to any depth."""
        meant = key.handle if isinstance(key, Execution) else key
        return self.carry(lambda docket: docket.graph(meant, at_most=at_most))

    def why(self, key: str | Execution[Any]) -> Why:
        """Why a run is not running: all causes that hold, the decisive one first. A key that nobody knows is an answer
        too."""
        meant = key.handle if isinstance(key, Execution) else key
        return self.carry(lambda docket: docket.why(meant))

    check = carried(AsyncDocket.check)
    find_all = carried(AsyncDocket.find_all)
    workers = carried(AsyncDocket.workers)
    task_workers = carried(AsyncDocket.task_workers)

    # Health

    examine = carried(AsyncDocket.examine)
    repair = carried(AsyncDocket.repair)


def _forget(docket: CarriedDocket) -> None:
    if docket.is_open:
        PORTALS.post(docket.close)
