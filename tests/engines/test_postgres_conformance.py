"""PostgreSQL keeps the contract: the newest, and whichever older one this machine has."""

from collections.abc import Iterator

import pytest

from dovetail.clock import VirtualClock
from dovetail.engines.postgres import PostgresEngine
from dovetail.model import new_id
from dovetail.testing.conformance import (
    Claiming,
    Conformance,
    Connect,
    Finishing,
    Limits,
    Racing,
    Repeating,
)
from tests.servers.postgres import PostgresServer, installed


class TestPostgres(Conformance):
    """As a user who is a worker and nothing more."""

    @pytest.fixture
    def connect(self, as_worker: str, clock: VirtualClock) -> Connect:
        docket = new_id()
        return lambda: PostgresEngine(as_worker, docket, clock=clock)


class TestPooledPostgres(Claiming, Limits, Finishing, Repeating, Racing):
    """With nothing that a session keeps. Hints of states are not to be had there, so these areas stand for all."""

    @pytest.fixture
    def connect(self, as_worker: str, clock: VirtualClock) -> Connect:
        docket = new_id()
        return lambda: PostgresEngine(f"{as_worker}?pooled=true", docket, clock=clock)


@pytest.fixture(scope="session")
def older() -> Iterator[str]:
    server = PostgresServer(installed()[0]).create().start()
    yield server.url()
    server.remove()


@pytest.mark.skipif(not installed(), reason="no PostgreSQL is installed")
class TestInstalledPostgres(Conformance):
    @pytest.fixture
    def connect(self, older: str, clock: VirtualClock) -> Connect:
        docket = new_id()
        return lambda: PostgresEngine(older, docket, clock=clock)
