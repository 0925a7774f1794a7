"""The order of locks: whoever frees or takes room under limits waits for all of them at once, holding none yet."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from dovetail.clock import VirtualClock
from dovetail.engines.postgres import PostgresEngine
from dovetail.model import EventKind, Limit, NewRun, Requeue, Settle, State, Topic, Verdict, new_id
from tests.waiting import eventually, soon

LEASE = timedelta(seconds=30)
LIMITS = [f"limit {n}" for n in range(20)]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def engine(postgres_url: str, clock: VirtualClock) -> AsyncIterator[PostgresEngine]:
    async with PostgresEngine(postgres_url, new_id(), clock=clock) as engine:
        yield engine


@pytest.fixture
async def other(postgres_url: str) -> AsyncIterator[psycopg.AsyncConnection]:
    async with await psycopg.AsyncConnection.connect(postgres_url) as other:
        yield other


async def limited_runs(engine: PostgresEngine, **fields: Any) -> None:
    await engine.schedule([NewRun(new_id(), key, "task", limits=(Limit(key, 5),), **fields) for key in LIMITS])


async def hold_the_first(other: psycopg.AsyncConnection, engine: PostgresEngine) -> int:
    """Lock the limit that comes first in the order of locks; the class of these locks."""
    class_of = "hashtext('dovetail/limits/' || (SELECT id FROM dovetail.docket WHERE name = %s))"
    rows = await other.execute(
        f"SELECT {class_of}, pg_advisory_xact_lock({class_of}, MIN(hashtext(each) & 1023))"
        " FROM unnest(%s::text[]) AS each",
        (engine._name, engine._name, LIMITS),  # pyright: ignore[reportPrivateUsage]
    )
    row = await rows.fetchone()
    assert row is not None
    return row[0]


async def locks_of_one_who_waits(other: psycopg.AsyncConnection, kind: int) -> int:
    """How many locks of limits he has got who waits for one."""
    waiting: list[int] = []

    async def is_waiting() -> bool:
        rows = await other.execute(
            "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = (%s::bigint & 4294967295)::oid"
            " AND NOT granted", (kind,)
        )  # fmt: skip
        waiting[:] = [pid for (pid,) in await rows.fetchall()]
        return bool(waiting)

    await eventually(is_waiting)
    rows = await other.execute(
        "SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = (%s::bigint & 4294967295)::oid"
        " AND granted AND pid = ANY (%s)", (kind, waiting)
    )  # fmt: skip
    row = await rows.fetchone()
    assert row is not None
    return row[0]


@pytest.mark.parametrize("verdict", ["plain", "failed", "again"])
async def test_who_finishes_waits_for_all_limits_of_the_batch_at_once(
    engine: PostgresEngine, other: psycopg.AsyncConnection, verdict: str
) -> None:
    await limited_runs(engine)
    claims = (await engine.claim("worker", 100, lease=LEASE)).claims
    verdicts: list[Verdict] = [
        Requeue(claim, 2) if verdict == "again"
        else Settle(claim, State.COMPLETED if verdict == "plain" else State.FAILED)
        for claim in claims
    ]  # fmt: skip
    kind = await hold_the_first(other, engine)
    finishing = asyncio.create_task(engine.finish(verdicts), name="finishing")
    held = await locks_of_one_who_waits(other, kind)
    await other.rollback()
    assert len(await finishing) == len(LIMITS)
    assert held == 0


async def test_who_takes_over_waits_for_all_limits_at_once(
    engine: PostgresEngine, clock: VirtualClock, other: psycopg.AsyncConnection
) -> None:
    """Every one of them has crashed too often, and gives its slot back."""
    await limited_runs(engine, crash_limit=1)
    assert len((await engine.claim("worker", 100, lease=LEASE)).claims) == len(LIMITS)
    clock.jump(2 * LEASE)
    kind = await hold_the_first(other, engine)
    claiming = asyncio.create_task(engine.claim("heir", 100, lease=LEASE), name="claiming")
    held = await locks_of_one_who_waits(other, kind)
    await other.rollback()
    assert (await claiming).claims == []
    assert held == 0
    assert (await engine.survey()).count(State.FAILED) == len(LIMITS)


async def test_who_begins_to_listen_while_another_finishes_is_told_to_look_again(
    engine: PostgresEngine, other: psycopg.AsyncConnection
) -> None:
    """The one who finishes found nobody when he began, and whoever reads before he ends sees nothing of it."""
    await limited_runs(engine)
    claims = (await engine.claim("worker", 100, lease=LEASE)).claims
    kind = await hold_the_first(other, engine)
    finishing = asyncio.create_task(engine.finish([Settle(claim, State.COMPLETED) for claim in claims]))
    await locks_of_one_who_waits(other, kind)
    async with engine.watch(Topic(EventKind.STATE, claims[0].key)) as events:
        assert (await engine.survey()).count(State.RUNNING) == len(LIMITS)
        await other.rollback()
        await finishing
        assert (await soon(anext(events))).kind is EventKind.STATE
