"""The settler: verdicts reach the store, as many at a time as came while the last write was under way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from dovetail import Docket, EngineUnavailable, OutcomeUnknown
from dovetail.model import Claim, Settle, State
from dovetail.worker.settler import LONGEST_PAUSE, Settler
from tests.by_hand import run_of
from tests.clocks import HastyClock
from tests.faults import Faults, behind_a_door
from tests.waiting import soon

MINUTE = timedelta(minutes=1)


async def work() -> None: ...


@pytest.fixture
def clock() -> HastyClock:
    return HastyClock()


@pytest.fixture
def faults(still: Docket) -> Faults:
    return behind_a_door(still)


class Desk:
    """A settler at work, and what it has told of."""

    def __init__(self, docket: Docket, clock: Any) -> None:
        self.docket = docket
        self.settler = Settler(docket.engine, clock)
        self.told: asyncio.Queue[str] = asyncio.Queue()
        self.settler.settled = lambda claim: self.told.put_nowait(claim.key)

    async def claims(self, count: int) -> list[Claim]:
        for number in range(count):
            await self.docket.add(work, key=f"k{number}")()
        return (await self.docket.engine.claim("worker", count, lease=MINUTE)).claims

    async def settled(self, count: int) -> list[str]:
        """The keys of the next runs that were settled."""
        return [await soon(self.told.get()) for _ in range(count)]

    def put(self, *claims: Claim, result: Any = None) -> None:
        for claim in claims:
            self.settler.put(Settle(claim, State.COMPLETED, result))


@pytest.fixture
async def desk(still: Docket, faults: Faults, clock: HastyClock) -> AsyncIterator[Desk]:
    desk = Desk(still, clock)
    running = asyncio.create_task(desk.settler.run())
    yield desk
    faults.left.clear()
    faults.before.clear()
    desk.settler.close()
    await soon(running)


async def test_a_verdict_is_written_and_told_of(desk: Desk, still: Docket, faults: Faults):
    (claim,) = await desk.claims(1)
    desk.put(claim)
    assert await desk.settled(1) == ["k0"]
    assert (await run_of(still, key="k0")).state is State.COMPLETED


async def test_what_comes_while_a_write_is_under_way_goes_in_one_batch(desk: Desk, faults: Faults):
    claims = await desk.claims(10)
    in_flight, release = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        in_flight.set()
        await release.wait()

    faults.before["finish"] = hold
    desk.put(claims[0])
    await soon(in_flight.wait())
    desk.put(*claims[1:])
    release.set()
    assert await desk.settled(10) == [f"k{number}" for number in range(10)]
    assert faults.calls["finish"] == 2


@pytest.mark.parametrize("error", [EngineUnavailable("away"), OutcomeUnknown("who knows")])
async def test_a_write_that_failed_is_done_again(
    desk: Desk, faults: Faults, still: Docket, clock: HastyClock, error: Exception
):
    faults.fail("finish", 3, error)
    desk.put(*await desk.claims(2))
    await desk.settled(2)
    assert faults.calls["finish"] == 4
    assert (await run_of(still, key="k1")).state is State.COMPLETED
    assert clock.naps == [timedelta(milliseconds=100), timedelta(milliseconds=200), timedelta(milliseconds=400)]


async def test_the_pause_between_two_tries_is_bounded(desk: Desk, faults: Faults, clock: HastyClock):
    faults.fail("finish", 20)
    desk.put(*await desk.claims(1))
    await desk.settled(1)
    assert max(clock.naps) == LONGEST_PAUSE


async def test_a_write_whose_answer_was_lost_is_not_done_twice(desk: Desk, faults: Faults, still: Docket):
    faults.fail("finish", 1, after=True)
    desk.put(*await desk.claims(1))
    await desk.settled(1)
    run = await run_of(still, key="k0")
    assert (run.state, run.attempt) == (State.COMPLETED, 1)


async def test_one_verdict_that_upsets_the_store_does_not_take_the_others_with_it(
    desk: Desk, still: Docket, caplog: pytest.LogCaptureFixture
):
    claims = await desk.claims(3)
    desk.put(claims[0])
    desk.put(claims[1], result=object())
    desk.put(claims[2])
    await desk.settled(3)
    states = [(await run_of(still, key=f"k{number}")).state for number in range(3)]
    assert states == [State.COMPLETED, State.FAILED, State.COMPLETED]
    assert "'k1' cannot be written" in caplog.text


async def test_a_verdict_that_comes_too_late_is_told_of_and_changes_nothing(
    desk: Desk, still: Docket, clock: HastyClock, caplog: pytest.LogCaptureFixture
):
    (claim,) = await desk.claims(1)
    clock.jump(2 * MINUTE)
    await still.engine.claim("another", 1, lease=MINUTE)
    desk.put(claim)
    await desk.settled(1)
    run = await run_of(still, key="k0")
    assert (run.state, run.worker) == (State.RUNNING, "another")
    assert "came too late" in caplog.text


async def test_a_settler_that_closes_writes_what_it_has(still: Docket, faults: Faults, clock: HastyClock):
    desk = Desk(still, clock)
    desk.put(*await desk.claims(3))
    desk.settler.close()
    await soon(desk.settler.run())
    assert await desk.settled(3) == ["k0", "k1", "k2"]


async def test_a_settler_that_closes_keeps_trying(still: Docket, faults: Faults, clock: HastyClock):
    desk = Desk(still, clock)
    faults.fail("finish", 5)
    desk.put(*await desk.claims(1))
    desk.settler.close()
    await soon(desk.settler.run())
    assert (await run_of(still, key="k0")).state is State.COMPLETED


async def test_an_idle_settler_asks_nothing_of_the_store(desk: Desk, faults: Faults):
    for _ in range(10):
        await asyncio.sleep(0)
    assert faults.calls["finish"] == 0
