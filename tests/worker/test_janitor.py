"""The janitor: the store is swept now and then, in small steps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from dovetail import Docket, OutcomeUnknown
from dovetail.model import WorkerInfo
from dovetail.worker.janitor import BREATHER, INTERVAL, Janitor
from tests.by_hand import ByHand
from tests.clocks import HastyClock
from tests.faults import Faults, behind_a_door

SILENT_FOR = timedelta(seconds=10)


async def work() -> None: ...


@pytest.fixture
def clock() -> HastyClock:
    return HastyClock()


@pytest.fixture
def faults(still: Docket) -> Faults:
    return behind_a_door(still)


@pytest.fixture
async def sweeping(still: Docket, faults: Faults, clock: HastyClock) -> AsyncIterator[asyncio.Task[None]]:
    running = asyncio.create_task(Janitor(still.engine, clock, lambda: SILENT_FOR).run())
    yield running
    running.cancel()
    await asyncio.wait([running])


async def test_records_past_their_retention_go(
    still: Docket, faults: Faults, by_hand: ByHand, clock: HastyClock, request: pytest.FixtureRequest
):
    await still.add(work, key="k")()
    await by_hand.step()
    clock.jump(still.execution_ttl)
    running = asyncio.create_task(Janitor(still.engine, clock, lambda: SILENT_FOR).run())
    await faults.called("sweep", 2)
    running.cancel()
    await asyncio.wait([running])
    assert await still.engine.residue() == {}  # type: ignore[attr-defined]


@pytest.mark.usefixtures("sweeping")
async def test_workers_that_fell_silent_are_forgotten(still: Docket, faults: Faults):
    await still.engine.heartbeat(WorkerInfo("silent", id="1"), [], lease=SILENT_FOR)
    await faults.called("sweep", 3)
    assert (await still.engine.survey()).workers == []


@pytest.mark.usefixtures("sweeping")
async def test_the_time_between_two_sweeps_varies(faults: Faults, clock: HastyClock):
    await faults.called("sweep", 5)
    assert all(INTERVAL * 0.75 <= nap <= INTERVAL * 1.25 for nap in clock.naps)
    assert len(set(clock.naps)) > 1


async def test_a_large_sweep_is_done_in_steps_with_a_breather_between(still: Docket, faults: Faults, clock: HastyClock):
    await still.add_many(still.call(work)() for _ in range(2500))
    await still.clear()
    clock.jump(still.execution_ttl + timedelta(seconds=1))
    running = asyncio.create_task(Janitor(still.engine, clock, lambda: SILENT_FOR).run())
    await faults.called("sweep", 4)
    running.cancel()
    await asyncio.wait([running])
    assert clock.naps.count(BREATHER) >= 2
    assert await still.engine.residue() == {}  # type: ignore[attr-defined]


@pytest.mark.parametrize("error", [None, OutcomeUnknown("who knows")])
async def test_trouble_with_the_store_is_waited_out(
    sweeping: asyncio.Task[None], faults: Faults, error: Exception | None, caplog: pytest.LogCaptureFixture
):
    faults.fail("sweep", 2, error)
    await faults.called("sweep", 4)
    assert not sweeping.done()
    assert "could not be swept" in caplog.text
