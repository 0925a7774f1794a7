"""The limit: the least that can be called a durable queue on SQLite.

Nothing happens per message but json, an asyncio task and a no-op. A message that was claimed by a worker that
died is lost: there are no leases, retries, results, keys or states, so no real system reaches these figures.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Self

from bench.stores import sqlite_path
from bench.system import Note

POLL = 0.002  # seconds; a minimal loop has no doorbell

SCHEMA = """
CREATE TABLE IF NOT EXISTS message (
    id INTEGER PRIMARY KEY,
    due REAL NOT NULL,
    claimed INTEGER NOT NULL DEFAULT 0,
    payload TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS ready ON message (due, id) WHERE claimed = 0;
"""

INSERT = "INSERT INTO message (due, payload) VALUES (?, ?)"

IS_THERE_WORK = """
SELECT 1
FROM message
WHERE claimed = 0 AND due <= ?
LIMIT 1
"""

CLAIM = """
UPDATE message
SET claimed = 1
WHERE id IN (
    SELECT id
    FROM message
    WHERE claimed = 0 AND due <= ?
    ORDER BY due, id
    LIMIT ?
)
RETURNING id, payload
"""

FINISH = "DELETE FROM message WHERE id = ?"

Message = tuple[int, str]


class MinimalSqlite:
    """A table, a batch claim, a batch delete."""

    pace = 40_000

    def __init__(self, url: str) -> None:
        self._path = sqlite_path(url)

    async def __aenter__(self) -> Self:
        self._connection = _connect(self._path)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._connection.close()

    async def enqueue(self, number: int) -> None:
        self._connection.execute(INSERT, (time.time(), json.dumps([number])))

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        _insert(self._connection, numbers, due=time.time())

    async def fill(self, numbers: Sequence[int]) -> None:
        _insert(self._connection, numbers, due=time.time())

    def work(self, concurrency: int, note: Note) -> None:
        asyncio.run(_work(_connect(self._path), concurrency, note))

    def backlog(self) -> MinimalBacklog:
        return MinimalBacklog(self._path)


class MinimalBacklog:
    """The same table, by hand."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def __aenter__(self) -> Self:
        self._connection = _connect(self._path)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._connection.close()

    async def add(self, count: int, delay: timedelta) -> None:
        _insert(self._connection, range(count), due=time.time() + delay.total_seconds())

    async def claim(self, want: int) -> Sequence[Message]:
        return self._connection.execute(CLAIM, (time.time(), want)).fetchall()

    async def finish(self, claims: Sequence[Message]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        _finish(self._connection, claims)
        self._connection.execute("COMMIT")


async def _work(connection: sqlite3.Connection, concurrency: int, note: Note) -> None:
    """Finish the last batch and claim the next in one transaction, then run it, a task per message."""

    async def run(payload: str) -> None:
        note(*json.loads(payload))

    batch: list[Message] = []
    while True:
        if not batch and not _is_there_work(connection):
            await asyncio.sleep(POLL)
            continue
        batch = _turn_over(connection, batch, concurrency)
        async with asyncio.TaskGroup() as group:
            for _, payload in batch:
                group.create_task(run(payload))


def _turn_over(connection: sqlite3.Connection, done: list[Message], want: int) -> list[Message]:
    connection.execute("BEGIN IMMEDIATE")
    _finish(connection, done)
    claimed = connection.execute(CLAIM, (time.time(), want)).fetchall()
    connection.execute("COMMIT")
    return claimed


def _is_there_work(connection: sqlite3.Connection) -> bool:
    """Ask without the write lock, which an idle worker must not keep from those who enqueue."""
    return connection.execute(IS_THERE_WORK, (time.time(),)).fetchone() is not None


def _insert(connection: sqlite3.Connection, numbers: Iterable[int], due: float) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(INSERT, [(due, json.dumps([number])) for number in numbers])
    connection.execute("COMMIT")


def _finish(connection: sqlite3.Connection, messages: Sequence[Message]) -> None:
    connection.executemany(FINISH, [(identity,) for identity, _ in messages])


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=30, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.executescript(SCHEMA)
    return connection
