"""The limit: the least that can be called a durable queue on PostgreSQL.

Nothing happens per message but json, an asyncio task and a no-op. A message that was claimed by a worker that
died is lost: there are no leases, retries, results, keys or states, so no real system reaches these figures.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Self

import asyncpg

from bench.system import Note

SCHEMA = """
CREATE TABLE IF NOT EXISTS message (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    due timestamptz NOT NULL DEFAULT now(),
    claimed boolean NOT NULL DEFAULT false,
    payload text NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX IF NOT EXISTS ready ON message (due, id) WHERE NOT claimed;
"""

INSERT = "INSERT INTO message (due, payload) SELECT now() + $2::interval, payload FROM unnest($1::text[]) AS payload"
INSERT_ONE = "WITH told AS (SELECT pg_notify('message', '')) INSERT INTO message (payload) SELECT $1 FROM told"

# One statement finishes the last batch and claims the next.
TURN_OVER = """
WITH done AS (
    DELETE FROM message WHERE id = ANY ($1::bigint[])
)
UPDATE message SET claimed = true
WHERE id IN (
    SELECT id FROM message WHERE NOT claimed AND due <= now() ORDER BY due, id LIMIT $2 FOR UPDATE SKIP LOCKED
)
RETURNING id, payload
"""
FINISH = "DELETE FROM message WHERE id = ANY ($1::bigint[])"

Message = tuple[int, str]


class MinimalPostgres:
    """A table, a batch claim, a batch delete, and a notification for one who waits."""

    pace = 20_000

    def __init__(self, url: str) -> None:
        self._url = url

    async def __aenter__(self) -> Self:
        self._connection = await _connect(self._url)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connection.close()

    async def enqueue(self, number: int) -> None:
        await self._connection.execute(INSERT_ONE, json.dumps([number]))

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        await self._connection.execute(INSERT, [json.dumps([number]) for number in numbers], timedelta())

    async def fill(self, numbers: Sequence[int]) -> None:
        await self.enqueue_many(numbers)

    def work(self, concurrency: int, note: Note) -> None:
        asyncio.run(_work(self._url, concurrency, note))

    def backlog(self) -> MinimalBacklog:
        return MinimalBacklog(self._url)


class MinimalBacklog:
    """The same table, by hand."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def __aenter__(self) -> Self:
        self._connection = await _connect(self._url)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connection.close()

    async def add(self, count: int, delay: timedelta) -> None:
        await self._connection.execute(INSERT, [json.dumps([number]) for number in range(count)], delay)

    async def claim(self, want: int) -> Sequence[Message]:
        return [tuple(row) for row in await self._connection.fetch(TURN_OVER, [], want)]

    async def finish(self, claims: Sequence[Message]) -> None:
        await self._connection.execute(FINISH, [identity for identity, _ in claims])


async def _work(url: str, concurrency: int, note: Note) -> None:
    """Finish the last batch and claim the next in one statement, then run it, a task per message."""
    connection = await _connect(url)
    rang = asyncio.Event()
    await connection.add_listener("message", lambda *_: rang.set())

    async def run(payload: str) -> None:
        note(*json.loads(payload))

    batch: list[Any] = []
    while True:
        rang.clear()
        batch = await connection.fetch(TURN_OVER, [identity for identity, _ in batch], concurrency)
        async with asyncio.TaskGroup() as group:
            for _, payload in batch:
                group.create_task(run(payload))
        if not batch:
            try:
                async with asyncio.timeout(1):
                    await rang.wait()
            except TimeoutError:
                continue


async def _connect(url: str) -> Any:
    connection = await asyncpg.connect(url)
    await connection.execute(f"SELECT pg_advisory_lock(1); {SCHEMA} SELECT pg_advisory_unlock(1);")
    return connection
