"""The pulse: leases are renewed, and what is lost is heard of, whatever the event loop does."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

from dovetail import Docket, Worker
from dovetail.clock import VirtualClock
from dovetail.model import Blockage, Claim, State, Verdict, WorkerInfo
from dovetail.model import Pulse as Heard
from dovetail.worker import pulse as module
from dovetail.worker.crew import Crew
from dovetail.worker.pulse import Pulse, PulseThread
from dovetail.worker.roster import Reason, Roster, Tenure
from tests.by_hand import at_work, finish, run_of
from tests.clocks import HastyClock
from tests.faults import Faults, behind_a_door
from tests.waiting import PATIENCE, eventually, soon

MakeWorker = Callable[..., Worker]
LEASE = timedelta(seconds=30)


async def work() -> None: ...


class Heart:
    """A pulse, and the roster it renews."""

    def __init__(self, docket: Docket, clock: Any) -> None:
        self.docket = docket
        self.release = asyncio.Event()
        self.stopped: list[tuple[str, Reason | None]] = []
        self.heard: asyncio.Queue[Heard] = asyncio.Queue()
        self.roster = Roster(10, self.attend, lambda verdict: None, "docket")
        self.pulse = Pulse(
            docket.engine.twin(),
            self.roster,
            clock,
            lease=LEASE,
            interval=lambda: timedelta(seconds=2),
            say=lambda: WorkerInfo("worker", tasks=frozenset({"work"}), id="1"),
            heard=self.heard.put_nowait,
        )

    async def attend(self, tenure: Tenure) -> Verdict | None:
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.stopped.append((tenure.claim.key, tenure.reason))
        return None

    async def take(self, key: str, clock: Any) -> Claim:
        await self.docket.add(work, key=key)()
        (claim,) = (await self.docket.engine.claim("worker", 1, lease=LEASE)).claims
        self.roster.claimed([claim], clock.monotonic() + LEASE.total_seconds(), 0.0)
        return claim

    async def beat(self) -> Heard:
        """One heartbeat, and what was heard."""
        running = asyncio.create_task(self.pulse.run(asyncio.get_running_loop()))
        heard = await soon(self.heard.get())
        self.pulse.stop()
        await soon(running)
        return heard


@pytest.fixture
def faults(still: Docket) -> Faults:
    return behind_a_door(still)


@pytest.fixture
async def heart(still: Docket, faults: Faults, clock: VirtualClock) -> AsyncIterator[Heart]:
    heart = Heart(still, clock)
    yield heart
    heart.release.set()
    await soon(heart.roster.is_idle.wait())


async def test_a_heartbeat_renews_the_leases_in_hand(heart: Heart, still: Docket, clock: VirtualClock):
    await heart.take("k", clock)
    clock.jump(timedelta(seconds=10))
    await heart.beat()
    assert (await run_of(still, key="k")).lease_until == clock.now() + LEASE


async def test_a_heartbeat_moves_the_deadline_on_from_when_it_was_sent(heart: Heart, clock: VirtualClock):
    await heart.take("k", clock)
    clock.jump(timedelta(seconds=10))
    await heart.beat()
    (tenure,) = heart.roster.running
    assert tenure.deadline == clock.monotonic() + LEASE.total_seconds()


async def test_the_worker_is_seen_while_it_beats_and_gone_when_it_stops(heart: Heart, still: Docket):
    running = asyncio.create_task(heart.pulse.run(asyncio.get_running_loop()))
    await soon(heart.heard.get())
    assert [each.name for each in await still.workers()] == ["worker"]
    heart.pulse.stop()
    await soon(running)
    assert await still.workers() == []


async def test_a_goodbye_that_fails_is_no_trouble(heart: Heart, faults: Faults):
    running = asyncio.create_task(heart.pulse.run(asyncio.get_running_loop()))
    await soon(heart.heard.get())
    faults.fail("heartbeat", 100)
    heart.pulse.stop()
    await soon(running)


async def test_a_lost_run_is_heard_of(heart: Heart, still: Docket, clock: VirtualClock):
    claim = await heart.take("k", clock)
    clock.jump(2 * LEASE)
    await still.engine.claim("another", 1, lease=LEASE)
    assert (await heart.beat()).lost == {claim.id}


async def test_a_run_that_was_asked_to_stop_is_heard_of(heart: Heart, still: Docket, clock: VirtualClock):
    claim = await heart.take("k", clock)
    await still.cancel("k")
    assert (await heart.beat()).stopping == {claim.id}


async def test_a_lease_that_lapsed_but_was_not_taken_over_is_renewed(heart: Heart, still: Docket, clock: VirtualClock):
    await heart.take("k", clock)
    clock.jump(2 * LEASE)
    assert (await heart.beat()).lost == frozenset()
    assert (await run_of(still, key="k")).lease_until == clock.now() + LEASE


# Trouble


async def beating_in_vain(docket: Docket, faults: Faults) -> Heart:
    """A heart whose heartbeats all fail, on a clock that runs away while it tries."""
    clock = HastyClock()
    heart = Heart(docket, clock)
    docket.clock = clock
    await heart.take("k", clock)
    faults.fail("heartbeat", 10_000)
    return heart


async def test_a_body_is_stopped_before_its_lease_could_lapse(still: Docket, faults: Faults):
    heart = await beating_in_vain(still, faults)
    clock: Any = still.clock
    began = clock.monotonic()
    running = asyncio.create_task(heart.pulse.run(asyncio.get_running_loop()))
    await soon(heart.roster.is_idle.wait())
    assert heart.stopped == [("k", Reason.LOST)]
    assert clock.monotonic() - began >= LEASE.total_seconds() / 2
    heart.pulse.stop()
    await soon(running)


async def test_a_failed_heartbeat_is_tried_again_sooner(still: Docket, faults: Faults):
    heart = await beating_in_vain(still, faults)
    clock: Any = still.clock
    running = asyncio.create_task(heart.pulse.run(asyncio.get_running_loop()))
    await faults.called("heartbeat", 3)
    assert max(clock.naps) <= LEASE / 20
    heart.pulse.stop()
    await soon(running)
    heart.release.set()
    await soon(heart.roster.is_idle.wait())


async def test_a_worker_with_nothing_to_lose_says_once_that_the_store_does_not_hear_it(
    still: Docket, faults: Faults, caplog: pytest.LogCaptureFixture
):
    heart = Heart(still, HastyClock())
    faults.fail("heartbeat", 10_000)
    running = asyncio.create_task(heart.pulse.run(asyncio.get_running_loop()))
    await faults.called("heartbeat", 3)
    heart.pulse.stop()
    await soon(running)
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(said) == 1
    assert said[0].startswith("the store does not hear from this worker, trying again: ")


async def test_a_few_failed_heartbeats_cost_nothing(docket: Docket, worker: Worker):
    started, release = asyncio.Event(), asyncio.Event()

    async def hold() -> str:
        started.set()
        await release.wait()
        return "held"

    faults = behind_a_door(docket)
    execution = await docket.add(hold)()
    async with at_work(worker):
        await soon(started.wait())
        faults.fail("heartbeat", 3)
        await faults.called("heartbeat", 5)
        release.set()
        assert await soon(execution.get_result()) == "held"


async def test_a_store_that_is_out_of_reach_when_the_pulse_begins_is_waited_for(docket: Docket, worker: Worker):
    faults = behind_a_door(docket)
    faults.fail("open", 3)

    async def wait() -> str:
        await faults.called("heartbeat")
        return "waited"

    execution = await docket.add(wait)()
    await finish(worker)
    assert await execution.get_result() == "waited"
    assert faults.left["open"] == 0


async def test_a_pulse_that_never_reached_its_store_can_be_stopped(heart: Heart, faults: Faults):
    faults.fail("open", 10_000)
    running = asyncio.create_task(heart.pulse.run(asyncio.get_running_loop()))
    await eventually(lambda: faults.left["open"] < 10_000)
    heart.pulse.stop()
    await soon(running)
    assert faults.calls["heartbeat"] == 0


# In its thread


async def test_a_body_that_blocks_the_event_loop_for_longer_than_its_lease_is_not_started_twice(
    docket: Docket, make_worker: MakeWorker
):
    lease = timedelta(seconds=6)
    claimed: list[str] = []
    blocked, over = threading.Event(), threading.Event()

    async def block() -> None:
        blocked.set()
        time.sleep(1.5 * lease.total_seconds())
        over.set()

    def steal() -> None:
        async def claim() -> None:
            async with Docket("tests", docket.url) as thief:
                blocked.wait(PATIENCE)
                while not over.wait(0.02):
                    found = await thief.engine.claim("thief", 1, lease=lease)
                    claimed.extend(each.key for each in found.claims)

        asyncio.run(claim())

    thread = threading.Thread(target=steal)
    thread.start()
    await docket.add(block, key="k")()
    await finish(make_worker(redelivery_timeout=lease))
    thread.join()
    run = await run_of(docket, key="k")
    assert claimed == []
    assert (run.state, run.crashes) == (State.COMPLETED, 0)


async def test_a_thread_that_is_stopped_before_it_has_begun_ends(heart: Heart):
    thread = PulseThread(heart.pulse, heart.roster)
    thread.stop()
    running = asyncio.create_task(thread.run())
    done, _ = await asyncio.wait([running], timeout=PATIENCE)
    thread.stop()
    await soon(running)
    assert done


async def test_whoever_blocks_the_event_loop_is_named(
    docket: Docket, worker: Worker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(module, "BLOCKED_AFTER", 0.1)
    is_named = threading.Event()

    class Hears(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "in block" in record.getMessage():
                is_named.set()

    async def block() -> None:
        is_named.wait(10)

    await docket.add(block, key="the culprit")()
    logging.getLogger("dovetail.worker").addHandler(hears := Hears())
    await finish(worker)
    logging.getLogger("dovetail.worker").removeHandler(hears)
    warnings = [record.getMessage() for record in caplog.records if "is blocked at" in record.getMessage()]
    (warning,) = [each for each in warnings if "in block" in each]
    assert "'the culprit'" in warning
    assert "test_pulse.py" in warning
    assert "the event loop turns again" in caplog.text


async def test_the_heartbeat_tells_who_blocks_the_event_loop(
    docket: Docket, worker: Worker, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "BLOCKED_AFTER", 0.05)
    told: list[Blockage | None] = []
    is_told = threading.Event()
    say = Crew._say  # pyright: ignore[reportPrivateUsage]

    def noted(crew: Crew) -> WorkerInfo:
        info = say(crew)
        told.append(info.blocked)
        if info.blocked is not None:
            is_told.set()
        return info

    monkeypatch.setattr(Crew, "_say", noted)

    async def block() -> None:
        is_told.wait(10)

    await docket.add(block, key="the culprit")()
    await finish(worker)
    (blocked,) = {each for each in told if each is not None and each.key == "the culprit"}
    assert "test_pulse.py:" in blocked.where
    assert blocked.where.endswith(" in block")
    assert told[-1] is None


async def test_what_goes_wrong_in_the_thread_ends_the_worker(docket: Docket, worker: Worker):
    faults = behind_a_door(docket)
    faults.fail("heartbeat", 100, ValueError("a bug of ours"))
    with pytest.raises(ExceptionGroup) as caught:
        await soon(worker.run_forever())
    assert caught.group_contains(ValueError, match="a bug of ours")
