"""What the tests of the SQLite engine are handed."""

from __future__ import annotations

import sqlite3
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dovetail.clock import Clock, VirtualClock
from dovetail.engines.sqlite import SqliteEngine, connection
from dovetail.engines.sqlite.location import Location
from tests.engines.sqlite.words import Opened, url_of


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name, since the path of a socket cannot be long."""
    with tempfile.TemporaryDirectory(prefix="dt-") as name:
        yield Path(name)


@pytest.fixture
def path(folder: Path) -> Path:
    return folder / "store.db"


@pytest.fixture
async def opened(path: Path, clock: VirtualClock) -> AsyncIterator[Opened]:
    async with AsyncExitStack() as stack:

        async def open_one(
            at: Path | str = path,
            *,
            docket: str = "tests",
            durability: str = "process",
            clock: Clock = clock,
            lane: str = "main",
        ) -> SqliteEngine:
            url = at if isinstance(at, str) else url_of(at)
            return await stack.enter_async_context(
                SqliteEngine(url, docket, clock=clock, durability=durability, lane=lane)
            )

        yield open_one


@pytest.fixture
async def engine(opened: Opened) -> SqliteEngine:
    return await opened()


@dataclass
class Trace:
    """The connections that the engine opened, and what they executed, with the thread that did."""

    connections: list[sqlite3.Connection] = field(default_factory=list[sqlite3.Connection])
    heard: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def listen_to(self, db: sqlite3.Connection) -> None:
        self.connections.append(db)
        db.set_trace_callback(lambda text: self.heard.append((threading.current_thread().name, text)))

    def forget(self) -> None:
        self.heard.clear()

    def statements(self, beginning: str = "", thread: str = "") -> list[str]:
        return [text for name, text in self.heard if text.startswith(beginning) and name.startswith(thread)]


@pytest.fixture
def trace(monkeypatch: pytest.MonkeyPatch) -> Trace:
    """Listens to every connection that is opened from now on."""
    trace = Trace()
    connect = connection.connect

    def traced(location: Location, durability: str, *, read_only: bool = False) -> sqlite3.Connection:
        db = connect(location, durability, read_only=read_only)
        trace.listen_to(db)
        return db

    monkeypatch.setattr(connection, "connect", traced)
    return trace


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for a busy file for a moment only."""
    monkeypatch.setattr(connection, "PATIENCE", 0.3)
    if connection.patiently.__defaults__:
        monkeypatch.setattr(connection.patiently, "__defaults__", (0.3,))
