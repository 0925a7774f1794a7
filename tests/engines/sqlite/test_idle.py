"""Waiting costs next to nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import AsyncExitStack

from dovetail.engines.sqlite import SqliteEngine, doorbell
from dovetail.model import EventKind, Topic
from tests.engines.sqlite.conftest import Trace
from tests.engines.sqlite.words import Opened

ALL = [Topic(kind) for kind in EventKind]


async def test_twenty_idle_listeners_leave_the_processor_alone(opened: Opened) -> None:
    """Each with a thread and a bell of its own, as twenty processes would have."""
    async with AsyncExitStack() as stack:
        for n in range(20):
            engine = await opened(lane=f"{n}")
            await stack.enter_async_context(engine.watch(*ALL))
        began, used = time.monotonic(), time.process_time()
        await asyncio.sleep(2)
        share = (time.process_time() - used) / (time.monotonic() - began)
    assert share < 0.05


async def test_many_watchers_of_one_engine_share_a_listener(engine: SqliteEngine) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(200):
            await stack.enter_async_context(engine.watch(*ALL))
        listeners = [thread for thread in threading.enumerate() if thread.name == "dovetail-doorbell"]
    assert len(listeners) == 1


async def test_an_idle_store_executes_nothing_but_a_look_for_changes(opened: Opened, trace: Trace) -> None:
    engine = await opened()
    async with engine.watch(*ALL):
        began = time.monotonic()
        trace.forget()
        await asyncio.sleep(1.5)
        executed = trace.statements()
        assert set(executed) <= {"PRAGMA data_version"}
        assert len(executed) <= (time.monotonic() - began) / doorbell.POLL + 1
