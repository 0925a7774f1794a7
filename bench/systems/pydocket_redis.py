"""pydocket with the settings that its documentation and our measurements recommend for speed.

Its worker takes a connection for each task, so the pool is made large enough for all of them; intervals are as short as
they may be, and results are not kept.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Self

import uvloop
from docket import Docket, Worker

from bench.system import Note

NAME = "bench"
BRIEFLY = timedelta(milliseconds=5)


class PydocketRedis:
    """A docket and a worker."""

    pace = 800

    def __init__(self, url: str) -> None:
        self._url = f"{url}?max_connections=1000"
        self._noop = _task(_ignore)

    async def __aenter__(self) -> Self:
        self._docket = _docket(self._url)
        await self._docket.__aenter__()
        self._docket.register(self._noop)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._docket.__aexit__(None, None, None)

    async def enqueue(self, number: int) -> None:
        await self._docket.add(self._noop)(number)

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        # A call has its key from the moment it is asked for, so each task needs one of its own.
        await self._docket.add_many([self._docket.call(self._noop)(number) for number in numbers])

    async def fill(self, numbers: Sequence[int]) -> None:
        await self.enqueue_many(numbers)

    def work(self, concurrency: int, note: Note) -> None:
        uvloop.run(self._work(concurrency, note))

    async def _work(self, concurrency: int, note: Note) -> None:
        async with _docket(self._url) as docket:
            docket.register(_task(note))
            async with Worker(
                docket, concurrency=concurrency, minimum_check_interval=BRIEFLY, scheduling_resolution=BRIEFLY
            ) as worker:
                await worker.run_forever()


def _docket(url: str) -> Docket:
    return Docket(name=NAME, url=url, execution_ttl=timedelta())


def _task(note: Note) -> Callable[[int], Awaitable[None]]:
    async def noop(number: int) -> None:
        note(number)

    return noop


def _ignore(_: int) -> None:
    """The producer's side of the task: it is never run there."""
