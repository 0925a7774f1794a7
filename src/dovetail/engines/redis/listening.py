"""Listening: one connection hears for all watchers of an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Self

import msgspec
from redis import exceptions as driver

from dovetail.engines.redis import packing
from dovetail.engines.redis.lane import Effort
from dovetail.engines.redis.location import encoded
from dovetail.engines.redis.troubles import Unreachable
from dovetail.engines.redis.wire import Wire
from dovetail.errors import EngineUnavailable
from dovetail.model import Event, EventKind, Topic

SUBSCRIBING = 5.0
"""Seconds within which the server has to confirm a subscription."""
_UNREADABLE = (msgspec.MsgspecError, ValueError, KeyError, TypeError, AttributeError, OverflowError)
"""What goes wrong with a message that none of our scripts has told: anybody may publish."""

logger = logging.getLogger("dovetail.redis")

_KEYED = (EventKind.STATE, EventKind.PROGRESS)


class Events:
    """The events heard. Not a generator: one that is cancelled while it waits is over, and waiting for an event with a
    time limit must not be the end of listening."""

    def __init__(self, topics: frozenset[Topic]) -> None:
        self.topics = topics
        self._heard: asyncio.Queue[Event] = asyncio.Queue()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        return await self._heard.get()

    def hear(self, event: Event) -> None:
        is_of_all = event.key is None  # a hint without news
        if any(topic.kind is event.kind and (is_of_all or topic.key in (None, event.key)) for topic in self.topics):
            self._heard.put_nowait(event)


class Listener:
    """Hears what the scripts tell, and hands it to those who watch."""

    def __init__(self, shown: str, root: str, connect: Callable[[], Awaitable[Wire]], *, keeps: bool) -> None:
        self._shown = shown
        self._root = root
        self._keeps = keeps  # whether the connection is kept for the next watcher
        self._connect = connect
        self._channels: Counter[str] = Counter()
        self._watchers: set[Events] = set()
        self._wire: Wire | None = None
        self._awaited: dict[bytes, asyncio.Future[None]] = {}
        self._reading: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()
        self._has_complained = False

    async def watch(self, topics: frozenset[Topic]) -> Events:
        """Begin to hear of these topics: whatever is told after this returns is heard."""
        effort = Effort(self._shown)
        while True:
            try:
                return await self._watch(topics)
            except (driver.RedisError, OSError, EOFError, EngineUnavailable) as error:
                await effort.go_on_after(error)

    async def _watch(self, topics: frozenset[Topic]) -> Events:
        events = Events(topics)
        channels = self._channels_of(topics)
        async with self._opening:
            if self._wire is None:
                self._wire = await self._connect()
                self._begin_to_read()
            new = [channel for channel in channels if not self._channels[channel]]
            self._channels.update(channels)
            self._watchers.add(events)
            try:
                await self._subscribe(new)
            except BaseException:
                self._leave(events, channels)
                raise
        return events

    async def unwatch(self, events: Events) -> None:
        self._leave(events, self._channels_of(events.topics))
        if not self._watchers and not self._keeps:
            await self.close()
        idle = [channel for channel in self._channels_of(events.topics) if not self._channels[channel]]
        if idle and self._wire is not None:
            with contextlib.suppress(driver.RedisError, OSError, TimeoutError):
                self._say(b"UNSUBSCRIBE", idle)

    def _leave(self, events: Events, channels: list[str]) -> None:
        self._watchers.discard(events)
        self._channels.subtract(channels)
        self._channels = +self._channels

    def distrust(self) -> None:
        """The way to the server is in doubt: connect anew."""
        if self._wire is not None:
            self._wire.abort()

    async def close(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading
        if self._wire is not None:
            self._wire.abort()
            self._wire = None

    # Channels

    def _channels_of(self, topics: frozenset[Topic]) -> list[str]:
        channels: dict[str, None] = {}
        for topic in topics:
            if topic.key is not None and topic.kind in _KEYED:
                channels[f"{self._root}keyed"] = None
                channels[f"{self._root}{topic.kind}:{encoded(topic.key)}"] = None
            else:
                channels[f"{self._root}{topic.kind}"] = None
        return list(channels)

    async def _subscribe(self, channels: list[str]) -> None:
        if not channels:
            return
        loop = asyncio.get_running_loop()
        confirmed = {channel.encode(): loop.create_future() for channel in channels}
        self._awaited |= confirmed
        try:
            self._say(b"SUBSCRIBE", channels)
            async with asyncio.timeout(SUBSCRIBING):
                await asyncio.gather(*confirmed.values())
        except (driver.RedisError, OSError, TimeoutError) as error:
            self.distrust()
            raise Unreachable(f"the server did not confirm a subscription: {error}") from error
        finally:
            for channel in confirmed:
                self._awaited.pop(channel, None)

    def _say(self, command: bytes, channels: list[str]) -> None:
        if self._wire is None:
            raise driver.ConnectionError("not connected")
        words = (command, *(channel.encode() for channel in channels))
        self._wire.send(*words)

    # Reading

    def _begin_to_read(self) -> None:
        self._reading = asyncio.create_task(self._read_on(), name="dovetail-redis-listener")
        self._reading.add_done_callback(self._read_again)

    def _read_again(self, ended: asyncio.Task[None]) -> None:
        """Somebody may cancel whatever task there is: those who watch did not ask for it."""
        if self._reading is ended:
            self._begin_to_read()

    async def _read_on(self) -> None:
        while True:
            wire = self._wire
            try:
                while wire is not None:
                    self._hear(await wire.read())
            except (driver.RedisError, OSError, EOFError):
                await self._reconnect()

    def _hear(self, message: object) -> None:
        if not isinstance(message, list):
            return
        kind, channel, data = message  # pyright: ignore[reportUnknownVariableType]
        if kind == b"subscribe":
            awaited = self._awaited.get(channel)  # pyright: ignore[reportUnknownArgumentType]
            if awaited is not None and not awaited.done():
                awaited.set_result(None)
        elif kind == b"message":
            for event in self._readable(data):  # pyright: ignore[reportUnknownArgumentType]
                for watcher in list(self._watchers):
                    watcher.hear(event)

    def _readable(self, data: bytes) -> list[Event]:
        """The events of a message; none if it cannot be read. That is said once: whoever published it may go on."""
        try:
            return self._events(data)
        except _UNREADABLE as error:
            if not self._has_complained:
                self._has_complained = True
                logger.warning("%s: a message cannot be read, and was passed over: %s", self._shown, error)
            return []

    def _events(self, data: bytes) -> list[Event]:
        return [packing.event(told) for told in packing.decode(data)] if data else [Event(EventKind.WORK)]

    async def _reconnect(self) -> None:
        """Connect anew, and let everyone look again: what was told meanwhile was not heard."""
        pause = 0.05
        while True:
            try:
                self._wire = await self._connect()
                if self._channels:
                    self._say(b"SUBSCRIBE", list(self._channels))
                    async with asyncio.timeout(SUBSCRIBING):
                        self._hear(await self._wire.read())
                break
            except (driver.RedisError, OSError, EOFError, EngineUnavailable):
                await asyncio.sleep(pause * random.uniform(0.5, 1.5))
                pause = min(pause * 2, 2.0)
        for watcher in list(self._watchers):
            for kind in {topic.kind for topic in watcher.topics}:
                watcher.hear(Event(kind))
