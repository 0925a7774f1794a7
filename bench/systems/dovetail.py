"""Dovetail at its defaults, which are durable. The URL says on which engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Self

from bench.system import Note
from dovetail import Docket, Worker
from dovetail.clock import SYSTEM_CLOCK
from dovetail.engine.registry import engine_for
from dovetail.model import Claim, NewRun, Settle, State, new_id

NAME = "bench"
LEASE = timedelta(minutes=10)  # by hand, nobody renews it


class Dovetail:
    """What a user writes: a docket to add to, a worker to run."""

    pace = 10_000

    def __init__(self, url: str) -> None:
        self._url = url
        self._noop = _task(_ignore)

    async def __aenter__(self) -> Self:
        self._docket = Docket(name=NAME, url=self._url)
        await self._docket.__aenter__()
        self._docket.register(self._noop)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._docket.__aexit__(None, None, None)

    async def enqueue(self, number: int) -> None:
        await self._docket.add(self._noop)(number)

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        call = self._docket.call(self._noop)
        await self._docket.add_many([call(number) for number in numbers])

    async def fill(self, numbers: Sequence[int]) -> None:
        await self.enqueue_many(numbers)

    def work(self, concurrency: int, note: Note) -> None:
        asyncio.run(self._work(concurrency, note))

    async def _work(self, concurrency: int, note: Note) -> None:
        async with Docket(name=NAME, url=self._url) as docket:
            docket.register(_task(note))
            async with Worker(docket, concurrency=concurrency) as worker:
                await worker.run_forever()

    def backlog(self) -> DovetailBacklog:
        return DovetailBacklog(self._url)


class DovetailBacklog:
    """The engine alone: no docket, no worker, no codec."""

    def __init__(self, url: str) -> None:
        self._engine = engine_for(url, NAME, clock=SYSTEM_CLOCK, durability="durable")

    async def __aenter__(self) -> Self:
        await self._engine.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._engine.__aexit__(None, None, None)

    async def add(self, count: int, delay: timedelta) -> None:
        ids = [new_id() for _ in range(count)]
        await self._engine.schedule([NewRun(id=id, key=id, task="noop", payload=b"[0]", due=delay) for id in ids])

    async def claim(self, want: int) -> Sequence[Claim]:
        claimed = await self._engine.claim("bench", want, lease=LEASE)
        return claimed.claims

    async def finish(self, claims: Sequence[Claim]) -> None:
        await self._engine.finish([Settle(claim=claim, state=State.COMPLETED) for claim in claims])


def _task(note: Note) -> Callable[[int], Awaitable[None]]:
    async def noop(number: int) -> None:
        note(number)

    return noop


def _ignore(_: int) -> None:
    """The producer's side of the task: it is never run there."""
