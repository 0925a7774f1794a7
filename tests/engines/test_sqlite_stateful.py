"""SQLite against the model, in a file and in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from dovetail.clock import VirtualClock
from dovetail.engines.sqlite import SqliteEngine
from dovetail.model import new_id
from dovetail.testing.conformance.machine import machine


def in_memory(clock: VirtualClock) -> SqliteEngine:
    return SqliteEngine(f"memory://{new_id()}", "conformance", clock=clock, durability="process")


@asynccontextmanager
async def in_a_file(clock: VirtualClock) -> AsyncIterator[SqliteEngine]:
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'store.db'}"
        async with SqliteEngine(url, "conformance", clock=clock, durability="process") as engine:
            yield engine


TestSqliteMemory = machine(in_memory).TestCase
TestSqliteFile = machine(in_a_file).TestCase
