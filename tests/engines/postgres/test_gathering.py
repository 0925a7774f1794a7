"""Group commit: many share a transaction, and one that waits for a lock holds up nobody else."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import psycopg
import pytest

from dovetail import Docket
from dovetail.clock import SYSTEM_CLOCK
from dovetail.engines.postgres import PostgresEngine
from dovetail.engines.postgres.gathering import LANES, Gatherer
from dovetail.model import Finished, Limit, NewRun, Settle, State, new_id
from tests.waiting import PATIENCE, eventually

LEASE = timedelta(seconds=30)


async def noop() -> None: ...


@pytest.fixture
async def docket(postgres_url: str) -> AsyncIterator[Docket]:
    async with Docket(new_id(), postgres_url) as docket:
        yield docket


async def somebody_waits_for(connection: psycopg.AsyncConnection) -> None:
    async def is_waiting() -> bool:
        rows = await connection.execute(
            "SELECT FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
        )
        return await rows.fetchone() is not None

    await eventually(is_waiting)


async def test_an_add_that_waits_for_a_lock_holds_up_no_other(docket: Docket, postgres_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(postgres_url) as mine, asyncio.timeout(PATIENCE):
        await docket.add(noop, key="one", connection=mine)()
        waiting = asyncio.create_task(docket.add(noop, key="one")(), name="waiting")
        await somebody_waits_for(mine)
        await docket.add(noop, key="two")()
        await asyncio.gather(*(docket.add(noop)() for _ in range(20)))
        assert not waiting.done()
        await mine.commit()
        await waiting


async def test_a_finish_that_waits_for_a_lock_holds_up_no_other(postgres_url: str) -> None:
    async with PostgresEngine(postgres_url, new_id(), clock=SYSTEM_CLOCK) as engine, asyncio.timeout(PATIENCE):
        await engine.schedule([NewRun(new_id(), key, "task", limits=(Limit(key, 1),)) for key in "abc"])
        first, *others = (await engine.claim("worker", 3, lease=LEASE)).claims
        async with await psycopg.AsyncConnection.connect(postgres_url) as mine:
            await mine.execute("SELECT FROM dovetail.run WHERE id = %s FOR UPDATE", (first.id,))
            waiting = asyncio.create_task(engine.finish([Settle(first, State.COMPLETED)]), name="waiting")
            await somebody_waits_for(mine)
            for claim in others:
                assert await engine.finish([Settle(claim, State.COMPLETED)]) == [Finished.DONE]
            assert not waiting.done()
        assert await waiting == [Finished.DONE]


async def test_no_more_are_under_way_than_there_are_lanes() -> None:
    under_way: list[int] = []
    go = asyncio.Event()

    async def perform(items: Sequence[int]) -> list[int]:
        under_way.extend(items)
        await go.wait()
        return list(items)

    gatherer = Gatherer[int, int](perform)
    asked: list[asyncio.Task[list[int]]] = []

    async def ask(number: int) -> None:
        asked.append(asyncio.create_task(gatherer.submit([number]), name=str(number)))

    for number in range(LANES):
        await ask(number)
        await eventually(lambda number=number: _answer(number in under_way))
    await ask(LANES)
    await ask(LANES + 1)
    await asyncio.sleep(0)
    assert len(under_way) == LANES
    go.set()
    assert await asyncio.gather(*asked) == [[number] for number in range(LANES + 2)]
    await gatherer.close()


async def _answer(answer: bool) -> bool:
    return answer
