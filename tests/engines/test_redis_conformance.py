"""Redis and Valkey keep the contract."""

from collections.abc import Iterator

import pytest

from dovetail.clock import VirtualClock
from dovetail.engines.redis import RedisEngine
from dovetail.model import new_id
from dovetail.testing.conformance import Conformance, Connect
from tests.servers.redis import Server


class OnAServer(Conformance):
    """Each test has a docket of its own on a server that all share."""

    @pytest.fixture
    def server(self) -> Server:
        raise NotImplementedError

    @pytest.fixture
    def connect(self, server: Server, clock: VirtualClock) -> Iterator[Connect]:
        docket = new_id()
        yield lambda: RedisEngine(server.url, docket, clock=clock, durability="process")
        with server.client() as client:
            left = client.keys(f"{{dovetail:{docket}}}:*")
            if left:
                client.delete(*left)


class TestValkey(OnAServer):
    @pytest.fixture
    def server(self, valkey: Server) -> Server:
        return valkey


class TestRedis62(OnAServer):
    @pytest.fixture
    def server(self, redis_6_2: Server) -> Server:
        return redis_6_2
