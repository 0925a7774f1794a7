"""The intake: claims while there is room, then waits for a reason to look again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from dovetail import Docket, OutcomeUnknown, Queue
from dovetail.clock import VirtualClock
from dovetail.model import Settle, State, Verdict
from dovetail.schedules import QUEUE
from dovetail.worker.intake import Intake, Scope
from dovetail.worker.roster import Roster, Tenure
from tests.by_hand import run_of
from tests.clocks import HastyClock
from tests.faults import Faults, behind_a_door
from tests.waiting import PATIENCE, soon

LEASE = timedelta(seconds=30)


async def work() -> None: ...


class Desk:
    """An intake and its roster; what it starts ends when it is told to."""

    def __init__(self, docket: Docket, clock: Any, concurrency: int = 2, **settings: Any) -> None:
        self.docket = docket
        self.release = asyncio.Event()
        self.started: list[str] = []
        self.deadlines: list[float] = []
        self.most = 0
        self.changed = asyncio.Event()
        self.roster = Roster(concurrency, self.attend, self.settle, "docket")
        settings = {
            "worker": "worker",
            "queues": (),
            "lease": LEASE,
            "batch": 1000,
            "reconnection_delay": timedelta(seconds=5),
            "until_finished": False,
            **settings,
        }
        self.intake = Intake(docket.engine, self.roster, clock, **settings)
        self.writes: set[asyncio.Task[None]] = set()

    async def attend(self, tenure: Tenure) -> Verdict:
        self.started.append(tenure.claim.key)
        self.deadlines.append(tenure.deadline)
        self.most = max(self.most, len(self.roster.running))
        self.changed.set()
        await self.release.wait()
        return Settle(tenure.claim, State.COMPLETED)

    def settle(self, verdict: Verdict) -> None:
        task = asyncio.create_task(self.write(verdict))
        self.writes.add(task)
        task.add_done_callback(self.writes.discard)

    async def write(self, verdict: Verdict) -> None:
        await self.docket.engine.finish([verdict])
        self.roster.settled(verdict.claim)

    async def until_started(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(self.started) < count:
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def at_work(desk: Desk) -> AsyncIterator[Desk]:
    running = asyncio.create_task(desk.intake.run())
    yield desk
    desk.intake.stop()
    desk.release.set()
    await soon(running)
    await soon(desk.roster.is_idle.wait())


@pytest.fixture
def faults(still: Docket) -> Faults:
    return behind_a_door(still)


@pytest.fixture
async def desk(still: Docket, faults: Faults, clock: VirtualClock) -> AsyncIterator[Desk]:
    async with at_work(Desk(still, clock)) as desk:
        yield desk


async def test_what_is_there_is_claimed(desk: Desk, still: Docket):
    await still.add(work, key="k")()
    desk.intake.hint()
    await desk.until_started(1)
    run = await run_of(still, key="k")
    assert (run.state, run.worker) == (State.RUNNING, "worker")


async def test_no_more_is_claimed_than_there_is_room_for(desk: Desk, still: Docket, faults: Faults):
    for _ in range(5):
        await still.add(work)()
    desk.intake.hint()
    await desk.until_started(2)
    assert (await still.snapshot()).total_tasks == 5
    assert len((await still.snapshot()).running) == 2
    assert desk.roster.room == 0


async def test_a_slot_that_frees_is_filled_at_once(desk: Desk, still: Docket):
    for _ in range(5):
        await still.add(work)()
    desk.intake.hint()
    await desk.until_started(2)
    desk.release.set()
    await desk.until_started(5)
    assert desk.most == 2


async def test_without_a_hint_nothing_is_asked_of_the_store(desk: Desk, still: Docket, faults: Faults):
    await faults.reached("claim", 1)
    for _ in range(5):
        await still.workers()
    assert faults.calls["claim"] == 1


async def test_names_alone_cost_one_call(still: Docket, faults: Faults, clock: VirtualClock):
    async with at_work(Desk(still, clock, queues=("a", "b"))):
        await faults.reached("claim", 1)
        for _ in range(5):
            await still.workers()
    assert faults.calls["claim"] == 1


async def test_each_share_is_asked_once_and_not_again_without_a_reason(
    still: Docket, faults: Faults, clock: VirtualClock
):
    shares = (Queue("a", weight=2), Queue("b", concurrency=1))
    for key in ("first", "second"):
        await still.add(work, key=key, queue="b")()
    async with at_work(Desk(still, clock, concurrency=3, queues=("a", "b"), shares=shares)) as desk:
        await desk.until_started(1)
        for _ in range(5):
            await still.workers()
        assert faults.calls["claim"] == 3  # schedules are looked after, whatever the queues
        desk.release.set()  # the bound of b is what kept the second waiting
        await desk.until_started(2)
    assert (desk.started, desk.most) == (["first", "second"], 1)


async def test_a_hint_that_comes_during_a_claim_is_not_lost(desk: Desk, still: Docket, faults: Faults):
    async def another_comes() -> None:
        faults.after.pop("claim", None)
        await still.add(work, key="meanwhile")()
        desk.intake.hint()

    faults.after["claim"] = another_comes
    desk.intake.hint()
    await desk.until_started(1)
    assert desk.started == ["meanwhile"]


async def test_the_lease_counts_from_before_the_claim_was_sent(desk: Desk, still: Docket, faults: Faults, clock: Any):
    await faults.reached("claim", 1)
    sent = clock.monotonic()

    async def slow() -> None:
        faults.before.pop("claim", None)
        clock.jump(timedelta(seconds=3))

    await still.add(work)()
    faults.before["claim"] = slow
    desk.intake.hint()
    await desk.until_started(1)
    assert desk.deadlines == [sent + LEASE.total_seconds()]


# By itself


async def drained(desk: Desk) -> None:
    desk.release.set()
    await soon(desk.intake.run())
    await soon(desk.roster.is_idle.wait())


async def test_an_intake_that_waits_for_the_end_returns_when_nothing_is_left(still: Docket, clock: VirtualClock):
    desk = Desk(still, clock, until_finished=True)
    for _ in range(5):
        await still.add(work)()
    await drained(desk)
    assert len(desk.started) == 5


async def test_an_intake_that_waits_for_the_end_waits_for_the_future(url: str):
    clock = HastyClock()
    async with Docket("hasty", url, clock=clock) as docket:
        desk = Desk(docket, clock, until_finished=True)
        await docket.add(work, when=clock.now() + timedelta(seconds=2), key="future")()
        await drained(desk)
        assert desk.started == ["future"]


async def test_an_intake_that_waits_for_the_end_waits_for_what_others_run(url: str):
    clock = HastyClock()
    async with Docket("hasty", url, clock=clock) as docket:
        await docket.add(work)()
        (claim,) = (await docket.engine.claim("another", 1, lease=timedelta(days=1))).claims
        faults = behind_a_door(docket)
        desk = Desk(docket, clock, until_finished=True)
        running = asyncio.create_task(desk.intake.run())
        await faults.called("find", 3)
        assert not running.done()
        await docket.engine.finish([Settle(claim, State.COMPLETED)])
        await soon(running)


async def test_a_batch_bounds_what_one_claim_brings(still: Docket, faults: Faults, clock: VirtualClock):
    desk = Desk(still, clock, concurrency=10, batch=3, until_finished=True)
    for _ in range(10):
        await still.add(work)()
    await drained(desk)
    assert len(desk.started) == 10
    assert faults.calls["claim"] >= 4


async def test_only_the_queues_asked_for_are_claimed_from(still: Docket, clock: VirtualClock):
    desk = Desk(still, clock, queues=("mine",))
    await still.add(work, queue="mine", key="mine")()
    await still.add(work, queue="other", key="other")()
    running = asyncio.create_task(desk.intake.run())
    await desk.until_started(1)
    desk.intake.stop()
    await soon(running)
    desk.release.set()
    await soon(desk.roster.is_idle.wait())
    assert desk.started == ["mine"]


@pytest.mark.parametrize("error", [None, OutcomeUnknown("who knows")])
async def test_trouble_with_a_claim_is_waited_out(url: str, error: Exception | None, caplog: pytest.LogCaptureFixture):
    clock = HastyClock()
    async with Docket("hasty", url, clock=clock) as docket:
        faults = behind_a_door(docket)
        faults.fail("claim", 3, error)
        await docket.add(work)()
        desk = Desk(docket, clock, until_finished=True)
        await drained(desk)
        assert len(desk.started) == 1
        assert all(abs(nap - timedelta(seconds=5)) <= timedelta(seconds=1.25) for nap in clock.naps[:3])
        assert len(set(clock.naps[:3])) == 3  # others lost the store at the same moment
        assert "cannot claim" in caplog.text


@pytest.mark.parametrize("error", [None, OutcomeUnknown("who knows")])
async def test_trouble_with_the_look_whether_all_is_done_is_waited_out(url: str, error: Exception | None):
    clock = HastyClock()
    async with Docket("hasty", url, clock=clock) as docket:
        faults = behind_a_door(docket)
        faults.fail("find", 2, error)
        await docket.add(work)()
        desk = Desk(docket, clock, until_finished=True)
        await drained(desk)
        assert len(desk.started) == 1


async def test_a_claim_whose_answer_was_lost_is_taken_over_when_its_lease_lapses(url: str):
    clock = HastyClock()
    async with Docket("hasty", url, clock=clock) as docket:
        faults = behind_a_door(docket)
        faults.fail("claim", 1, after=True)
        await docket.add(work, key="k")()
        desk = Desk(docket, clock, until_finished=True)
        await drained(desk)
        assert desk.started == ["k"]


async def test_a_stopped_intake_claims_nothing_more(still: Docket, faults: Faults, clock: VirtualClock):
    desk = Desk(still, clock)
    desk.intake.stop()
    await still.add(work)()
    await soon(desk.intake.run())
    assert desk.started == []


async def test_an_intake_can_be_stopped_while_it_waits_out_trouble(still: Docket, faults: Faults, clock: VirtualClock):
    faults.fail("claim", 1000)
    desk = Desk(still, clock)
    running = asyncio.create_task(desk.intake.run())
    await faults.called("claim")
    desk.intake.stop()
    await soon(running)


async def test_an_intake_can_be_stopped_while_there_is_no_room(still: Docket, clock: VirtualClock):
    desk = Desk(still, clock, concurrency=1)
    await still.add(work)()
    running = asyncio.create_task(desk.intake.run())
    await desk.until_started(1)
    desk.intake.stop()
    await soon(running)
    desk.release.set()
    await soon(desk.roster.is_idle.wait())


async def test_health_goes_by_the_last_claim_that_came_back(desk: Desk, still: Docket, faults: Faults, clock: Any):
    await faults.reached("claim", 1)
    clock.jump(timedelta(seconds=10))
    faults.fail("claim", 1)
    desk.intake.hint()
    await faults.reached("claim", 2)
    assert desk.intake.moved == clock.monotonic() - 10
    desk.intake.hint()
    await faults.reached("claim", 3)
    await still.workers()
    assert desk.intake.moved == clock.monotonic()


# Which queues


def test_a_worker_of_all_queues_names_none(clock: VirtualClock):
    assert Scope((), clock).queues() == ()


def test_a_worker_of_some_queues_looks_after_schedules_as_well(clock: VirtualClock):
    scope = Scope(("mail",), clock)
    assert [scope.queues() for _ in range(2)] == [("mail", QUEUE)] * 2


async def test_one_that_finds_enough_looks_after_schedules_now_and_then(clock: VirtualClock):
    scope = Scope(("mail",), clock)
    scope.queues()
    scope.is_enough = True
    assert scope.queues() == ("mail",)
    await clock.advance(timedelta(seconds=1))
    assert scope.queues() == ("mail", QUEUE)
    assert scope.queues() == ("mail",)
    scope.is_enough = False
    assert scope.queues() == ("mail", QUEUE)
