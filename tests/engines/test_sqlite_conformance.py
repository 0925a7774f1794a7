"""SQLite keeps the contract, in a file and in memory."""

from pathlib import Path

import pytest

from dovetail.clock import VirtualClock
from dovetail.engines.sqlite import SqliteEngine
from dovetail.model import new_id
from dovetail.testing.conformance import Conformance, Connect


class TestSqliteFile(Conformance):
    @pytest.fixture
    def connect(self, tmp_path: Path, clock: VirtualClock) -> Connect:
        url = f"sqlite:///{tmp_path / 'store.db'}"
        return lambda: SqliteEngine(url, "conformance", clock=clock, durability="process")


class TestSqliteMemory(Conformance):
    @pytest.fixture
    def connect(self, clock: VirtualClock) -> Connect:
        url = f"memory://{new_id()}"
        return lambda: SqliteEngine(url, "conformance", clock=clock, durability="process")
