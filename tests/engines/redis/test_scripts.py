"""The scripts: what they say of themselves is so."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from importlib.resources import files

import pytest

from dovetail.engines.redis.scripts import READING, WHEN_FULL, script
from dovetail.errors import EngineUnavailable, OutcomeUnknown
from dovetail.model import Failure, Hold, HoldKind, Limit, Requeue, Retention, Settle, State, WorkerInfo, new_id
from tests.engines.redis.engines import LEASE, a_run, engine, take
from tests.servers.redis import Server
from tests.waiting import PATIENCE

LUA = files("dovetail.engines.redis").joinpath("lua")
NAMES = sorted(file.name.removesuffix(".lua") for file in LUA.iterdir())
PARTS = {
    "prelude",
    "journal",
    "telling",
    "order",
    "limits",
    "endings",
    "placing",
    "holding",
    "workers",
    "origin",
    "calls",
    "matching",
    "soundness",
}
VERBS = [name for name in NAMES if name not in PARTS]
DAY = timedelta(days=1)


def text_of(name: str) -> str:
    return LUA.joinpath(f"{name}.lua").read_text(encoding="utf-8")


def described_keys() -> set[str]:
    """The kinds of keys that the prelude lists."""
    lines = re.findall(r"^--   ([a-z<>:, ]+?)  +(?:hash|zset|list|set|string)", text_of("prelude"), re.MULTILINE)
    return {name.partition(":")[0].strip() for line in lines for name in line.split(",")}


@pytest.mark.parametrize("name", NAMES)
def test_every_file_opens_with_what_it_is(name: str) -> None:
    assert text_of(name).startswith("-- ")


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_says_what_it_takes_or_returns(name: str) -> None:
    opening = text_of(name).split("\nlocal ")[0]
    assert "Takes" in opening or "Returns" in opening


def test_the_flags_name_scripts_that_exist() -> None:
    assert set(VERBS) >= WHEN_FULL
    assert set(VERBS) >= READING


@pytest.mark.parametrize("name", VERBS)
def test_only_newer_servers_are_given_flags(name: str) -> None:
    assert script(name, flags=True).source.startswith(b"#!lua")
    assert script(name, flags=False).source.startswith(b"-- Opens every script")


async def test_every_key_is_described_in_the_prelude(valkey: Server) -> None:
    docket = new_id()
    async with engine(valkey.url, docket) as opened:
        slots, rate = Limit("slots", 1), Limit("rate", 1, DAY)
        kept = Retention.of(DAY).but(keep=10)
        runs = [a_run(f"{n}", limits=(slots,), group="group", retention=kept, priority=1) for n in range(2)]
        await opened.schedule([*runs, a_run("later", due=DAY), a_run("child", after=("later",)), a_run("queued")])
        (first,) = await take(opened, 1)
        await take(opened, 0)
        failure = Failure("Error", "message")
        await opened.finish([Requeue(first, 2, failure=failure)])
        (again,) = await take(opened, 1)
        await opened.finish([Settle(again, State.COMPLETED, b"result")])
        await opened.schedule([a_run(f"rated {n}", limits=(rate,)) for n in range(2)])
        await take(opened, 10)
        await opened.schedule([a_run("more")])
        await opened.hold([Hold(HoldKind.PAUSE, queue="x")])
        await opened.heartbeat(WorkerInfo("ann", id="ann"), [], lease=LEASE)
        found = set(await opened.residue())
        assert found <= described_keys()
        assert described_keys() - found == set()
        with valkey.client() as client:
            client.delete(*await opened.keys())


async def test_what_waits_when_an_engine_is_closed_is_told_so(valkey: Server) -> None:
    opened = engine(valkey.url)
    await opened.__aenter__()
    calls = [asyncio.create_task(opened.schedule([a_run("key")])) for _ in range(5)]
    await asyncio.sleep(0)
    await opened.__aexit__(None, None, None)
    async with asyncio.timeout(PATIENCE):
        answers = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(answer, EngineUnavailable | OutcomeUnknown | list) for answer in answers)
    async with engine(valkey.url, opened._name) as again:  # pyright: ignore[reportPrivateUsage]
        await again.cancel(["key"])
        assert await again.residue() == {}
