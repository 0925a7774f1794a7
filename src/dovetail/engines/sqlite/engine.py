"""Runs in an SQLite file, or in memory. Every operation is one write transaction, so the file's lock orders them."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any, Self, TypeVar

from dovetail.clock import Clock
from dovetail.engine.reminding import Reminders
from dovetail.engines.sqlite import (
    archive,
    claiming,
    clearing,
    connection,
    control,
    enlisting,
    examining,
    finishing,
    glancing,
    scheduling,
    sight,
    standing,
    upkeep,
)
from dovetail.engines.sqlite.connection import translated
from dovetail.engines.sqlite.location import locate
from dovetail.engines.sqlite.quarantine import quarantine
from dovetail.engines.sqlite.session import Session
from dovetail.engines.sqlite.store import Store
from dovetail.engines.sqlite.stores import STORES
from dovetail.engines.sqlite.transacting import TaskTransaction
from dovetail.engines.sqlite.watching import Watcher
from dovetail.errors import EngineUnavailable, InvalidArgument, StoreDamaged
from dovetail.model import (
    Cancelled,
    Claim,
    Claimed,
    Cleared,
    Event,
    Finding,
    Finished,
    Glance,
    Hold,
    NewRun,
    Page,
    Placement,
    ProgressReport,
    Pulse,
    Revival,
    Run,
    RunQuery,
    Standing,
    Survey,
    Swept,
    Topic,
    Verdict,
    WorkerInfo,
)

T = TypeVar("T")

OLDEST_SQLITE = (3, 35, 0)


class SqliteEngine:
    """Keeps the runs of one docket in an SQLite file."""

    def __init__(self, url: str, docket: str, *, clock: Clock, durability: str = "durable", lane: str = "main") -> None:
        if durability not in ("durable", "process"):
            raise InvalidArgument(
                f"durability must be 'durable' or 'process' for SQLite, not {durability!r}; other levels need"
                " PostgreSQL or Redis"
            )
        self._url = url
        self._location = locate(url)
        self._name = docket
        self._clock = clock
        self._durability = durability
        self._lane = lane
        self._store: Store | None = None
        self._reminders: Reminders | None = None
        self._docket = 0
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise EngineUnavailable(
                f"SQLite {sqlite3.sqlite_version} is too old; Dovetail needs 3.35 or later, which any Python 3.11"
                " build of the last years has"
            )
        self._store = await self._in_thread(partial(STORES.acquire, self._location, self._durability, self._lane))
        # Read first: a caller whose own transaction keeps the file locked may be about to schedule in it.
        known = await self._store.read(partial(_known_docket, name=self._name), 0, self._clock)
        self._docket, mark = known or await self._store.write(partial(_docket_of, name=self._name), 0, self._clock)
        self._clock.advance_to(mark)
        self._reminders = Reminders(lambda: self._opened().hint(self._docket))
        return self

    async def __aexit__(self, *_: object) -> None:
        store, self._store = self._store, None
        if self._reminders is not None:
            self._reminders.close()
        if store is not None:
            await self._in_thread(partial(STORES.release, store))

    def twin(self) -> Self:
        return type(self)(self._url, self._name, clock=self._clock, durability=self._durability, lane=f"{self._lane}'")

    async def migrate(self, to: int | None = None) -> int:
        if self._store is None:
            async with self:
                return await self.migrate(to)
        return await self._write(lambda session: connection.migrate_within(session.db, self._location, to))

    async def plan(self) -> list[str]:
        version = await asyncio.to_thread(connection.version_at, self._location)
        return [name for number, name in connection.names() if number > version]

    def script(self) -> str:
        return "\n".join(text for _, text in connection.migrations())

    def roles(self) -> str:
        return ""

    # A run's life

    async def schedule(self, runs: Sequence[NewRun]) -> list[Placement]:
        return await self._write(partial(scheduling.schedule, runs=runs), grows=True)

    async def schedule_within(self, connection: Any, runs: Sequence[NewRun]) -> list[Placement]:
        """Place the runs in the transaction that a connection of the caller's has open on the same file. When
        that is committed is not seen here: workers are reminded to look for a while, and then look by themselves."""
        self._opened()

        def place(db: sqlite3.Connection) -> list[Placement]:
            session = Session(db, self._docket, self._clock.microseconds(), frozenset())
            return scheduling.schedule(session, runs)

        try:
            placements = await enlisting.within(connection, self._location, place)
        except sqlite3.Error as error:
            raise translated(error, self._location) from error
        if self._reminders is not None:
            self._reminders.begin()
        return placements

    async def claim(
        self,
        worker: str,
        want: int,
        *,
        queues: Sequence[str] = (),
        lease: timedelta,
        ageing: timedelta | None = None,
    ) -> Claimed:
        leapt = self._clock.leapt_within
        claim = partial(
            claiming.claim, worker=worker, want=want, queues=queues, lease=lease, leapt=leapt, ageing=ageing
        )
        try:
            return await self._write(claim)
        except StoreDamaged:
            if not await self._write(quarantine):
                raise
            return await self._write(claim)

    async def finish(self, verdicts: Sequence[Verdict]) -> list[Finished]:
        return await self._write(partial(finishing.finish, verdicts=verdicts))

    async def transaction(self) -> TaskTransaction:
        """A transaction on the same file. Nobody is told of the end that is written there."""
        self._opened()

        def say(db: sqlite3.Connection, verdict: Verdict) -> Finished:
            session = Session(db, self._docket, self._clock.microseconds(), frozenset())
            return finishing.finish(session, [verdict])[0]

        return await TaskTransaction.begin(self._location, self._durability, say, self._turn)

    async def heartbeat(self, worker: WorkerInfo, claims: Sequence[Claim], *, lease: timedelta) -> Pulse:
        beat = partial(control.heartbeat, worker=worker, claims=claims, lease=lease)
        pulse, mark = await self._write(beat)
        self._clock.advance_to(mark)
        return pulse

    async def cancel(self, keys: Sequence[str], *, running: bool = True) -> list[Cancelled]:
        return await self._write(partial(control.cancel, keys=keys, running=running))

    async def clear(self, query: RunQuery) -> Cleared:
        return await self._write(partial(clearing.clear, query=query))

    async def report(self, reports: Sequence[ProgressReport]) -> list[bool]:
        return await self._write(partial(control.report, reports=reports))

    async def revive(self, revivals: Sequence[Revival]) -> list[bool]:
        return await self._write(partial(control.revive, revivals=revivals))

    async def discard(self, ids: Sequence[str]) -> list[bool]:
        return await self._write(partial(archive.discard, ids=ids))

    # Holds

    async def hold(self, holds: Sequence[Hold]) -> None:
        await self._write(partial(control.hold, holds=holds), grows=True)

    async def lift(self, holds: Sequence[Hold]) -> None:
        await self._write(partial(control.lift, holds=holds))

    async def holds(self) -> list[Hold]:
        return await self._read(control.holds)

    # Sight

    async def find(self, query: RunQuery) -> Page[Run]:
        return await self._read(partial(sight.find, query=query))

    async def survey(self) -> Survey:
        return await self._read(sight.survey)

    async def standing(self, run_id: str) -> Standing | None:
        return await self._read(partial(standing.standing, run_id=run_id))

    async def glance(self) -> Glance:
        return await self._read(glancing.glance)

    async def examine(self, durability: str | None = None) -> list[Finding]:
        asked = durability or self._durability
        return await self._read(partial(examining.examine, location=self._location, durability=asked))

    @asynccontextmanager
    async def watch(self, *topics: Topic) -> AsyncGenerator[AsyncIterator[Event]]:
        store = self._opened()
        heard: asyncio.Queue[Event] = asyncio.Queue()
        watcher = Watcher(self._docket, frozenset(topics), asyncio.get_running_loop(), heard.put_nowait)
        registering = asyncio.ensure_future(self._in_thread(partial(store.watch, watcher)))
        try:
            await asyncio.shield(registering)
            yield Events(heard)
        finally:
            # A thread cannot be stopped: whoever is cancelled meanwhile waits, lest the watcher outlive the watch.
            await asyncio.wait([registering])
            store.unwatch(watcher)

    # Upkeep

    async def sweep(self, *, silent_for: timedelta = timedelta(minutes=1), at_most: int = 1000) -> Swept:
        return await self._write(partial(upkeep.sweep, silent_for=silent_for, at_most=at_most))

    async def archived(self) -> int:
        return await self._read(archive.archived)

    async def residue(self) -> dict[str, int]:
        return await self._read(upkeep.residue)

    # Connection

    async def _write(self, work: Callable[[Session], T], *, grows: bool = False) -> T:
        return await self._opened().write(work, self._docket, self._clock, grows=grows)

    async def _read(self, work: Callable[[Session], T]) -> T:
        return await self._opened().read(work, self._docket, self._clock)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        self._clock.work_began()
        try:
            return await asyncio.to_thread(work)
        finally:
            self._clock.work_ended()

    def _opened(self) -> Store:
        store = self._store
        if store is None:
            raise EngineUnavailable(f"the docket {self._name!r} is not open; use it inside 'async with'")
        if store.pid != os.getpid():
            # This is a child made by fork: what it inherited is the parent's.
            store = self._store = STORES.acquire(self._location, self._durability, self._lane)
        return store


class Events:
    """The events heard. Not a generator: one that is cancelled while it waits is over, and waiting for an event with a
    time limit must not be the end of listening."""

    def __init__(self, heard: asyncio.Queue[Event]) -> None:
        self._heard = heard

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        return await self._heard.get()


def _docket_of(session: Session, name: str) -> tuple[int, int]:
    """The docket's number, and the latest time that was gone by on it."""
    session.db.execute("INSERT OR IGNORE INTO dovetail_docket (name) VALUES (?)", (name,))
    row = _known_docket(session, name)
    assert row is not None  # noqa: S101 - it was just put there
    return row


def _known_docket(session: Session, name: str) -> tuple[int, int] | None:
    return session.db.execute("SELECT id, mark FROM dovetail_docket WHERE name = ?", (name,)).fetchone()
