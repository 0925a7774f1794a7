"""One connection, used for one command at a time, and closed without a farewell."""

from __future__ import annotations

from typing import Any, cast

import hiredis
from redis.asyncio.connection import AbstractConnection

_packed = cast("Any", hiredis).pack_command  # its own type is wrong


class Wire:
    """A connection of the driver's, without the driver's own repeats and time limits: those are ours to keep."""

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection

    async def command(self, *words: bytes) -> Any:
        await self.send(*words)
        return await self.read()

    async def send(self, *words: bytes) -> None:
        await self._connection.send_packed_command(_packed(words), check_health=False)

    async def read(self) -> Any:
        connection: Any = self._connection
        return await connection.read_response(disable_decoding=True)

    def abort(self) -> None:
        """Close at once: the other end may never answer a farewell."""
        connection: Any = self._connection
        writer, connection._writer, connection._reader = connection._writer, None, None
        if writer is not None:
            writer.transport.abort()
