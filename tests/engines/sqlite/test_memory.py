"""Stores in memory: shared by name within a process, apart otherwise."""

from __future__ import annotations

import asyncio
import threading

import pytest

from dovetail.clock import VirtualClock
from dovetail.engines.sqlite import SqliteEngine
from dovetail.model import EventKind, State, Topic, new_id
from dovetail.testing.conformance.vocabulary import (
    a_run,
    all_runs,
    assert_empty,
    complete_one_by_one,
    keys,
    place,
    take_one,
)
from tests.engines.sqlite.words import Opened, outcome
from tests.waiting import soon


@pytest.fixture
def url() -> str:
    """A store that nobody used before."""
    return f"memory://{new_id()}"


async def test_the_same_name_is_the_same_store(opened: Opened, url: str) -> None:
    one, other = await opened(url), await opened(url)
    await place(one, a_run("a"))
    assert keys(await all_runs(other)) == ["a"]


async def test_different_names_are_different_stores(opened: Opened, url: str) -> None:
    one, other = await opened(url), await opened(f"{url}-other")
    await place(one, a_run("a"))
    await assert_empty(other)


async def test_dockets_of_one_store_are_apart(opened: Opened, url: str) -> None:
    one, other = await opened(url, docket="one"), await opened(url, docket="other")
    await place(one, a_run("a"))
    await assert_empty(other)


async def test_a_twin_sees_the_same_runs(opened: Opened, url: str) -> None:
    engine = await opened(url)
    await place(engine, a_run("a"))
    async with engine.twin() as twin:
        assert await complete_one_by_one(twin) == ["a"]


async def test_how_durable_it_would_be_makes_no_other_store(opened: Opened, url: str) -> None:
    one, other = await opened(url, durability="durable"), await opened(url, durability="process")
    await place(one, a_run("a"))
    assert keys(await all_runs(other)) == ["a"]


async def test_runs_are_kept_while_somebody_has_the_store_open(opened: Opened, url: str, clock: VirtualClock) -> None:
    stays = await opened(url)
    async with SqliteEngine(url, "tests", clock=clock, durability="process") as comes_and_goes:
        await place(comes_and_goes, a_run("a"))
    assert keys(await all_runs(stays)) == ["a"]
    assert keys(await all_runs(await opened(url))) == ["a"]


async def test_runs_go_with_the_last_who_leaves(url: str, clock: VirtualClock) -> None:
    async with SqliteEngine(url, "tests", clock=clock) as engine:
        await place(engine, a_run("a"))
    async with SqliteEngine(url, "tests", clock=clock) as engine:
        await assert_empty(engine)


async def test_the_last_who_leaves_leaves_no_thread(url: str, clock: VirtualClock) -> None:
    async with SqliteEngine(url, "tests", clock=clock) as engine, engine.watch(Topic(EventKind.WORK)):
        await place(engine, a_run("a"))
        assert our_threads()
    assert our_threads() == []


def our_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("dovetail-")]


async def test_two_threads_share_a_store(opened: Opened, url: str, clock: VirtualClock) -> None:
    engine = await opened(url)

    async def schedule() -> None:
        async with SqliteEngine(url, "tests", clock=clock, durability="process") as other:
            await place(other, a_run("a"))

    async with engine.watch(Topic(EventKind.WORK)) as events:
        thread = threading.Thread(target=lambda: asyncio.run(schedule()))
        thread.start()
        await soon(anext(events))
        await asyncio.to_thread(thread.join)
    assert (await take_one(engine)).key == "a"


async def test_watchers_of_one_store_hear_each_other(opened: Opened, url: str) -> None:
    one, other = await opened(url), await opened(url)
    async with one.watch(Topic(EventKind.STATE)) as events:
        await place(other, a_run("a"))
        assert (await soon(anext(events))).state is State.QUEUED


def test_a_new_event_loop_finds_a_new_store(url: str, clock: VirtualClock) -> None:
    """As a test suite expects, which names the same store in every test."""

    async def keys_after_adding(key: str) -> list[str]:
        async with SqliteEngine(url, "tests", clock=clock) as engine:
            await place(engine, a_run(key))
            return keys(await all_runs(engine))

    assert asyncio.run(keys_after_adding("a")) == ["a"]
    assert asyncio.run(keys_after_adding("b")) == ["b"]


def test_processes_share_nothing(url: str) -> None:
    program = """
async def main():
    async with engine_at(sys.argv[1]) as engine:
        await place(engine, a_run("a"))
        say(len(await all_runs(engine)))
asyncio.run(main())
"""
    assert [outcome(program, url) for _ in range(2)] == [["1"], ["1"]]
