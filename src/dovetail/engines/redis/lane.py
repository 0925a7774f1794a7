"""One event loop's way to the server: wires, repeats, and what to do when something is wrong.

Every script may be repeated, so a lost reply costs a repetition and nothing else. The driver itself repeats nothing.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from redis import exceptions as driver

from dovetail.engines.redis.location import Location
from dovetail.engines.redis.routing import Route, Server, opened
from dovetail.engines.redis.scripts import WHEN_FULL, Script, script
from dovetail.engines.redis.troubles import Remedy, remedy_for, told
from dovetail.engines.redis.wire import Wire
from dovetail.errors import EngineUnavailable, OutcomeUnknown

READING = 5.0
"""Seconds within which a reply has to come."""
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
        self._keeps = keeps  # whether connections are kept for the next call
        self._distrusted = distrusted

    async def open(self) -> None:
        """Make the first wire, or say at once why it cannot be made."""
        self._idle.append(await self._connect(at_first=True))

    def close(self) -> None:
        self._room = asyncio.Semaphore(0)
        for wire in self._all:
            wire.abort()
        self._all.clear()
        self._idle.clear()

    async def wire(self) -> Wire:
        """A wire of its own, for one who listens."""
        return (await self._route.connect())[0]

    # Calling

    async def run(
        self, name: str, request: Request, blobs: Sequence[bytes] = (), *, now: str = "", confirmed_by: int = 0
    ) -> Any:
        """Run a script, again if need be."""
        deadline = time.monotonic() + PATIENCE
        pause, may_be_done = 0.005, False
        while True:
            sent = False
            try:
                async with self._room:
                    wire = self._idle.pop() if self._idle else await self._connect()
                    sent = True
                    try:
                        reply = await self._evaluate(wire, name, request(may_be_done), blobs, now)
                        if confirmed_by:
                            await self._confirm(wire, confirmed_by)
                    except BaseException as error:
                        self._put_back(wire, error)
                        raise
                    self._put_back(wire)
                    return reply
            except (driver.RedisError, OSError, EOFError, EngineUnavailable) as error:
                remedy = remedy_for(error)
                may_be_done = may_be_done or (sent and remedy is Remedy.REPEAT)
                if remedy in (Remedy.MOVE, Remedy.REPEAT):
                    self._forget_idle()
                if remedy is Remedy.MOVE or isinstance(error, TimeoutError):
                    self._distrusted()  # a connection that was cut is noticed by whoever listens; silence is not
                is_first = may_be_done and pause == 0.005  # a wire that was cut while idle: no need to wait
                if (remedy is Remedy.TELL and sent) or time.monotonic() > deadline:
                    is_unknown = may_be_done and not (remedy is Remedy.TELL and sent)
                    raise self._told(error, is_unknown=is_unknown) from error
                if not is_first:
                    await asyncio.sleep(pause * random.uniform(0.5, 1.5))
                pause = min(pause * 2, 1.0)

    def _told(self, error: BaseException, *, is_unknown: bool) -> BaseException:
        if is_unknown:
            return OutcomeUnknown(
                f"{self._location.shown} was lost before it answered: it may have done what was asked, or not; asking"
                f" again is safe ({error})"
            )
        return told(error, self._location.shown)

    async def _evaluate(self, wire: Wire, name: str, request: bytes, blobs: Sequence[bytes], now: str) -> Any:
        assert self.server is not None  # noqa: S101 - a wire was made
        flags = self.server.knows_flags
        wanted = script(name, flags=flags)
        when_full = b"free first" if name in WHEN_FULL and not flags else b""
        arguments = (b"2", self._root, self._spare, now.encode(), when_full, request, *blobs)
        async with asyncio.timeout(READING):
            try:
                return await wire.command(b"EVALSHA", wanted.digest, *arguments)
            except driver.NoScriptError:
                await _load(wire, wanted)
                return await wire.command(b"EVALSHA", wanted.digest, *arguments)

    async def _confirm(self, wire: Wire, replicas: int) -> None:
        """Wait until so many replicas have what this wire has written."""
        async with asyncio.timeout(READING):
            confirmed: int = await wire.command(b"WAIT", b"%d" % replicas, b"%d" % CONFIRMING)
        if confirmed < replicas:
            raise OutcomeUnknown(
                f"{self._location.shown}: done, but confirmed by {confirmed} of {replicas} replicas within"
                f" {CONFIRMING / 1000:.0f} s; asking again is safe"
            )

    async def command(self, *words: str | bytes) -> Any:
        """A plain command, not repeated."""
        async with self._room:
            wire = self._idle.pop() if self._idle else await self._connect()
            try:
                async with asyncio.timeout(READING):
                    reply = await wire.command(*(_bytes(word) for word in words))
            except BaseException as error:
                self._put_back(wire, error)
                raise
            self._put_back(wire)
            return reply

    # Connections

    async def _connect(self, *, at_first: bool = False) -> Wire:
        making = opened(self._route, self._location.shown) if at_first else self._route.connect()
        wire, server = await making
        if self.server is not None and self.server.run_id != server.run_id:
            self.changed_at = time.monotonic()
        self.server = server
        self._all.add(wire)
        return wire

    def _put_back(self, wire: Wire, error: BaseException | None = None) -> None:
        """After an error a connection is of use only if the server has answered with it."""
        is_sound = error is None or isinstance(error, driver.ResponseError | OutcomeUnknown)
        if is_sound and self._keeps:
            self._idle.append(wire)
        else:
            self._all.discard(wire)
            wire.abort()

    def _forget_idle(self) -> None:
        """Something is wrong with the server, or with the way there: trust none of the wires to it."""
        for wire in self._idle:
            self._all.discard(wire)
            wire.abort()
        self._idle.clear()


async def _load(wire: Wire, wanted: Script) -> None:
    await wire.command(b"SCRIPT", b"LOAD", wanted.source)


def _bytes(word: str | bytes) -> bytes:
    return word.encode() if isinstance(word, str) else word
