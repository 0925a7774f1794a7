"""A small TCP proxy that can cut, delay, swallow and lose what passes: a bad network, to order.

It knows no protocol. Bytes towards the server are *requests*, bytes back are *replies*.

    async with proxy("127.0.0.1", port) as way:
        connect(way.port)
        way.lose_replies()      # the server does what it is asked, and nobody hears of it
        way.restore()
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator

CHUNK = 65536


class Proxy:
    """Passes bytes on between whoever connects and one server, as well as it is allowed to."""

    def __init__(self, host: str, target: int) -> None:
        self.host = host
        self.target = target
        self.port = 0
        self.accepted = 0  # connections, ever
        self.swallowed = asyncio.Event()  # something was lost since the last `restore`
        self._open = asyncio.Event()
        self._open.set()
        self._delay = 0.0
        self._loses_replies = False
        self._refuses = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    # What can go wrong

    def connections(self) -> int:
        return len(self._tasks)

    def cut(self) -> None:
        """Reset every connection. New ones are welcome."""
        for writer in self._writers:
            writer.transport.abort()

    def refuse(self) -> None:
        """Reset every connection, and each new one as it comes."""
        self._refuses = True
        self.cut()

    def black_hole(self) -> None:
        """Connections stay, and nothing passes in either direction. No one is told."""
        self._open.clear()

    def lose_replies(self) -> None:
        """Requests arrive; the replies to them do not."""
        self._loses_replies = True

    def delay(self, seconds: float) -> None:
        """Every piece in either direction takes so much longer."""
        self._delay = seconds

    def restore(self) -> None:
        """All is well again. What was lost stays lost, and what was held back in a black hole is gone."""
        self._loses_replies, self._refuses, self._delay = False, False, 0.0
        if not self._open.is_set():
            self.cut()  # as when a path returns and both ends have given up
        self._open.set()
        self.swallowed.clear()

    # The work

    async def start(self, tls: ssl.SSLContext | None = None) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self._open.set()
        while self._tasks:
            self.cut()  # again: one may have been about to connect
            await asyncio.wait(self._tasks, timeout=0.1)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if self._refuses:
                writer.transport.abort()
                return
            await self._carry(reader, writer)
        finally:
            self._tasks.discard(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            await self._open.wait()
            server_reader, server_writer = await asyncio.open_connection(self.host, self.target)
        except OSError:
            writer.transport.abort()
            self._writers.discard(writer)
            return
        self._writers.add(server_writer)
        ways = [self._pass_on(reader, server_writer, False), self._pass_on(server_reader, writer, True)]
        halves = [asyncio.ensure_future(way) for way in ways]
        try:
            await asyncio.wait(halves, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for half in halves:
                half.cancel()
            await asyncio.gather(*halves, return_exceptions=True)
            for each in (writer, server_writer):
                each.transport.abort()
                self._writers.discard(each)

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, is_reply: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(CHUNK):
                if self._delay:
                    await asyncio.sleep(self._delay)
                if not self._open.is_set():
                    self.swallowed.set()
                    await self._open.wait()
                    return
                if is_reply and self._loses_replies:
                    self.swallowed.set()
                    continue
                target.write(data)
                await target.drain()


@contextlib.asynccontextmanager
async def proxy(host: str, port: int, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Proxy]:
    """A proxy to one server, on a port of its own; with a context, it speaks TLS to whoever connects."""
    running = Proxy(host, port)
    await running.start(tls)
    try:
        yield running
    finally:
        await running.stop()
