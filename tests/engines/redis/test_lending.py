"""The client to a docket's server, for keys of the user's own."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dovetail import Docket, UsageError
from tests.servers import redis as servers
from tests.servers.redis import Server


async def keep_and_read(url: str) -> Docket:
    async with Docket("tests", url) as docket:
        mine = docket.key("mine")
        async with docket.redis() as redis:
            await redis.set(mine, "kept", ex=60)
        async with docket.redis() as redis:
            assert await redis.get(mine) == b"kept"
            assert 0 < await redis.ttl(mine) <= 60
    return docket


async def test_one_server(valkey: Server):
    docket = await keep_and_read(f"{valkey.url}?db=3")
    assert docket.key("mine") == "tests:mine"
    with valkey.client(db=3) as client:
        assert client.get("tests:mine") == b"kept"


async def test_one_that_asks_for_a_password():
    with servers.server(password="p@ss") as server:
        await keep_and_read(f"redis://:p%40ss@127.0.0.1:{server.port}")


async def test_a_socket(tmp_path: Path):
    path = tmp_path / "redis.sock"
    with servers.server(unixsocket=str(path)):
        await keep_and_read(f"unix://{path}?db=2")


async def test_the_master_that_sentinels_know():
    with servers.sentinels() as sentinels:
        await keep_and_read(sentinels.url)


async def test_a_cluster_in_which_all_of_it_is_in_one_slot():
    with servers.cluster() as cluster:
        docket = await keep_and_read(cluster.url)
        assert docket.key("mine") == "{tests}:mine"
        async with docket, docket.redis() as redis:
            await redis.mset({docket.key("a"): 1, docket.key("b"): 2})  # refused across slots


async def test_what_is_kept_is_none_of_the_docket_s_business(valkey: Server):
    async with Docket("tests", valkey.url) as docket:
        async with docket.redis() as redis:
            await redis.set(docket.key("mine"), "kept")
        await docket.clear()
        assert (await docket.snapshot()).total_tasks == 0
        async with docket.redis() as redis:
            assert await redis.get(docket.key("mine")) == b"kept"


async def test_one_client_serves_all_and_goes_with_the_docket(valkey: Server):
    def clients() -> int:
        with valkey.client() as client:
            return len(client.client_list())

    before = clients()
    async with Docket("tests", valkey.url) as docket, docket.redis() as one, docket.redis() as another:
        assert one is another
        await one.ping()
    assert clients() == before


def test_a_loop_that_only_visits_leaves_nothing_open(valkey: Server):
    async def visit(docket: Docket) -> None:
        async with docket.redis() as redis:
            await redis.set(docket.key("mine"), "kept")

    async def main() -> None:
        async with Docket("tests", valkey.url) as docket:
            await asyncio.to_thread(asyncio.run, visit(docket))
            await visit(docket)

    asyncio.run(main())


async def test_another_store_says_that_it_is_none(tmp_path: Path):
    async with Docket("tests", f"sqlite:///{tmp_path}/tests.db") as docket:
        with pytest.raises(UsageError, match=r"redis\(\) needs a docket in Redis, Valkey or memory, .* sqlite:"):
            docket.redis()


async def test_a_docket_that_is_not_open_says_so(valkey: Server):
    with pytest.raises(Exception, match="is not open"):
        Docket("tests", valkey.url).redis()
