"""One file, as one process has it open: a thread that writes, a thread that reads, and those who watch.

All writes of a process go through one thread. It takes whatever has been asked for since it last looked and does all of
it in one transaction: under load one fsync serves many requests, and none waits for a timer.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from dovetail.clock import Clock
from dovetail.engines.sqlite import connection
from dovetail.engines.sqlite.ballast import Ballast
from dovetail.engines.sqlite.doorbell import Listener, Neighbours, bells_of
from dovetail.engines.sqlite.location import Location, holds_database, inspect
from dovetail.engines.sqlite.session import Session
from dovetail.errors import EngineFull, NotADatabase
from dovetail.model import Event, EventKind

T = TypeVar("T")

GATHERED = 512
"""How many requests may share a transaction."""
CHECKPOINT_AT = 16 * 1024 * 1024
"""Bytes of write-ahead log after which it is written back."""
COMMIT_BYTES, CHANGE_BYTES = 20_000, 1_000
"""What a commit, and each row it changes, adds to the log, roughly: SQLite does not say."""


@dataclass(slots=True)
class Request(Generic[T]):
    """Something to be done in a transaction, and who waits for it."""

    work: Callable[[Session], T]
    docket: int
    clock: Clock
    grows: bool  # whether it needs room on the disk that finishing work does not
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[T]
    result: Any = None
    error: BaseException | None = None

    def deliver(self) -> None:
        if self.future.done():
            return  # whoever asked has gone
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


@dataclass(eq=False, slots=True)
class Watcher:
    """Somebody who wants to hear of a docket's events."""

    docket: int
    kinds: frozenset[EventKind]
    keys: frozenset[str] | None
    loop: asyncio.AbstractEventLoop
    put: Callable[[Event], None]

    def wants(self, docket: int, event: Event) -> bool:
        # Docket 0 stands for any: the file changed, and nobody knows how.
        if event.kind not in self.kinds or docket not in (0, self.docket):
            return False
        if docket == 0 or event.kind not in (EventKind.STATE, EventKind.PROGRESS):
            return True
        return self.keys is None or event.key in self.keys


