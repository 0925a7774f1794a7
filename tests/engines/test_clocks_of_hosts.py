"""Hosts whose clocks disagree: what is due and whose lease has ended is for the server to say (PG12)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from dovetail.clock import SYSTEM_CLOCK, SystemClock
from dovetail.engine import Engine
from dovetail.engines.postgres import PostgresEngine
from dovetail.engines.redis import RedisEngine
from dovetail.model import NewRun, RunQuery, WorkerInfo, new_id
from tests.clocks import WrongClock

LEASE = timedelta(seconds=30)
Connect = Callable[[SystemClock], Engine]


@pytest.fixture(params=["postgres", "redis"])
def connect(request: pytest.FixtureRequest) -> Connect:
    docket = new_id()
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
        return lambda clock: PostgresEngine(url, docket, clock=clock)
    url = request.getfixturevalue("valkey").url
    return lambda clock: RedisEngine(url, docket, clock=clock, durability="process")


@pytest.mark.parametrize("minutes", [-10, 10])
async def test_a_host_with_a_wrong_clock_neither_hurries_nor_delays_anything(connect: Connect, minutes: int) -> None:
    async with connect(SYSTEM_CLOCK) as right, connect(WrongClock(timedelta(minutes=minutes))) as wrong:
        await right.schedule([NewRun(new_id(), "now", "task"), NewRun(new_id(), "later", "task", due=5 * LEASE)])
        await wrong.schedule([NewRun(new_id(), "from there", "task")])

        claims = (await wrong.claim("wrong", 10, lease=LEASE)).claims
        assert {claim.key for claim in claims} == {"now", "from there"}
        assert (await right.claim("right", 10, lease=LEASE)).claims == []

        for run in await right.find(RunQuery(ids=tuple(claim.id for claim in claims))):
            assert run.started is not None
            assert run.lease_until is not None
            assert run.lease_until - run.started == LEASE
        heard = await wrong.heartbeat(WorkerInfo("wrong", id="wrong"), claims, lease=LEASE)
        assert heard.lost == frozenset()
        assert (await right.claim("right", 10, lease=LEASE)).claims == []
        await right.cancel(["later"])
