"""The transaction in which a task writes: it is committed with the verdict."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import psycopg

from dovetail.engines.postgres.failing import Denied
from dovetail.engines.postgres.pool import Pool
from dovetail.engines.postgres.wire import Wire
from dovetail.errors import DovetailError, UsageError
from dovetail.model import Finished, Verdict

SIZE = 1000
"""A task that writes has a connection to itself for as long as it runs: the worker's concurrency is the bound."""

Say = Callable[[Wire, Sequence[Verdict]], Awaitable[list[Finished]]]


class TaskConnection(psycopg.AsyncConnection[Any]):
    """A connection whose transaction ends with the task. Blocks of `connection.transaction()` are savepoints in it."""

    async def commit(self) -> None:
        raise UsageError("this transaction is committed when the task has completed; return from the task instead")

    async def rollback(self) -> None:
        raise UsageError("this transaction is rolled back when the task fails; raise an exception instead")


class TaskTransaction:
    """One task's transaction."""

    def __init__(self, pool: Pool, wire: Wire, say: Say) -> None:
        self._pool = pool
        self._wire = wire
        self._say = say
        self._is_over = False

    @classmethod
    async def begin(cls, pool: Pool, say: Say) -> TaskTransaction:
        wire = await pool.take()
        try:
            await wire.script("BEGIN")
        except BaseException:
            await wire.close()
            await pool.give_back(wire)
            raise
        return cls(pool, wire, say)

    @property
    def connection(self) -> Any:
        return self._wire.connection

    async def finish(self, verdict: Verdict) -> Finished:
        try:
            (answer,) = await self._say(self._wire, [verdict])
            if answer is Finished.FENCED:
                await self.abandon()
            else:
                await self._wire.script("COMMIT")
                await self._end()
        except Denied as error:
            await self.abandon()
            raise UsageError(f"the transaction of the task cannot be finished by its user: {error}") from error
        except BaseException:
            await self.abandon()
            raise
        return answer

    async def abandon(self) -> None:
        if self._is_over:
            return
        try:
            if self._wire.is_open:
                await self._wire.script("ROLLBACK")
        except DovetailError:
            await self._wire.close()
        await self._end()

    async def _end(self) -> None:
        """No other task gets this connection: settings, temporary tables, locks, adapters, whatever the task has left
        on either side of it, go with it."""
        self._is_over = True
        await self._wire.close()
        await self._pool.give_back(self._wire)
