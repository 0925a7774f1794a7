"""The listener: the engine's hints become signals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from dovetail import Docket
from dovetail.model import Hold, HoldKind
from dovetail.worker.listener import Listener
from tests.clocks import HastyClock
from tests.faults import Faults, behind_a_door
from tests.waiting import soon


async def work() -> None: ...


class Ears:
    """A listener, and what it heard."""

    def __init__(self, docket: Docket, clock: Any) -> None:
        self.heard: asyncio.Queue[str] = asyncio.Queue()
        self.listener = Listener(
            docket.engine,
            clock,
            on_work=lambda: self.heard.put_nowait("work"),
            on_stop=lambda run_id: self.heard.put_nowait(f"stop {run_id}"),
            reconnection_delay=timedelta(seconds=5),
        )

    async def next(self) -> str:
        return await soon(self.heard.get())


@pytest.fixture
def clock() -> HastyClock:
    return HastyClock()


@pytest.fixture
def faults(still: Docket) -> Faults:
    return behind_a_door(still)


@pytest.fixture
async def ears(still: Docket, faults: Faults, clock: HastyClock) -> AsyncIterator[Ears]:
    ears = Ears(still, clock)
    running = asyncio.create_task(ears.listener.run())
    yield ears
    running.cancel()
    await asyncio.wait([running])


async def test_what_came_before_anyone_listened_is_looked_for(ears: Ears):
    assert await ears.next() == "work"


async def test_new_work_is_heard_of(ears: Ears, still: Docket):
    await ears.next()
    await still.add(work)()
    assert await ears.next() == "work"


async def test_work_for_later_is_heard_of_too(ears: Ears, still: Docket, clock: HastyClock):
    await ears.next()
    await still.add(work, when=clock.now() + timedelta(hours=1))()
    assert await ears.next() == "work"


async def test_a_run_that_is_to_stop_is_heard_of_by_its_id(ears: Ears, still: Docket):
    await ears.next()
    execution = await still.add(work, key="k")()
    await ears.next()
    await still.engine.claim("worker", 1, lease=timedelta(minutes=1))
    await still.cancel("k")
    assert await ears.next() == f"stop {execution.id}"


async def test_a_hold_that_is_lifted_is_a_reason_to_look(ears: Ears, still: Docket):
    await ears.next()
    hold = Hold(HoldKind.PAUSE, queue="default")
    await still.engine.hold([hold])
    assert await ears.next() == "work"
    await still.engine.lift([hold])
    assert await ears.next() == "work"


async def test_a_store_that_is_away_is_tried_again(still: Docket, faults: Faults, clock: HastyClock):
    faults.fail("watch", 3)
    ears = Ears(still, clock)
    running = asyncio.create_task(ears.listener.run())
    assert await ears.next() == "work"
    assert all(abs(nap - timedelta(seconds=5)) <= timedelta(seconds=1.25) for nap in clock.naps)
    assert len(set(clock.naps)) == 3
    running.cancel()
    await asyncio.wait([running])
