"""huey on its SQLite storage, with threads, at its defaults but for the durability.

huey takes a message off its queue before it runs it: a crash loses it, and finishing costs it no write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from huey import SqliteHuey

from bench.stores import sqlite_path
from bench.system import Note


class HueySqlite:
    """`fsync=True` is `PRAGMA synchronous = FULL`; the journal is WAL by default."""

    pace = 2_000

    def __init__(self, url: str) -> None:
        self._path = sqlite_path(url)

    async def __aenter__(self) -> Self:
        self._huey = SqliteHuey("bench", filename=self._path, fsync=True)
        self._noop = _register(self._huey, _ignore)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._huey.storage.close()

    async def enqueue(self, number: int) -> None:
        self._noop(number)

    async def fill(self, numbers: Sequence[int]) -> None:
        hasty = SqliteHuey("bench", filename=self._path, fsync=False)
        noop = _register(hasty, _ignore)
        for number in numbers:
            noop(number)
        hasty.storage.close()

    def work(self, concurrency: int, note: Note) -> None:
        huey = SqliteHuey("bench", filename=self._path, fsync=True)
        _register(huey, note)
        huey.create_consumer(workers=concurrency, worker_type="thread").run()


def _register(huey: SqliteHuey, note: Note) -> Any:
    def noop(number: int) -> None:
        note(number)

    return huey.task()(noop)


def _ignore(_: int) -> None:
    """The producer's side of the task: it is never run there."""
