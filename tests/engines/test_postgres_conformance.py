"""PostgreSQL keeps the contract."""

import pytest

from dovetail.clock import VirtualClock
from dovetail.engines.postgres import PostgresEngine
from dovetail.model import new_id
from dovetail.testing.conformance import Conformance, Connect


class TestPostgres(Conformance):
    @pytest.fixture
    def connect(self, postgres_url: str, clock: VirtualClock) -> Connect:
        docket = new_id()
        return lambda: PostgresEngine(postgres_url, docket, clock=clock)
