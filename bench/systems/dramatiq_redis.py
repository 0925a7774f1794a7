"""dramatiq on Redis, with threads, at its defaults."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Self

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.system import Note


class DramatiqRedis:
    """A broker, an actor, a worker."""

    pace = 1_500

    def __init__(self, url: str) -> None:
        self._url = url

    async def __aenter__(self) -> Self:
        self._broker = RedisBroker(url=self._url)
        self._noop = _register(self._broker, _ignore)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._broker.close()

    async def enqueue(self, number: int) -> None:
        self._noop.send(number)

    async def fill(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._noop.send(number)

    def work(self, concurrency: int, note: Note) -> None:
        broker = RedisBroker(url=self._url)
        _register(broker, note)
        dramatiq.Worker(broker, worker_threads=concurrency).start()
        while True:
            time.sleep(60)


def _register(broker: RedisBroker, note: Note) -> Any:
    def noop(number: int) -> None:
        note(number)

    return dramatiq.actor(broker=broker)(noop)


def _ignore(_: int) -> None:
    """The producer's side of the task: it is never run there."""
