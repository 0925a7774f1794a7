"""The tasks that an engine has of its own: they may be cancelled by others, and nobody is left waiting."""

from __future__ import annotations

import asyncio

import pytest

from dovetail.model import EventKind, Topic
from tests.engines.redis.engines import a_run, completed, on, take
from tests.servers.redis import Server
from tests.waiting import PATIENCE


def cancel_tasks_named(name: str) -> int:
    tasks = [task for task in asyncio.all_tasks() if task.get_name() == name]
    for task in tasks:
        task.cancel()
    return len(tasks)


async def test_a_cancelled_gatherer_leaves_nobody_waiting(valkey: Server) -> None:
    async with on(valkey) as opened, asyncio.timeout(PATIENCE):
        asking = [asyncio.create_task(opened.schedule([a_run()]), name=f"ask {n}") for n in range(20)]
        cancelled = 0
        while cancelled < 5:
            await asyncio.sleep(0)
            cancelled += cancel_tasks_named("dovetail-redis-gatherer")
            if all(task.done() for task in asking):
                asking += [asyncio.create_task(opened.schedule([a_run()])) for _ in range(20)]
        await asyncio.gather(*asking)
        await opened.schedule([a_run()])
        count = 0
        while claims := await take(opened, 100):
            count += len(claims)
            await opened.finish(completed(*claims))
        assert count == len(asking) + 1


async def test_those_who_go_away_hold_up_no_other(valkey: Server) -> None:
    async with on(valkey) as opened, asyncio.timeout(PATIENCE):
        asking = [asyncio.create_task(opened.schedule([a_run()]), name=f"ask {n}") for n in range(20)]
        await asyncio.sleep(0)
        for task in [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        await opened.schedule([a_run()])
        while claims := await take(opened, 100):
            await opened.finish(completed(*claims))


async def test_a_cancelled_listener_goes_on(valkey: Server) -> None:
    async with on(valkey) as opened, asyncio.timeout(PATIENCE), opened.watch(Topic(EventKind.WORK)) as events:
        assert cancel_tasks_named("dovetail-redis-listener") == 1
        await anext(events)  # what was told meanwhile was not heard, so everyone looks again
        await opened.schedule([a_run()])
        await anext(events)
        await opened.finish(completed(*await take(opened)))


async def test_one_may_begin_to_watch_after_the_listener_was_cancelled(valkey: Server) -> None:
    async with on(valkey) as opened, asyncio.timeout(PATIENCE):
        async with opened.watch(Topic(EventKind.WORK)):
            pass
        assert cancel_tasks_named("dovetail-redis-listener") == 1
        await asyncio.sleep(0)
        async with opened.watch(Topic(EventKind.WORK)) as events:
            await opened.schedule([a_run()])
            await anext(events)
        await opened.finish(completed(*await take(opened)))


async def test_a_message_that_cannot_be_read_is_passed_over(valkey: Server, caplog: pytest.LogCaptureFixture) -> None:
    async with on(valkey) as opened, asyncio.timeout(PATIENCE), opened.watch(Topic(EventKind.WORK)) as events:
        with valkey.client() as client:
            for garbage in (b"\xc1", b"\x93\x01\x02", b"\x91\x01", b"\x91\x80", b"\x91\x81\xa4kind\xa1x", b"{}"):
                client.publish(f"{opened._root}work", garbage)  # pyright: ignore[reportPrivateUsage]
        await opened.schedule([a_run()])
        await anext(events)
        await opened.finish(completed(*await take(opened)))
    (record,) = caplog.records
    assert "cannot be read" in record.getMessage()
