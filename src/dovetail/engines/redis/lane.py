"""One event loop's way to the server: wires, repeats, and what to do when something is wrong.

Every script may be repeated, so a lost reply costs a repetition and nothing else. The driver itself repeats nothing.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from redis import exceptions as driver

from dovetail.engines.redis import scripts
from dovetail.engines.redis.location import Location
from dovetail.engines.redis.routing import Route, Server, opened
from dovetail.engines.redis.scripts import WHEN_FULL, script
from dovetail.engines.redis.troubles import Remedy, ReplyLost, Unreachable, remedy_for, told
from dovetail.engines.redis.wire import Wire
from dovetail.errors import EngineUnavailable, OutcomeUnknown

READING = 5.0
"""Seconds for which a server may be silent while a reply is awaited."""
PATIENCE = 8.0
"""Seconds for which a call is tried again before the caller is told."""
LINKS = 8
"""Connections of one event loop, at most."""
CONFIRMING = 2000
"""Milliseconds within which replicas have to confirm."""

Request = Callable[[bool], bytes]
"""What a script is asked, packed; told whether it is asked again."""


class Lane:
    """The wires of one event loop."""

    def __init__(self, location: Location, root: str, *, keeps: bool, distrusted: Callable[[], None]) -> None:
        self.pid = os.getpid()
        self.server: Server | None = None
        self.changed_at: float | None = None  # when another server was met than before
        self._location = location
        self._route = Route(location, root)
        self._root = root.encode()
        self._spare = f"{root}-".encode()
        self._idle: list[Wire] = []
        self._all: set[Wire] = set()
        self._room = asyncio.Semaphore(LINKS)
        self._is_closed = False
        self._keeps = keeps  # whether connections are kept for the next call
        self._distrusted = distrusted

    async def open(self) -> None:
        """Make the first connection, or say at once why it cannot be made."""
        self._idle.append(await self._connect(at_first=True))

    def close(self) -> None:
        self._is_closed = True
        for wire in self._all:
            wire.abort()
        self._all.clear()
        self._idle.clear()

    async def wire(self) -> Wire:
        """A connection of its own, for one who listens."""
        return self._unless_closed((await self._route.connect())[0])

    # Calling

    async def run(
        self, name: str, request: Request, blobs: Sequence[bytes] = (), *, now: str = "", confirmed_by: int = 0
    ) -> Any:
        """Run a script, again if need be."""
        effort = Effort(self._location.shown, only_reads=name in scripts.READING)
        while True:
            effort.was_sent = False
            if self._is_closed:
                raise effort.told(Unreachable("it was closed here"))
            try:
                async with self._borrowed() as wire:
                    effort.was_sent = True
                    reply = await self._evaluate(wire, name, request(effort.may_be_done), blobs, now)
                    if confirmed_by:
                        await self._confirm(wire, confirmed_by)
                    return reply
            except (driver.RedisError, OSError, EOFError, EngineUnavailable) as error:
                self._mind(error)
                await effort.go_on_after(error)

    async def command(self, *words: str | bytes) -> Any:
        """A plain command, not repeated. What the server says against it is for the caller to judge."""
        try:
            async with self._borrowed() as wire:
                return await wire.command(*(_bytes(word) for word in words), within=READING)
        except (driver.ConnectionError, driver.TimeoutError, OSError) as error:
            raise told(error, self._location.shown) from error

    async def _evaluate(self, wire: Wire, name: str, request: bytes, blobs: Sequence[bytes], now: str) -> Any:
        assert self.server is not None  # noqa: S101 - a connection was made
        flags = self.server.knows_flags
        wanted = script(name, flags=flags)
        when_full = b"free first" if name in WHEN_FULL and not flags else b""
        words = (b"EVALSHA", wanted.digest, b"2", self._root, self._spare, now.encode(), when_full, request, *blobs)
        try:
            return await wire.command(*words, within=READING)
        except driver.ResponseError as error:
            if remedy_for(error) is not Remedy.LOAD:
                raise
            await wire.command(b"SCRIPT", b"LOAD", wanted.source, within=READING)
            return await wire.command(*words, within=READING)

    async def _confirm(self, wire: Wire, replicas: int) -> None:
        """Wait until so many replicas have what this connection has written."""
        confirmed: int = await wire.command(b"WAIT", b"%d" % replicas, b"%d" % CONFIRMING, within=READING)
        if confirmed < replicas:
            raise OutcomeUnknown(
                f"{self._location.shown}: done, but confirmed by {confirmed} of {replicas} replicas within"
                f" {CONFIRMING / 1000:.0f} s; asking again is safe"
            )

    # Connections

    @asynccontextmanager
    async def _borrowed(self) -> AsyncGenerator[Wire]:
        """A connection for one call. After an error it is of use only if the server has answered with it."""
        async with self._room:
            wire = self._idle_wire() or await self._connect()
            is_sound = False
            try:
                yield wire
                is_sound = True
            except (driver.ResponseError, OutcomeUnknown):
                is_sound = True
                raise
            finally:
                if is_sound and self._keeps and not wire.is_lost:
                    self._idle.append(wire)
                else:
                    self._abandon(wire)

    def _idle_wire(self) -> Wire | None:
        while self._idle:
            wire = self._idle.pop()
            if not wire.is_lost:
                return wire
            self._abandon(wire)
        return None

    async def _connect(self, *, at_first: bool = False) -> Wire:
        making = opened(self._route, self._location.shown) if at_first else self._route.connect()
        wire, server = await making
        self._unless_closed(wire)
        if self.server is not None and self.server.run_id != server.run_id:
            self.changed_at = time.monotonic()
        self.server = server
        self._all.add(wire)
        return wire

    def _unless_closed(self, wire: Wire) -> Wire:
        """It takes a while to connect, and meanwhile there may be nobody left to close what was opened."""
        if self._is_closed:
            wire.abort()
            raise Unreachable("it was closed here")
        return wire

    def _abandon(self, wire: Wire) -> None:
        self._all.discard(wire)
        wire.abort()

    def _mind(self, error: BaseException) -> None:
        """When something is wrong with the server, or with the way there, none of the connections is to be trusted."""
        remedy = remedy_for(error)
        if remedy in (Remedy.MOVE, Remedy.REPEAT):
            while wire := self._idle_wire():
                self._abandon(wire)
        if remedy is Remedy.MOVE or isinstance(error, driver.TimeoutError):
            self._distrusted()  # a connection that was cut is noticed by whoever listens; silence is not


class Effort:
    """How long a call has been tried, and what is known of it."""

    def __init__(self, where: str, *, only_reads: bool = False) -> None:
        self._only_reads = only_reads
        self.was_sent = False
        self.may_be_done = False
        self._where = where
        self._deadline = time.monotonic() + PATIENCE
        self._pause = 0.0

    async def go_on_after(self, error: Exception) -> None:
        """Wait a little before the next try; or tell the caller, if there is to be none."""
        remedy = remedy_for(error)
        is_answer = self.was_sent and remedy is Remedy.TELL
        if self.was_sent and remedy is Remedy.REPEAT:
            self.may_be_done = True
        if is_answer or time.monotonic() > self._deadline:
            raise (told(error, self._where) if is_answer else self.told(error)) from error
        # The first time at once: a connection that was idle may just have been cut.
        await asyncio.sleep(self._pause * random.uniform(0.5, 1.5))
        self._pause = min(max(self._pause * 2, 0.005), 1.0)

    def told(self, error: Exception) -> BaseException:
        """What the caller is told if there is no answer."""
        if self.may_be_done and not self._only_reads:
            return ReplyLost(
                f"{self._where} was lost before it answered: it may have done what was asked, or not; asking again is"
                f" safe ({error})"
            )
        return told(error, self._where)


def _bytes(word: str | bytes) -> bytes:
    return word.encode() if isinstance(word, str) else word
