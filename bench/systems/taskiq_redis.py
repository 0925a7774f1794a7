"""taskiq on a Redis list, its fastest broker: a message is taken off before it is run, and a crash loses it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Self

import uvloop
from taskiq.receiver import Receiver
from taskiq_redis import ListQueueBroker

from bench.system import Note


class TaskiqRedis:
    """A broker and a receiver, without results."""

    pace = 3_000

    def __init__(self, url: str) -> None:
        self._url = url

    async def __aenter__(self) -> Self:
        self._broker = _broker(self._url)
        self._noop = _register(self._broker, _ignore)
        await self._broker.startup()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._broker.shutdown()

    async def enqueue(self, number: int) -> None:
        await self._noop.kiq(number)

    async def fill(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            await self._noop.kiq(number)

    def work(self, concurrency: int, note: Note) -> None:
        uvloop.run(self._work(concurrency, note))

    async def _work(self, concurrency: int, note: Note) -> None:
        broker = _broker(self._url)
        broker.is_worker_process = True
        _register(broker, note)
        receiver = Receiver(broker, max_async_tasks=concurrency, max_prefetch=concurrency)
        await receiver.listen(asyncio.Event())


def _broker(url: str) -> ListQueueBroker:
    # A worker that waits for longer than the driver's time limit would end.
    return ListQueueBroker(url, socket_timeout=None)


def _register(broker: ListQueueBroker, note: Note) -> Any:
    async def noop(number: int) -> None:
        note(number)

    return broker.register_task(noop, task_name="noop")


def _ignore(_: int) -> None:
    """The producer's side of the task: it is never run there."""
