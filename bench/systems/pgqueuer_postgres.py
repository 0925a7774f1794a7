"""pgqueuer on asyncpg, with batches as large as the concurrency, which is the fastest that it has."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Self

import asyncpg
from pgqueuer import PgQueuer, Queries

from bench.system import Note


class PgQueuerPostgres:
    """Its tables are installed as it does by default: durable."""

    pace = 9_000

    def __init__(self, url: str) -> None:
        self._url = url

    async def __aenter__(self) -> Self:
        self._connection = await asyncpg.connect(self._url)
        self._queries = await _queries(self._connection)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connection.close()

    async def enqueue(self, number: int) -> None:
        await self._queries.enqueue("noop", b"%d" % number)

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        count = len(numbers)
        await self._queries.enqueue(["noop"] * count, [b"%d" % number for number in numbers], [0] * count)

    async def fill(self, numbers: Sequence[int]) -> None:
        await self.enqueue_many(numbers)

    def work(self, concurrency: int, note: Note) -> None:
        asyncio.run(self._work(concurrency, note))

    async def _work(self, concurrency: int, note: Note) -> None:
        connection = await asyncpg.connect(self._url)
        await _queries(connection)
        queuer = PgQueuer.from_asyncpg_connection(connection)

        @queuer.entrypoint("noop")
        async def noop(job: Any) -> None:
            note(int(job.payload))

        await queuer.run(batch_size=concurrency, max_concurrent_tasks=2 * concurrency)


async def _queries(connection: Any) -> Queries:
    """With its tables, made by whoever comes first."""
    queries = Queries.from_asyncpg_connection(connection)
    await connection.execute("SELECT pg_advisory_lock(1)")
    if not await queries.schema_is_installed():
        await queries.install()
    await connection.execute("SELECT pg_advisory_unlock(1)")
    return queries