class Store:
    """A database that this process has open. Shared by every engine of the process that names the same place."""

    def __init__(self, location: Location, durability: str) -> None:
        self.location = location
        self.pid = os.getpid()
        self.users = 0
        self._durability = durability
        self._requests: SimpleQueue[Request[Any] | None] = SimpleQueue()
        self._reads: SimpleQueue[Request[Any] | None] = SimpleQueue()
        self._watchers: set[Watcher] = set()
        self._kinds: frozenset[EventKind] = frozenset()
        self._watching = threading.Lock()
        self._listener: Listener | None = None
        self._identity: tuple[int, int] | None = None
        self._changes = 0  # rows changed, when it was last looked
        self._logged = 0  # bytes in the log since it was last begun anew, roughly
        folder = None if location.path is None else bells_of(location.path)
        self._neighbours = Neighbours(folder) if folder else None
        self._bells = folder
        self._ballast = Ballast(location.path)
        self._writer: sqlite3.Connection
        self._reader: sqlite3.Connection | None = None
        self._threads: list[threading.Thread] = []

    # Opening and closing

    def open(self, *, look: bool) -> None:
        """Connect and bring the schema up. With `look` the file is looked at first: only safe before the process
        has it open, since closing any handle on a file drops this process's locks on it."""
        inspect(self.location)
        path = self.location.path
        if path is not None:
            if look and path.exists() and not holds_database(path):
                raise NotADatabase(f"cannot open {path}: it is not an SQLite database; nothing was changed")
            connection.create_private(path)
        self._writer = connection.connect(self.location, self._durability)
        try:
            connection.migrate(self._writer, self.location)
            if path is not None:
                self._reader = connection.connect(self.location, self._durability, read_only=True)
                self._identity = _identity(path)
                self._ballast.lay()
        except sqlite3.Error as error:
            self._writer.close()
            raise connection.translated(error, self.location) from error
        except BaseException:
            self._writer.close()
            raise
        self._spawn(self._write_on, "dovetail-writer")
        if self._reader is not None:
            self._spawn(partial(self._read_on, self._reader), "dovetail-reader")

    def _spawn(self, target: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=target, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def close(self) -> None:
        self._requests.put(None)
        self._reads.put(None)
        for thread in self._threads:
            thread.join()
        if self._listener is not None:
            self._listener.stop()
        if self._neighbours is not None:
            self._neighbours.close()
        if self._reader is not None:
            self._reader.close()
        self._writer.close()

    def was_replaced(self) -> bool:
        """Whether the file under the open connections is no longer the one at its path."""
        path = self.location.path
        return path is not None and _identity(path) != self._identity

    # Asking

    async def write(self, work: Callable[[Session], T], docket: int, clock: Clock, *, grows: bool = False) -> T:
        """Do something in a write transaction, and return once it is durable."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._requests.put(Request(work, docket, clock, grows, loop, future))
        return await future

    async def read(self, work: Callable[[Session], T], docket: int, clock: Clock) -> T:
        """Look at what is committed. A store in memory has one connection, so there the writer reads."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        queue = self._requests if self._reader is None else self._reads
        queue.put(Request(work, docket, clock, False, loop, future))
        return await future

    # Reading

    def _read_on(self, db: sqlite3.Connection) -> None:
        while (request := self._reads.get()) is not None:
            session = Session(db, request.docket, request.clock.microseconds(), frozenset())
            self._perform_read(db, session, request)
            _deliver([request])

    def _perform_read(self, db: sqlite3.Connection, session: Session, request: Request[Any]) -> None:
        try:
            db.execute("BEGIN")
            try:
                request.result = connection.patiently(lambda: request.work(session))
            finally:
                db.execute("ROLLBACK")
        except sqlite3.Error as error:
            request.error = connection.translated(error, self.location)
        except BaseException as error:
            request.error = error

    # Writing

    def _write_on(self) -> None:
        stopping = False
        while not stopping:
            batch: list[Request[Any]] = []
            request = self._requests.get()
            while request is not None:
                batch.append(request)
                if len(batch) == GATHERED or self._requests.empty():
                    break
                request = self._requests.get()
            stopping = request is None
            if batch:
                self._write(batch)

    def _write(self, batch: list[Request[Any]]) -> None:
        try:
            sessions = self._transact(batch)
        except sqlite3.Error as error:
            sessions = self._write_when_full(batch) if connection.is_full(error) else self._fail(batch, error)
        except BaseException as error:
            sessions = self._fail(batch, error)
        _deliver(batch)
        for session in sessions:
            self._tell(session)
        self._checkpoint()

    def _write_when_full(self, batch: list[Request[Any]]) -> list[Session]:
        """Let go of the ballast, so that running work can finish; new work is refused."""
        self._ballast.drop()
        refused = EngineFull(f"{self.location.path}: the disk is full; free some space, running work can still finish")
        for request in batch:
            request.error = refused if request.grows else None
        rest = [request for request in batch if not request.grows]
        if not rest:
            return []
        try:
            self._truncate_log()
            return self._transact(rest)
        except sqlite3.Error as error:
            return self._fail(rest, error)

    def _fail(self, batch: list[Request[Any]], error: BaseException) -> list[Session]:
        cause = connection.translated(error, self.location) if isinstance(error, sqlite3.Error) else error
        for request in batch:
            request.error = cause
        return []

    def _transact(self, batch: list[Request[Any]]) -> list[Session]:
        """Everything in the batch in one transaction. A request that fails takes back only its own work."""
        db = self._writer
        connection.patiently(lambda: db.execute("BEGIN IMMEDIATE"))
        tells = self._tells()
        sessions: list[Session] = []
        try:
            for request in batch:
                session = Session(db, request.docket, request.clock.microseconds(), tells)
                if len(batch) == 1:
                    request.result = request.work(session)
                else:
                    self._within_savepoint(db, session, request)
                if request.error is None:
                    sessions.append(session)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        return sessions

    def _within_savepoint(self, db: sqlite3.Connection, session: Session, request: Request[Any]) -> None:
        db.execute("SAVEPOINT request")
        try:
            request.result = request.work(session)
        except sqlite3.Error:
            raise
        except BaseException as error:
            request.error = error
            db.execute("ROLLBACK TO request")
        db.execute("RELEASE request")

    def _checkpoint(self) -> None:
        """Write the log back once it is long. The write lock is held meanwhile, so no commit can race it.

        The file is begun anew, not cut off: commits that overwrite it are much faster than commits that make it grow.
        """
        changes = self._writer.total_changes
        self._logged += COMMIT_BYTES + (changes - self._changes) * CHANGE_BYTES
        self._changes = changes
        if self._logged < CHECKPOINT_AT or self.location.is_memory:
            return
        try:
            ((is_busy, _, _),) = self._writer.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        except sqlite3.Error:
            is_busy = 1
        # With a reader in the way it is tried again after a while.
        self._logged = CHECKPOINT_AT * 3 // 4 if is_busy else 0

    def _truncate_log(self) -> None:
        self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    # Telling

    def _tells(self) -> frozenset[EventKind]:
        neighbours = self._neighbours.kinds() if self._neighbours else frozenset[EventKind]()
        return self._kinds | neighbours

    def _tell(self, session: Session) -> None:
        events = session.events
        if session.work:
            events = [Event(EventKind.WORK), *events]
        if not events:
            return
        if self._neighbours is not None:
            self._neighbours.ring(session.docket, events)
        self._heard(session.docket, events)

    def _heard(self, docket: int, events: list[Event]) -> None:
        with self._watching:
            watchers = list(self._watchers)
        for watcher in watchers:
            for event in events:
                if watcher.wants(docket, event):
                    _hand_over(watcher, event)

    def watch(self, watcher: Watcher) -> None:
        with self._watching:
            self._watchers.add(watcher)
            self._note_kinds()

    def unwatch(self, watcher: Watcher) -> None:
        with self._watching:
            self._watchers.discard(watcher)
            self._note_kinds()

    def _note_kinds(self) -> None:
        self._kinds = frozenset[EventKind]().union(*(watcher.kinds for watcher in self._watchers))
        if self._bells is None or self._neighbours is None:
            return
        if self._listener is None and self._kinds:
            self._listener = Listener(self._bells, self._heard, self._change_detector())
            self._neighbours.own = self._listener.start(self._kinds)
        elif self._listener is not None:
            self._neighbours.own = self._listener.want(self._kinds)

    def _change_detector(self) -> Callable[[], bool]:
        """Says whether another connection has changed the file since it was last asked."""
        db = connection.connect(self.location, self._durability, read_only=True)
        seen: list[int] = []

        def has_changed() -> bool:
            (version,) = db.execute("PRAGMA data_version").fetchone()
            changed = bool(seen) and seen[-1] != version
            seen[:] = [version]
            return changed

        return has_changed


def _deliver(batch: list[Request[Any]]) -> None:
    """Wake those who wait, with one call into each event loop."""
    loops: dict[asyncio.AbstractEventLoop, list[Request[Any]]] = {}
    for request in batch:
        loops.setdefault(request.loop, []).append(request)
    for loop, requests in loops.items():
        try:
            loop.call_soon_threadsafe(_deliver_all, requests)
        except RuntimeError:
            continue  # that loop has been closed, and nobody waits any more


def _deliver_all(requests: list[Request[Any]]) -> None:
    for request in requests:
        request.deliver()


def _hand_over(watcher: Watcher, event: Event) -> None:
    try:
        watcher.loop.call_soon_threadsafe(watcher.put, event)
    except RuntimeError:
        return  # that loop has been closed


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


class Stores:
    """The stores that this process has open. A child made by fork starts with none: connections do not survive it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._open: dict[tuple[Any, ...], Store] = {}
        self._abandoned: list[Store] = []
        os.register_at_fork(after_in_child=self._abandon)

    def acquire(self, location: Location, durability: str, lane: str) -> Store:
        """The store for a place, opened if need be. Each lane has connections and a writer of its own."""
        name = (
            location.path or f"memory://{location.name}",
            durability,
            None if location.is_memory else lane,
        )
        with self._lock:
            store = self._open.get(name)
            if store is None:
                first = not any(other.location.path == location.path for other in self._open.values())
                store = Store(location, durability)
                store.open(look=first)
                self._open[name] = store
            store.users += 1
            return store

    def release(self, store: Store) -> None:
        if store.pid != os.getpid():
            return
        with self._lock:
            store.users -= 1
            if store.users:
                return
            self._open = {name: each for name, each in self._open.items() if each is not store}
        store.close()

    def _abandon(self) -> None:
        # The inherited handles are kept, never closed: closing them would drop the parent's locks.
        self._lock = threading.RLock()
        self._abandoned += self._open.values()
        self._open = {}


STORES = Stores()
