"""The Redis that a docket in memory lends, for keys of the user's own."""

from __future__ import annotations

import asyncio
import sys

import pytest

from dovetail import Docket
from dovetail.errors import MissingExtra
from dovetail.model import new_id
from tests.waiting import soon


@pytest.fixture
def url() -> str:
    """A store that nobody used before."""
    return f"memory://{new_id()}"


async def keep(docket: Docket, value: str) -> None:
    async with docket.redis() as redis:
        await redis.set(docket.key("mine"), value, ex=60)


async def kept(docket: Docket) -> bytes | str | None:
    async with docket.redis() as redis:
        return await redis.get(docket.key("mine"))


async def test_what_one_docket_keeps_another_of_the_url_finds(url: str):
    async with Docket("one", url) as one, Docket("another", url) as another:
        await keep(one, "kept")
        async with another.redis() as redis:
            assert await redis.get("one:mine") == b"kept"
            assert 0 < await redis.ttl("one:mine") <= 60
        assert await kept(another) is None


async def test_another_url_is_another_redis(url: str):
    async with Docket("tests", url) as docket, Docket("tests", f"{url}-other") as other:
        await keep(docket, "kept")
        assert await kept(other) is None


async def test_it_goes_with_the_last_docket_on_the_url(url: str):
    async with Docket("tests", url) as docket:
        await keep(docket, "kept")
    async with docket:
        assert await kept(docket) is None


async def test_other_loops_and_threads_see_the_same(url: str):
    async with Docket("tests", url) as docket, docket.redis() as redis:

        async def push() -> None:
            async with docket.redis() as there:
                await there.lpush("letters", "a letter")

        waiting = asyncio.ensure_future(redis.brpop(["letters"], timeout=0))
        await asyncio.to_thread(asyncio.run, push())
        assert await soon(waiting) == (b"letters", b"a letter")


async def test_clearing_the_docket_leaves_it_alone(url: str):
    async with Docket("tests", url) as docket:
        await keep(docket, "kept")
        await docket.clear()
        assert await kept(docket) == b"kept"


async def test_without_the_extra_it_says_what_to_install(url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "burner_redis", None)
    async with Docket("tests", url) as docket:
        with pytest.raises(MissingExtra, match=r"pip install 'dovetail-tasks\[memory\]'"):
            await kept(docket)
