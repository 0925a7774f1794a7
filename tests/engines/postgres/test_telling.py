"""Hints between processes: a notification takes a lock of the whole database at the commit, so there are few (PG8)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest

from dovetail import Docket
from dovetail.clock import SYSTEM_CLOCK
from dovetail.engines.postgres import PostgresEngine
from dovetail.model import EventKind, NewRun, Topic, new_id
from tests.waiting import PATIENCE


@pytest.fixture
def name() -> str:
    return new_id()


@pytest.fixture
async def listened_to(postgres_url: str, name: str) -> AsyncIterator[PostgresEngine]:
    """An engine whose docket somebody listens to, or it would tell nothing."""
    async with (
        PostgresEngine(postgres_url, name, clock=SYSTEM_CLOCK) as engine,
        engine.twin() as other,
        other.watch(Topic(EventKind.WORK)),
    ):
        yield engine


class Eavesdropper:
    """Hears every notification of a docket, and who sent it."""

    def __init__(self, connection: psycopg.AsyncConnection, channel: str) -> None:
        self._connection = connection
        self._channel = channel

    async def senders(self) -> list[int]:
        """The server processes that have sent something, up to a word that is sent now."""
        await self._connection.execute("SELECT pg_notify(%s, 'last word')", (self._channel,))
        found: list[int] = []
        async for each in self._connection.notifies(timeout=PATIENCE):
            if each.payload == "last word":
                return found
            found.append(each.pid)
        raise AssertionError("the last word was not heard")


@pytest.fixture
async def ear(postgres_url: str, name: str, listened_to: PostgresEngine) -> AsyncIterator[Eavesdropper]:
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as connection:
        row = await connection.execute("SELECT id FROM dovetail.docket WHERE name = %s", (name,))
        ((number,),) = await row.fetchall()
        channel = f"dovetail/{number}"
        await connection.execute(f'LISTEN "{channel}"'.encode())
        yield Eavesdropper(connection, channel)


async def told(engine: PostgresEngine) -> None:
    """Until an engine has told everything: it does so before it is closed."""
    await engine.__aexit__()
    await engine.__aenter__()


async def test_many_calls_at_once_are_told_of_together(listened_to: PostgresEngine, ear: Eavesdropper) -> None:
    for _ in range(10):
        await asyncio.gather(*(listened_to.schedule([NewRun(new_id(), new_id(), "task")]) for _ in range(50)))
    await told(listened_to)
    assert 0 < len(await ear.senders()) <= 100


async def test_nothing_is_told_in_the_transaction_of_a_caller(
    postgres_url: str, name: str, listened_to: PostgresEngine, ear: Eavesdropper
) -> None:
    async def task() -> None: ...

    async with (
        Docket(name, postgres_url) as docket,
        await psycopg.AsyncConnection.connect(postgres_url) as caller,
    ):
        await docket.add(task, connection=caller)()
        pid = caller.info.backend_pid
        await caller.commit()
    await told(listened_to)
    assert pid not in await ear.senders()
