"""The limit: the least that can be called a queue on Redis.

A stream, read in batches; what was run is acknowledged in the same pipelined call that reads the next batch. Nothing
happens per message but json, an asyncio task and a no-op: no leases, retries, results, keys or states.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from typing import Any, Self

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from bench.system import Note

STREAM, GROUP, READER = "minimal", "workers", "worker"
BLOCK = 1000  # milliseconds; a stream wakes its reader by itself

Message = tuple[bytes, dict[bytes, bytes]]


class MinimalRedis:
    """XADD, XREADGROUP, XACK."""

    pace = 40_000

    def __init__(self, url: str) -> None:
        self._url = url

    async def __aenter__(self) -> Self:
        self._redis = Redis.from_url(self._url)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._redis.aclose()

    async def enqueue(self, number: int) -> None:
        async with self._redis.pipeline(transaction=False) as pipe:
            pipe.xadd(STREAM, {"payload": json.dumps([number])})
            await pipe.execute()

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        async with self._redis.pipeline(transaction=False) as pipe:
            for number in numbers:
                pipe.xadd(STREAM, {"payload": json.dumps([number])})
            await pipe.execute()

    async def fill(self, numbers: Sequence[int]) -> None:
        await self.enqueue_many(numbers)

    def work(self, concurrency: int, note: Note) -> None:
        asyncio.run(_work(self._url, concurrency, note))


async def _work(url: str, concurrency: int, note: Note) -> None:
    async def run(payload: bytes) -> None:
        note(*json.loads(payload))

    redis = Redis.from_url(url)
    with contextlib.suppress(ResponseError):  # another worker was first
        await redis.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
    batch: list[Message] = []
    while True:
        batch = await _turn_over(redis, batch, concurrency)
        async with asyncio.TaskGroup() as group:
            for _, fields in batch:
                group.create_task(run(fields[b"payload"]))


async def _turn_over(redis: Any, done: list[Message], want: int) -> list[Message]:
    """Acknowledge the last batch and read the next; with nothing to acknowledge, wait for something to come."""
    if not done:
        found = await redis.xreadgroup(GROUP, READER, {STREAM: ">"}, count=want, block=BLOCK)
    else:
        ids = [identity for identity, _ in done]
        async with redis.pipeline(transaction=False) as pipe:
            pipe.xack(STREAM, GROUP, *ids)
            pipe.xdel(STREAM, *ids)
            pipe.xreadgroup(GROUP, READER, {STREAM: ">"}, count=want)
            _, _, found = await pipe.execute()
    return found[0][1] if found else []
