"""The connections of one engine: few, kept open, and each given up at the first sign of trouble."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from dovetail.engines.postgres.failing import nothing_done
from dovetail.engines.postgres.location import Location
from dovetail.engines.postgres.wire import Connection, Wire
from dovetail.errors import DovetailError, EngineUnavailable

SIZE = 12
"""How many statements of one engine may be under way at a time."""
OLDEST = 130000


class Pool:
    """Lends connections. It belongs to the event loop in which it was opened."""

    def __init__(
        self, location: Location, durability: str = "durable", size: int = SIZE, kind: type[Connection] | None = None
    ) -> None:
        self.location = location
        self._kind = kind
        self.durability = durability
        self._room = asyncio.Semaphore(size)
        self._idle: list[Wire] = []
        self._closed = False
        self._pid = os.getpid()

    @asynccontextmanager
    async def lend(self) -> AsyncGenerator[Wire]:
        wire = await self.take()
        try:
            yield wire
        finally:
            await self.give_back(wire)

    async def take(self) -> Wire:
        await self._room.acquire()
        try:
            return await self._take()
        except BaseException:
            self._room.release()
            raise

    async def give_back(self, wire: Wire) -> None:
        self._room.release()
        if self._closed or not wire.is_open:
            await wire.close()
        else:
            self._idle.append(wire)

    async def _take(self) -> Wire:
        if self._pid != os.getpid():
            # This is a child made by fork: what it inherited is the parent's.
            self._pid, self._idle = os.getpid(), []
        # The one used last is the likeliest to be alive, and its caches are warm.
        while self._idle:
            wire = self._idle.pop()
            if wire.is_open:
                return wire
        wire = await (Wire.connect(self.location, self._kind) if self._kind else Wire.connect(self.location))
        try:
            await check_server(wire, self.location, self.durability)
        except DovetailError as error:
            await wire.close()
            raise nothing_done(error) from error
        return wire

    async def close(self) -> None:
        self._closed = True
        for wire in self._idle:
            await wire.close()
        self._idle.clear()


async def check_server(wire: Wire, location: Location, durability: str) -> None:
    """Refuse a standby: what is claimed there could be claimed elsewhere too. See to the durability asked for."""
    ((standby, read_only, version, standbys, encoding),) = await wire.ask(
        "SELECT pg_is_in_recovery(), current_setting('transaction_read_only')::boolean,"
        " current_setting('server_version_num')::integer, current_setting('synchronous_standby_names'),"
        " current_setting('server_encoding')"
    )
    if standby or read_only:
        what = "a standby" if standby else "set to read-only transactions"
        raise EngineUnavailable(f"{location.shown} is {what}; Dovetail writes, so name the primary server")
    if version < OLDEST:
        raise EngineUnavailable(
            f"{location.shown}: PostgreSQL {version // 10000} is too old; Dovetail needs 13 or later"
        )
    if encoding != "UTF8":
        raise EngineUnavailable(f"{location.shown}: the database keeps text as {encoding}; Dovetail needs UTF8")
    if durability == "replicated" and not standbys:
        raise EngineUnavailable(
            f"{location.shown}: durability 'replicated' needs synchronous_standby_names to be set on the server"
        )
    if not location.pooled:
        # A role may have timeouts that are meant for people. Ours are the driver's, and every step is bounded.
        await wire.ask(
            "SELECT set_config('statement_timeout', '0', false), set_config('lock_timeout', '0', false),"
            " set_config('synchronous_commit', COALESCE($1, current_setting('synchronous_commit')), false)",
            ("off" if durability == "process" else None,),
        )
