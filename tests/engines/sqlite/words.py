"""The words these tests are written in: looking inside a store, altering it by hand, and other processes."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

from dovetail.clock import Clock
from dovetail.engines.sqlite import SqliteEngine
from dovetail.engines.sqlite.doorbell import bells_of
from dovetail.engines.sqlite.store import Store


class Opened(Protocol):
    """Opens one more engine, closed when the test is over."""

    def __call__(
        self, at: Path | str = ..., *, docket: str = ..., durability: str = ..., clock: Clock = ..., lane: str = ...
    ) -> Awaitable[SqliteEngine]: ...


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


def store_of(engine: SqliteEngine) -> Store:
    store = engine._store
    assert store is not None
    return store


def writer_of(engine: SqliteEngine) -> sqlite3.Connection:
    return store_of(engine)._writer


def reader_of(engine: SqliteEngine) -> sqlite3.Connection:
    reader = store_of(engine)._reader
    assert reader is not None
    return reader


def setting(db: sqlite3.Connection, name: str) -> Any:
    (value,) = db.execute(f"PRAGMA {name}").fetchone()
    return value


def by_hand(path: Path) -> closing[sqlite3.Connection]:
    """A connection as anybody may open one, not one of the engine's."""
    return closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False))


@contextmanager
def write_lock(path: Path) -> Iterator[sqlite3.Connection]:
    """Meanwhile nobody else can write."""
    with by_hand(path) as db:
        db.execute("BEGIN IMMEDIATE")
        yield db
        if db.in_transaction:
            db.execute("ROLLBACK")


def assert_sound(path: Path) -> None:
    with by_hand(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def log_size(path: Path) -> int:
    """Bytes of the write-ahead log."""
    log = Path(f"{path}-wal")
    return log.stat().st_size if log.exists() else 0


def rung(path: Path) -> list[str]:
    """The names of the sockets that listen for this file's events."""
    folder = bells_of(path)
    return sorted(os.listdir(folder)) if folder.exists() else []


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


# Rows in bulk

FILL = """
INSERT INTO dovetail_run (
    docket, id, key, task, queue, priority, state, due, created, attempt, crash_limit,
    keep_completed, keep_failed, keep_cancelled, payload, parked_on, limits, waits_for, worker, lease, finished, expires
)
WITH RECURSIVE counted (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < :rows)
SELECT
    :docket, printf('%s-%08d', :state, n), CASE WHEN n % 2 THEN printf('key-%s-%08d', :state, n) END, 'task',
    printf('queue-%d', n % 3), 0, :state, :due, :due, 1, 3, 1000000, 1000000, 1000000, x'', :parked_on, :limits,
    :waits_for, :worker, :lease, :expires, :expires
FROM counted
"""


def fill(db: sqlite3.Connection, rows: int, state: str, due: int, docket: int = 1, **columns: Any) -> None:
    """Add runs in one stroke, as if they had been scheduled."""
    given = dict.fromkeys(("parked_on", "limits", "worker", "lease", "expires")) | {"waits_for": 0} | columns
    db.execute(FILL, {"rows": rows, "docket": docket, "state": state, "due": due, **given})


# Other processes

_BARE = """
import os, sqlite3, sys, time

def say(*words):
    print(*words, flush=True)
"""
_IMPORTS = """
import asyncio
from datetime import timedelta
from dovetail.clock import SystemClock
from dovetail.engines.sqlite import SqliteEngine, doorbell, store
from dovetail.model import *

def engine_at(url):
    return SqliteEngine(url, "tests", clock=SystemClock(), durability="process")

# A few words of the conformance suite's vocabulary, which would bring pytest along.
def a_run(key, **fields):
    return NewRun(new_id(), key, "task", **fields)

def keys(items):
    return [item.key for item in items]

async def place(engine, *runs):
    return await engine.schedule(runs)

async def all_runs(engine):
    return (await engine.find(RunQuery(limit=1_000_000))).items

async def complete_one_by_one(engine, want):
    order = []
    while claims := (await engine.claim("worker", want, lease=timedelta(minutes=1))).claims:
        order += keys(claims)
        await engine.finish([Settle(claim, State.COMPLETED) for claim in claims])
    return order
"""


class Program:
    """Another process. It says things line by line."""

    def __init__(self, text: str, *arguments: object, bare: bool = False) -> None:
        """With `bare` it knows nothing of Dovetail, and starts the faster for it."""
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", _BARE + text, *map(str, arguments)]
            if bare
            else [sys.executable, "-c", _BARE + _IMPORTS + text, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._in.close()
        self._out.close()
        self._process.wait()

    def line(self) -> str:
        """What it says next."""
        return self._out.readline().strip()

    def go_on(self) -> None:
        """Let a program that waits for a line go on."""
        self._in.write("\n")
        self._in.flush()

    def rest(self) -> list[str]:
        """What it says until it ends, which must be well."""
        said = self._out.read()
        assert self._process.wait() == 0
        return said.splitlines()


def outcome(text: str, *arguments: object, bare: bool = False) -> list[str]:
    """Run a program to its end; what it said."""
    with Program(text, *arguments, bare=bare) as program:
        return program.rest()
