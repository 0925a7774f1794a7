"""Hints between processes: notifications that are sent together, and those who watch for them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from dovetail.engine.reminding import Reminders
from dovetail.engines.postgres.failing import nothing_done
from dovetail.engines.postgres.location import Location
from dovetail.engines.postgres.news import News, events_of, messages
from dovetail.engines.postgres.pool import Pool
from dovetail.engines.postgres.wire import Wire
from dovetail.errors import DovetailError
from dovetail.model import Event, EventKind, Topic

PAUSE = 0.01
"""Seconds between two notifications of one engine: what happens meanwhile is told together."""
POLL = 2.0
"""Seconds between looks where nobody can listen."""
CHECK = 30.0
"""Seconds between signs of life of the connection that listens."""

SEEN_BY_READING = frozenset({EventKind.STATE, EventKind.PROGRESS})
"""What one looks for once and then waits to hear of."""
LETTERS = {
    EventKind.WORK: "w",
    EventKind.STOP: "x",
    EventKind.HOLDS: "h",
    EventKind.STATE: "s",
    EventKind.PROGRESS: "p",
}

logger = logging.getLogger("dovetail.postgres")


class Notifier:
    """Sends what there is to tell from short transactions of its own, never from the one that did it: a notification
    takes a lock of the whole database at the commit."""

    def __init__(self, pool: Pool, channel: str) -> None:
        self._pool = pool
        self._channel = channel
        self._events: list[Event] = []
        self._work = False
        self._task: asyncio.Task[None] | None = None

    def tell(self, news: News) -> None:
        self._work = self._work or news.work
        self._events += [told.event() for told in news.told]
        if (self._work or self._events) and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._send(), name="dovetail-notifier")

    async def _send(self) -> None:
        while self._work or self._events:
            events, self._events = self._events, []
            if self._work:
                events.insert(0, Event(EventKind.WORK))
                self._work = False
            try:
                async with self._pool.lend() as wire:
                    await wire.ask(
                        "SELECT pg_notify($1, message) FROM unnest($2::text[]) AS message",
                        (self._channel, messages(events)),
                    )
            except DovetailError as error:
                logger.debug("a hint was lost: %s", error)
            await asyncio.sleep(PAUSE)

    async def close(self) -> None:
        if self._task is not None:
            await asyncio.wait([self._task])


@dataclass(eq=False, slots=True)
class Watcher:
    """Somebody who wants to hear of a docket's events."""

    topics: frozenset[Topic]
    heard: asyncio.Queue[Event] = field(default_factory=asyncio.Queue[Event])

    @property
    def kinds(self) -> frozenset[EventKind]:
        return frozenset(topic.kind for topic in self.topics)

    def wants(self, event: Event) -> bool:
        is_of_all = event.key is None  # a hint without news
        return any(topic.kind is event.kind and (is_of_all or topic.key in (None, event.key)) for topic in self.topics)


class Listener:
    """Hears what other processes tell. The connection that listens also holds a lock for each kind that is wanted:
    for as long as it lives, those who write see that somebody listens."""

    def __init__(self, location: Location, docket: int, channel: str) -> None:
        self._location = location
        self._docket = docket
        self._channel = channel
        self._watchers: set[Watcher] = set()
        self._wire: Wire | None = None
        self._shown: frozenset[EventKind] = frozenset()
        self._changing = asyncio.Lock()
        self._lost = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._reminders = Reminders(lambda: self._look_again(SEEN_BY_READING))

    async def add(self, watcher: Watcher) -> None:
        self._watchers.add(watcher)
        try:
            await self._tune()
        except BaseException as error:
            self._watchers.discard(watcher)
            if isinstance(error, DovetailError):
                raise nothing_done(error) from error
            raise
        if self._task is None:
            keep_on = self._poll() if self._location.pooled else self._keep_listening()
            self._task = asyncio.create_task(keep_on, name="dovetail-listener")

    async def remove(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)
        with contextlib.suppress(DovetailError):
            await self._tune()

    async def _tune(self) -> None:
        """Show the kinds that anybody here wants."""
        if self._location.pooled:
            return
        async with self._changing:
            wanted = frozenset[EventKind]().union(*(watcher.kinds for watcher in self._watchers))
            if self._wire is None or not self._wire.is_open:
                if not wanted:
                    return
                await self._connect()
            await self._show(wanted)

    async def _connect(self) -> None:
        self._wire = wire = await Wire.connect(self._location)
        self._shown = frozenset()
        self._lost.clear()
        wire.listen(self._hear, self._lost.set)
        await wire.ask(f'LISTEN "{self._channel}"')

    async def _show(self, wanted: frozenset[EventKind]) -> None:
        wire = self._wire
        assert wire is not None  # noqa: S101
        ear = f'"{self._location.schema}".ear($1, $2)'
        for kind in wanted - self._shown:
            await wire.ask(f"SELECT pg_advisory_lock_shared({ear})", (self._docket, LETTERS[kind]))
        if (wanted - self._shown) & SEEN_BY_READING:
            # A transaction that is under way may have found nobody listening, and does not tell of what nobody can read
            # before its end.
            self._reminders.begin()
        for kind in self._shown - wanted:
            await wire.ask(f"SELECT pg_advisory_unlock_shared({ear})", (self._docket, LETTERS[kind]))
        self._shown = wanted

    def _hear(self, message: str) -> None:
        for event in events_of(message):
            self.hand_over(event)

    def hand_over(self, event: Event) -> None:
        for watcher in self._watchers:
            if watcher.wants(event):
                watcher.heard.put_nowait(event)

    def tell_here(self, news: News) -> None:
        """Hand over what this engine itself did, where nothing can be heard of others."""
        if news.work:
            self.hand_over(Event(EventKind.WORK))
        for told in news.told:
            self.hand_over(told.event())

    def _look_again(self, kinds: Iterable[EventKind] = EventKind) -> None:
        for kind in kinds:
            self.hand_over(Event(kind))

    async def _keep_listening(self) -> None:
        """See that the connection lives; after a new one everybody looks for himself, since hints went lost."""
        pause = 0.1
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._lost.wait(), CHECK)
            try:
                if self._lost.is_set() or self._wire is None or not self._wire.is_open:
                    await self._reconnect()
                else:
                    await self._wire.ask("SELECT 1", patience=10)
                pause = 0.1
            except DovetailError as error:
                logger.debug("cannot listen: %s", error)
                self._lost.set()
                await asyncio.sleep(pause * random.uniform(0.5, 1.5))
                pause = min(pause * 2, 5.0)

    async def _reconnect(self) -> None:
        async with self._changing:
            wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()
        await self._tune()
        self._lost.clear()
        self._look_again()

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL * random.uniform(0.8, 1.2))
            self._look_again()

    async def close(self) -> None:
        self._reminders.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._wire is not None:
            await self._wire.close()


class Events:
    """The events heard. Not a generator: one that is cancelled while it waits is over, and waiting for an event with a
    time limit must not be the end of listening."""

    def __init__(self, watcher: Watcher) -> None:
        self._heard = watcher.heard

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        return await self._heard.get()
