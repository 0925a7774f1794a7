"""Roles: each may do what its name says, and no more. That a worker may do all that a worker does is shown by the
conformance suite, which runs as one."""

from datetime import UTC, datetime, timedelta

import pytest

from dovetail import Docket
from dovetail.clock import SYSTEM_CLOCK
from dovetail.engines.postgres import PostgresEngine
from dovetail.errors import EngineUnavailable
from dovetail.model import Cancelled, NewRun, RunQuery, new_id

LEASE = timedelta(seconds=30)


async def test_an_enqueuer_schedules_and_cancels_and_no_more(users: dict[str, str]) -> None:
    async with PostgresEngine(users["enqueuer"], new_id(), clock=SYSTEM_CLOCK) as engine:
        await engine.schedule([NewRun(new_id(), "a", "task")])
        assert await engine.cancel(["a"]) == [Cancelled.CANCELLED]
        with pytest.raises(EngineUnavailable, match="no right to do that"):
            await engine.claim("worker", 1, lease=LEASE)
        with pytest.raises(EngineUnavailable, match="no right to do that"):
            await engine.find(RunQuery())


async def test_an_enqueuer_uses_a_docket(users: dict[str, str]) -> None:
    async def greet(name: str) -> None: ...

    async with Docket(new_id(), users["enqueuer"]) as docket:
        await docket.add(greet, key="one")("you")
        await docket.add_many([docket.call(greet)("all")])
        await docket.replace(greet, datetime.now(UTC), "one")("me")
        await docket.cancel("one")


async def test_a_reader_looks_and_no_more(users: dict[str, str]) -> None:
    async with PostgresEngine(users["reader"], new_id(), clock=SYSTEM_CLOCK) as engine:
        assert (await engine.find(RunQuery())).items == []
        with pytest.raises(EngineUnavailable, match="no right to do that"):
            await engine.schedule([NewRun(new_id(), "a", "task")])
