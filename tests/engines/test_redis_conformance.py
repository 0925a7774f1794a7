"""Redis and Valkey keep the contract: one server, old and new, a cluster, and a master that sentinels name.

`DOVETAIL_TEST_REDIS_URL` adds one more server, which nobody else should be using.
"""

import os
from collections.abc import AsyncIterator

import pytest

from dovetail.clock import VirtualClock
from dovetail.engines.redis import RedisEngine
from dovetail.model import new_id
from dovetail.testing.conformance import Conformance, Connect
from tests.servers.redis import Cluster, Server, Watched

ELSEWHERE = os.environ.get("DOVETAIL_TEST_REDIS_URL", "")


class OnRedis(Conformance):
    """Each test has a docket of its own on servers that all share."""

    @pytest.fixture
    def redis_url(self) -> str:
        raise NotImplementedError

    @pytest.fixture
    async def connect(self, redis_url: str, clock: VirtualClock) -> AsyncIterator[Connect]:
        docket = new_id()
        yield lambda: RedisEngine(redis_url, docket, clock=clock, durability="process")
        await clear(redis_url, docket, clock)


async def clear(url: str, docket: str, clock: VirtualClock) -> None:
    """A test may leave runs behind that are not over. The next shall not find them in memory."""
    async with RedisEngine(url, docket, clock=clock, durability="process") as engine:
        for key in await engine.keys():
            await engine._branch().lane.command("DEL", key)  # pyright: ignore[reportPrivateUsage]


class TestValkey(OnRedis):
    @pytest.fixture
    def redis_url(self, valkey: Server) -> str:
        return valkey.url


class TestRedis62(OnRedis):
    @pytest.fixture
    def redis_url(self, redis_6_2: Server) -> str:
        return redis_6_2.url


class TestCluster(OnRedis):
    @pytest.fixture
    def redis_url(self, valkey_cluster: Cluster) -> str:
        return valkey_cluster.url


class TestSentinel(OnRedis):
    @pytest.fixture
    def redis_url(self, watched_by_sentinels: Watched) -> str:
        return watched_by_sentinels.url


if ELSEWHERE:

    class TestElsewhere(OnRedis):
        @pytest.fixture
        def redis_url(self) -> str:
            return ELSEWHERE
