"""The transaction in which a task writes: it is committed with the verdict."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any

from dovetail.engines.sqlite import connection
from dovetail.engines.sqlite.location import Location
from dovetail.errors import UsageError
from dovetail.model import Finished, Verdict

Say = Callable[[sqlite3.Connection, Verdict], Finished]


class TaskConnection(sqlite3.Connection):
    """A connection whose transaction ends with the task."""

    def commit(self) -> None:
        raise UsageError("this transaction is committed when the task has completed; return from the task instead")

    def rollback(self) -> None:
        raise UsageError("this transaction is rolled back when the task fails; raise an exception instead")

    def __exit__(self, *_: object) -> Any:
        return False  # `with connection:` ends nothing


class TaskTransaction:
    """One task's transaction. It holds the file's write lock from beginning to end, so those of a process take turns,
    and each should be short: all that the docket writes waits for it too."""

    def __init__(self, location: Location, db: sqlite3.Connection, say: Say, turn: asyncio.Lock) -> None:
        self._location = location
        self._db = db
        self._say = say
        self._turn = turn
        self._is_over = False

    @classmethod
    async def begin(cls, location: Location, durability: str, say: Say, turn: asyncio.Lock) -> TaskTransaction:
        if location.path is None:
            raise UsageError("TaskTransaction() needs a docket in a file; a docket in memory has no data beside it")
        await turn.acquire()
        try:
            # In a thread: whoever has the lock now may need this loop to let go of it.
            db = await asyncio.to_thread(_begun, location, durability)
        except BaseException:
            turn.release()
            raise
        return cls(location, db, say, turn)

    @property
    def connection(self) -> sqlite3.Connection:
        return self._db

    async def finish(self, verdict: Verdict) -> Finished:
        try:
            self._db.row_factory = None
            answer = self._say(self._db, verdict)
            self._db.execute("ROLLBACK" if answer is Finished.FENCED else "COMMIT")
        except sqlite3.Error as error:
            raise connection.translated(error, self._location) from error
        finally:
            await self.abandon()
        return answer

    async def abandon(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._db.close()
            self._turn.release()


def _begun(location: Location, durability: str) -> sqlite3.Connection:
    db = sqlite3.connect(
        str(location.path), timeout=0, isolation_level=None, check_same_thread=False, factory=TaskConnection
    )
    try:
        db.execute(f"PRAGMA synchronous = {'FULL' if durability == 'durable' else 'NORMAL'}")
        db.execute("PRAGMA wal_autocheckpoint = 0")
        connection.patiently(lambda: db.execute("BEGIN IMMEDIATE"))
    except sqlite3.Error as error:
        db.close()
        raise connection.translated(error, location) from error
    return db
