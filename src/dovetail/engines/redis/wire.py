"""One connection: the driver opens it, with its greetings, passwords and certificates; from then on it is ours.

What is ours is short: bytes go out, replies come in, in that order. The driver's own way takes much longer, and
repeats what must not be repeated.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, cast

import hiredis
from redis import exceptions as driver
from redis.asyncio.connection import AbstractConnection

_packed = cast("Any", hiredis).pack_command  # its own type is wrong


class Wire(asyncio.Protocol):
    """A connection that is ready for use."""

    def __init__(self, connection: AbstractConnection) -> None:
        opened: Any = connection
        # Kept: a writer that nobody holds closes its transport.
        self._writer, opened._writer, opened._reader = opened._writer, None, None
        self._transport: asyncio.Transport = self._writer.transport
        self._replies = hiredis.Reader(replyError=driver.ResponseError)
        self._arrived: deque[Any] = deque()
        self._awaited: deque[asyncio.Future[Any]] = deque()
        self._lost: Exception | None = None
        self._moved_at = 0.0  # when something last went either way
        self._unsent = 0
        self._loop = asyncio.get_running_loop()
        self._watch: asyncio.TimerHandle
        self._transport.set_protocol(self)

    @property
    def is_lost(self) -> bool:
        return self._lost is not None

    async def command(self, *words: bytes, within: float) -> Any:
        """Ask, and wait for the answer, but not for ever: a server that is silent for so long is given up. As long as
        bytes go or come it is not: much may have to pass a narrow way."""
        self.send(*words)
        self._moved_at, self._unsent = self._loop.time(), self._transport.get_write_buffer_size()
        self._watch = self._loop.call_later(within, self._look, within)
        try:
            return await self.read()
        finally:
            self._watch.cancel()

    def _look(self, within: float) -> None:
        unsent = self._transport.get_write_buffer_size()
        if unsent != self._unsent:
            self._moved_at, self._unsent = self._loop.time(), unsent
        rest = self._moved_at + within - self._loop.time()
        if rest > 0:
            self._watch = self._loop.call_later(rest, self._look, within)
        else:
            self._give_up(within)

    def send(self, *words: bytes) -> None:
        if self._lost is not None:
            raise self._lost
        self._transport.write(_packed(words))

    async def read(self) -> Any:
        """The next reply, or, for one who listens, the next message."""
        if not self._arrived:
            if self._lost is not None:
                raise self._lost
            awaited: asyncio.Future[None] = self._loop.create_future()
            self._awaited.append(awaited)
            try:
                await awaited
            except asyncio.CancelledError:
                self.abort()  # whoever reads next would be given the answer to another's question
                raise
        reply = self._arrived.popleft()
        if isinstance(reply, Exception):
            raise reply
        return reply

    def abort(self) -> None:
        """Close at once: the other end may never answer a farewell."""
        self._transport.abort()
        self._end(driver.ConnectionError("the connection was closed"))

    def _give_up(self, after: float) -> None:
        self._transport.abort()
        self._end(driver.TimeoutError(f"no answer within {after:g} s"))

    def _end(self, error: Exception) -> None:
        if self._lost is None:
            self._lost = error
        for awaited in self._awaited:
            if not awaited.done():
                awaited.set_exception(self._lost)
        self._awaited.clear()

    # What the event loop calls

    def data_received(self, data: bytes) -> None:
        self._moved_at = self._loop.time()
        self._replies.feed(data)
        try:
            while (reply := self._replies.gets()) is not False:
                self._arrived.append(reply)
                if self._awaited:
                    awaited = self._awaited.popleft()
                    if not awaited.done():
                        awaited.set_result(None)
        except hiredis.ProtocolError as error:
            self._transport.abort()
            self._end(driver.InvalidResponse(str(error)))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(driver.ConnectionError(f"the connection was lost ({exc or 'closed by the server'})"))
