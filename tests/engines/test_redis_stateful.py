"""Redis and Valkey against the model."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import cache

import pytest

from dovetail.clock import VirtualClock
from dovetail.engines.redis import RedisEngine
from dovetail.model import new_id
from dovetail.testing.conformance.machine import machine
from tests.servers import redis as servers


@cache
def _urls() -> dict[str, str]:
    """Where the servers are that these tests have started."""
    return {}


@pytest.fixture(scope="module", autouse=True)
def running(valkey: servers.Server, redis_6_2: servers.Server) -> Iterator[None]:
    _urls().update(valkey=valkey.url, redis=redis_6_2.url)
    yield
    _urls().clear()


def on(kind: str):
    @asynccontextmanager
    async def opened(clock: VirtualClock) -> AsyncIterator[RedisEngine]:
        async with RedisEngine(_urls()[kind], new_id(), clock=clock, durability="process") as engine:
            yield engine

    return opened


TestValkey = machine(on("valkey")).TestCase
TestRedis62 = machine(on("redis")).TestCase
