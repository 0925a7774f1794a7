"""One connection: what it leaves behind when it is lost, and how long it waits."""

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest

from dovetail.engines.postgres.location import locate
from dovetail.engines.postgres.wire import Wire
from dovetail.errors import OutcomeUnknown
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Proxy, proxy
from tests.waiting import PATIENCE


@pytest.fixture
async def way(postgres_server: PostgresServer) -> AsyncIterator[Proxy]:
    async with proxy("127.0.0.1", postgres_server.port) as way:
        yield way


async def test_a_connection_that_is_lost_is_no_longer_watched(postgres_url: str) -> None:
    """Its socket's number is soon another's."""
    wire = await Wire.connect(locate(postgres_url))
    lost = asyncio.Event()
    wire.listen(lambda _: None, lost.set)
    number = wire.connection.fileno()
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as killer:
        await killer.execute("SELECT pg_terminate_backend(%s)", (wire.connection.info.backend_pid,))
    async with asyncio.timeout(PATIENCE):
        await lost.wait()
    assert not wire.is_open
    assert asyncio.get_running_loop().remove_reader(number) is False
    await wire.close()


async def test_a_script_that_hears_no_answer_is_given_up(way: Proxy) -> None:
    wire = await Wire.connect(locate(f"postgresql://postgres@127.0.0.1:{way.port}/postgres"))
    await wire.script("BEGIN")
    way.lose_replies()
    with pytest.raises(OutcomeUnknown, match="the connection was lost"):
        await wire.script("COMMIT", patience=0.2)
    assert not wire.is_open
