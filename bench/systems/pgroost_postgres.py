"""pgroost with a short poll: at its default of a second it starts a handful of tasks a second."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Self

from roost import AsyncRoost, HandlerRegistry, JobInsert, Worker

from bench.system import Note


class PgRoostPostgres:
    """Its default durability: one commit per state."""

    pace = 600

    def __init__(self, url: str) -> None:
        self._url = url

    async def __aenter__(self) -> Self:
        self._roost = AsyncRoost(self._url)
        await self._roost.setup_schema()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._roost.close()

    async def enqueue(self, number: int) -> None:
        await self._roost.enqueue("noop", args={"number": number})

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        await self._roost.enqueue_many([JobInsert(task="noop", args={"number": number}) for number in numbers])

    async def fill(self, numbers: Sequence[int]) -> None:
        await self.enqueue_many(numbers)

    def work(self, concurrency: int, note: Note) -> None:
        # It logs every task to standard output, which nobody reads here: a full pipe would stop it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        asyncio.run(self._work(concurrency, note))

    async def _work(self, concurrency: int, note: Note) -> None:
        registry = HandlerRegistry()

        async def noop(number: int) -> None:
            note(number)

        registry.register("noop", noop)
        await Worker(self._url, concurrency=concurrency, poll_interval=0.01, registry=registry).run()
