"""One file, as one process has it open: a thread that writes, a thread that reads, and those who watch.

All writes of a process go through one thread. It takes whatever has been asked for since it last looked and does all of
it in one transaction: under load one fsync serves many requests, and none waits for a timer.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from dovetail.clock import Clock
from dovetail.engines.sqlite import connection
from dovetail.engines.sqlite.ballast import Ballast
from dovetail.engines.sqlite.doorbell import Listener, Neighbours, bells_of
from dovetail.engines.sqlite.location import Location, inspect
from dovetail.engines.sqlite.requests import Request, deliver
from dovetail.engines.sqlite.session import Session
from dovetail.engines.sqlite.watching import FileChanges, Watcher
from dovetail.errors import EngineFull, EngineUnavailable
from dovetail.model import Event, EventKind

T = TypeVar("T")

GATHERED = 512
"""How many requests may share a transaction."""
CHECKPOINT_AT = 16 * 1024 * 1024
"""Bytes of write-ahead log after which it is written back."""
COMMIT_BYTES, CHANGE_BYTES = 20_000, 1_000
"""What a commit, and each row it changes, adds to the log, roughly: SQLite does not say."""
VACUUMED = 250
"""Pages that are given back to the file system after a sweep."""

logger = logging.getLogger("dovetail.sqlite")


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
        self._logged = 0  # bytes in the log since it was last written back, roughly
        self._log_size = 0  # of its file, when it was last written back
        self._checkpointer: sqlite3.Connection | None = None
        folder = None if location.path is None else bells_of(location.path)
        self._neighbours = Neighbours(folder) if folder else None
        self._bells = folder
        self._ballast = Ballast(location.path)
        # Held while a connection is at work, so that a fork can wait for a moment when none is: a child that inherits
        # a transaction halfway would believe for ever that it is under way.
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        self._writer: sqlite3.Connection
        self._reader: sqlite3.Connection | None = None
        self._threads: list[threading.Thread] = []

    # Opening and closing

    def open(self) -> None:
        """Connect and bring the schema up. The file itself is opened by SQLite alone: to close any other handle on it
        would drop this process's locks."""
        inspect(self.location)
        path = self.location.path
        if path is not None:
            connection.create_private(path)
        self._writer = connection.connect(self.location, self._durability)
        try:
            connection.migrate(self._writer, self.location)
            if path is not None:
                if not self.location.single_process:
                    self._reader = connection.connect(self.location, self._durability, read_only=True)
                self._identity = _identity(path)
                self._ballast.is_laid()
        except sqlite3.Error as error:
            self._writer.close()
            raise connection.translated(error, self.location) from error
        except BaseException:
            self._writer.close()
            raise
        self._spawn(self._write_on, "dovetail-writer")
        if self._reader is not None:
            self._spawn(self._read_on, "dovetail-reader")

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
        self._close_connections()

    def pause(self) -> None:
        """Before a fork: wait until no connection is at work, and close them all. SQLite's locks are the process's own,
        and a child that inherits an open database would hold none of them and believe it held all."""
        self._writing.acquire()
        self._reading.acquire()
        if self._listener is not None:
            self._listener.pause()
        if not self.location.is_memory:
            self._close_connections()

    def go_on(self) -> None:
        """After a fork, in the parent."""
        try:
            if not self.location.is_memory:
                self._connect()
        finally:
            if self._listener is not None:
                self._listener.go_on()
            self._reading.release()
            self._writing.release()

    def _connect(self) -> None:
        self._writer = connection.connect(self.location, self._durability)
        if not self.location.is_memory and not self.location.single_process:
            self._reader = connection.connect(self.location, self._durability, read_only=True)

    def _close_connections(self) -> None:
        for each in (self._reader, self._checkpointer, self._writer):
            if each is not None:
                each.close()
        self._checkpointer = None

    def was_replaced(self) -> bool:
        """Whether the file under the open connections is no longer the one at its path."""
        path = self.location.path
        return path is not None and _identity(path) != self._identity

    # Asking

    async def write(self, work: Callable[[Session], T], docket: int, clock: Clock, *, grows: bool = False) -> T:
        """Do something in a write transaction, and return once it is durable."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        clock.work_began()
        self._requests.put(Request(work, docket, clock, grows, loop, future))
        return await future

    async def read(self, work: Callable[[Session], T], docket: int, clock: Clock) -> T:
        """Look at what is committed. A store in memory has one connection, so there the writer reads."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        queue = self._requests if self._reader is None else self._reads
        clock.work_began()
        queue.put(Request(work, docket, clock, False, loop, future))
        return await future

    # Reading

    def _read_on(self) -> None:
        while (request := self._reads.get()) is not None:
            with self._reading:
                db = self._reader or self._writer
                session = Session(db, request.docket, request.clock.microseconds(), frozenset())
                self._perform_read(db, session, request)
            deliver([request])
            request.clock.work_ended()

    def _perform_read(self, db: sqlite3.Connection, session: Session, request: Request[Any]) -> None:
        try:
            db.execute("BEGIN")
            try:
                request.result = connection.patiently(lambda: request.work(session))
            finally:
                db.execute("ROLLBACK")
        except BaseException as error:
            request.error = self._told(error)

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
                with self._writing:
                    self._write(batch)
                # Not before the hints are on their way: a clock that is moved waits for what they set going.
                for done in batch:
                    done.clock.work_ended()

    def _write(self, batch: list[Request[Any]]) -> None:
        able = self._refuse_growth(batch) if any(request.grows for request in batch) else batch
        try:
            if self.was_replaced():
                raise EngineUnavailable(
                    f"{self.location.path} was deleted or replaced while it was open; what is written now goes nowhere:"
                    " restart every process that uses it"
                )
            sessions = self._transact(able) if able else []
        except sqlite3.Error as error:
            sessions = self._write_when_full(able) if connection.is_full(error) else self._fail(able, error)
        except BaseException as error:
            sessions = self._fail(able, error)
        deliver(batch)
        try:
            for session in sessions:
                self._tell(session)
            tidy = any(session.tidy for session in sessions)
            self._tend(tidy=tidy, payload=sum(session.payload for session in sessions))
        except Exception:
            # Hints and upkeep: the writes are done, and the thread has to go on.
            logger.exception("a hint or the upkeep of %s failed", self.location.name)

    def _refuse_growth(self, batch: list[Request[Any]]) -> list[Request[Any]]:
        """While the ballast is gone, what room there is belongs to running work."""
        return batch if self._ballast.is_laid() else self._without_growth(batch)

    def _without_growth(self, batch: list[Request[Any]]) -> list[Request[Any]]:
        refused = EngineFull(f"{self.location.path}: the disk is full; free some space, running work can still finish")
        for request in batch:
            request.error = refused if request.grows else None
        return [request for request in batch if not request.grows]

    def _write_when_full(self, batch: list[Request[Any]]) -> list[Session]:
        """Refuse new work. For running work to finish, let go of the ballast, and cut the log off."""
        rest = self._without_growth(batch)
        if not rest:
            return []
        self._ballast.drop()
        try:
            connection.patiently(lambda: self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall())
            return self._transact(rest)
        except sqlite3.Error as error:
            return self._fail(rest, error)

    def _fail(self, batch: list[Request[Any]], error: BaseException) -> list[Session]:
        cause = self._told(error)
        for request in batch:
            request.error = cause
        return []

    def _told(self, error: BaseException) -> BaseException:
        """An error as whoever asked is told of it."""
        if isinstance(error, sqlite3.Error):
            return connection.translated(error, self.location)
        return connection.damaged(error, self.location) if isinstance(error, Exception) else error

    def _transact(self, batch: list[Request[Any]]) -> list[Session]:
        """Everything in the batch in one transaction. A request that fails takes back only its own work."""
        db = self._writer
        tells = self._tells()
        connection.patiently(lambda: db.execute("BEGIN IMMEDIATE"))
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
        except BaseException as error:
            if isinstance(error, sqlite3.Error) and connection.is_grave(error):
                raise
            request.error = self._told(error)
            db.execute("ROLLBACK TO request")
        db.execute("RELEASE request")

    def _tend(self, *, tidy: bool, payload: int) -> None:
        """After a commit: write the log back once it is long, and give free pages back after a sweep."""
        path = self.location.path
        if path is None:
            return
        changes = self._writer.total_changes
        self._logged += COMMIT_BYTES + (changes - self._changes) * CHANGE_BYTES + payload
        self._changes = changes
        size = _size(f"{path}-wal")
        if self._logged >= CHECKPOINT_AT or size > max(self._log_size, CHECKPOINT_AT):
            self._log_size = size
            self._logged = 0
            self._checkpoint()
        if tidy:
            self._vacuum()

    def _vacuum(self) -> None:
        """Give some free pages back; the file shrinks when the log is written back."""
        if self._writer.execute("PRAGMA freelist_count").fetchone() == (0,):
            return
        # A script, since a single execute would free one page of many.
        self._writer.executescript(f"PRAGMA incremental_vacuum({VACUUMED})")
        self._checkpoint()

    def _checkpoint(self) -> None:
        """Write the log back while no other process can commit: SQLite before 3.51.3 can corrupt a file when the two
        race. The writer holds the lock, and another connection does the work; the next commit begins the log anew.
        """
        if self.location.single_process:
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            return
        if self._checkpointer is None:
            self._checkpointer = connection.connect(self.location, self._durability)
        try:
            self._writer.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return  # somebody else is at it: the next commit looks again
        try:
            self._checkpointer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        finally:
            self._writer.execute("ROLLBACK")

    # Telling

    def _tells(self) -> frozenset[EventKind]:
        neighbours = self._neighbours.kinds() if self._neighbours else frozenset[EventKind]()
        return self._kinds | neighbours

    def _tell(self, session: Session) -> None:
        latecomers = (self._tells() - session.tells) & {EventKind.STATE, EventKind.PROGRESS}
        if latecomers and session.docket:
            # Whoever began to listen during the transaction may have read just before its end: let him look again.
            again = [Event(kind) for kind in latecomers]
            if self._neighbours is not None:
                self._neighbours.ring(session.docket, again)
            self._heard(session.docket, again)
        events = session.events
        if session.work:
            events = [Event(EventKind.WORK), *events]
        if not events:
            return
        if self._neighbours is not None:
            self._neighbours.ring(session.docket, events)
        self._heard(session.docket, events)

    def hint(self, docket: int) -> None:
        """Let those who wait for work look for it. From whichever thread."""
        work = [Event(EventKind.WORK)]
        if self._neighbours is not None:
            self._neighbours.ring(docket, work)
        self._heard(docket, work)

    def _heard(self, docket: int, events: list[Event]) -> None:
        with self._watching:
            watchers = list(self._watchers)
        for watcher in watchers:
            for event in events:
                if watcher.wants(docket, event):
                    watcher.hand_over(event)

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
        if self._bells is None or self._neighbours is None or self.location.single_process:
            return
        if self._listener is None and self._kinds:
            self._listener = Listener(self._bells, self._heard, FileChanges(self.location, self._durability))
            self._neighbours.own = self._listener.start(self._kinds)
        elif self._listener is not None:
            self._neighbours.own = self._listener.want(self._kinds)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
