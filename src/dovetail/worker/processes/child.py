"""A process of a worker's own, as the worker sees it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from dovetail.errors import ProcessDied
from dovetail.worker.logs import logger
from dovetail.worker.processes.letters import (
    HEAD,
    Begun,
    Logged,
    Raised,
    Returned,
    Told,
    Welcome,
    framed,
    opened,
)

PATIENCE = 2.0
"""Seconds that a body has to clean up once it is told to end, before its process is killed."""
INTERRUPT = signal.SIGUSR1
"""Ends the body. Not SIGTERM: that may be sent to every process of a service, and it is the worker that decides."""

Hear = Callable[[Told], Awaitable[None]]


class NeverBegun(Exception):
    """The process was gone before it had taken the order, which is therefore still to be carried out."""


class Child:
    """One process, which carries out one order after the other."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self.exited = asyncio.create_task(process.wait(), name=f"dovetail process {process.pid}")
        self.exited.add_done_callback(lambda _: self.close())
        self.runs = 0

    @classmethod
    async def start(cls) -> Child:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-c", _program(theirs.fileno()), stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,  # Ctrl-C in a terminal goes to all processes of a session
                )  # fmt: skip
            except BaseException:
                ours.close()
                raise
        reader, writer = await asyncio.open_connection(sock=ours)
        writer.write(framed(Welcome(_levels())))
        return cls(process, reader, writer)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return not self.exited.done()

    async def carry_out(self, order: bytes, hear: Hear) -> Returned | Raised:
        """How the order ended. If the process dies over it, ProcessDied."""
        self.runs += 1
        begun = False
        try:
            self._writer.write(order)
            await self._writer.drain()
            while True:
                letter = await self._next()
                if isinstance(letter, Begun):
                    begun = True
                elif isinstance(letter, Returned | Raised):
                    return letter
                elif isinstance(letter, Logged):
                    _log(letter.record)
                else:
                    await hear(letter)
        except (asyncio.IncompleteReadError, ConnectionError):
            code = await self._hung_up()
            if not begun:
                raise NeverBegun(f"process {self.pid} {_said_of(code)}") from None
            raise ProcessDied(f"the process of the run, {self.pid}, {_said_of(code)}") from None

    async def _next(self) -> Any:
        size = int.from_bytes(await self._reader.readexactly(HEAD), "big")
        return opened(await self._reader.readexactly(size))

    async def _hung_up(self) -> int:
        """How the process ended, which it is about to. Should it not be, it is of no use without the line."""
        await asyncio.wait([self.exited], timeout=PATIENCE)
        self.kill()
        return await asyncio.shield(self.exited)

    async def end(self, *, is_urgent: Callable[[], bool]) -> None:
        """Tell the body to end, and kill it if it does not. On return the process is gone, however often the one who
        waits is cancelled: its run must not start elsewhere before."""
        killing = asyncio.get_running_loop().call_later(PATIENCE, self.kill)
        self._signal(signal.SIGKILL if is_urgent() else INTERRUPT)
        while not self.exited.done():
            try:
                await asyncio.shield(self.exited)
            except asyncio.CancelledError:
                if is_urgent():
                    self.kill()
        killing.cancel()

    def close(self) -> None:
        """Hang up: a process that has nothing to do then ends."""
        self._writer.close()

    async def closed(self, within: float) -> None:
        self.close()
        await asyncio.wait([self.exited], timeout=within)
        self.kill()
        await self.exited

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self.is_alive:
            with suppress(ProcessLookupError):
                # Not send_signal(): that looks first whether the process has ended, and then nobody learns how it did.
                os.kill(self.pid, number)


def _program(handle: int) -> str:
    # With the worker's own path, however it came by that.
    return (
        f"import sys; sys.path[:] = {sys.path!r};"
        f" from dovetail.worker.processes.main import main; main({handle}, {os.getpid()})"
    )


def _levels() -> dict[str, int]:
    known: dict[str, Any] = logging.root.manager.loggerDict
    levels = {name: each.level for name, each in known.items() if isinstance(each, logging.Logger) and each.level}
    return {"": logging.root.level, **levels}


def _log(record: logging.LogRecord) -> None:
    try:
        logging.getLogger(record.name).handle(record)
    except Exception:  # a handler that raises costs a line in the log
        logger.exception("a line of another process could not be logged")


def _said_of(code: int) -> str:
    if code >= 0:
        return f"ended by itself with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "a signal"
    return f"was killed by {name} (signal {-code})"
