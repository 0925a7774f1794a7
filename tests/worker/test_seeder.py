"""The seeder: tasks that run unasked are started, and started again should their chain be cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from dovetail import Behavior, Docket, OutcomeUnknown, Perpetual, UsageError, Worker
from dovetail.model import State
from dovetail.worker.seeder import INTERVAL, Seeder
from tests.by_hand import ByHand, at_work, finish, runs_of
from tests.clocks import HastyClock
from tests.faults import Faults, behind_a_door
from tests.waiting import eventually, soon

HOUR = timedelta(hours=1)


async def tick(perpetual: Perpetual = Perpetual(every=HOUR, automatic=True)) -> None: ...


async def not_automatic(perpetual: Perpetual = Perpetual(every=HOUR)) -> None: ...


class Delayed(Behavior):
    """Seeds a run that is due later."""

    def seed(self, now: datetime) -> timedelta | None:
        return timedelta(minutes=5)


@pytest.fixture
def clock() -> HastyClock:
    return HastyClock()


@pytest.fixture
def faults(still: Docket) -> Faults:
    return behind_a_door(still)


def seeder_of(docket: Docket) -> Seeder:
    return Seeder(docket.engine, docket.clock, docket.tasks, docket.drafter, lambda: docket.retention)


@pytest.fixture
def seeder(still: Docket, faults: Faults) -> Seeder:
    still.register(tick)
    still.register(not_automatic)
    return seeder_of(still)


async def live(docket: Docket, key: str) -> list[Any]:
    return [run for run in await runs_of(docket, key) if not run.state.is_terminal]


async def test_an_automatic_task_is_added_under_its_name_without_arguments(still: Docket, seeder: Seeder):
    await seeder.seed()
    execution = await still.get_execution("tick")
    assert execution is not None
    assert (execution.args, execution.kwargs, execution.state) == ((), {}, State.QUEUED)


async def test_a_task_that_is_not_automatic_is_left_alone(still: Docket, seeder: Seeder):
    await seeder.seed()
    assert await still.get_execution("not_automatic") is None


async def test_a_task_may_say_when_its_first_turn_comes(still: Docket, clock: HastyClock):
    async def delayed(behavior: Delayed = Delayed()) -> None: ...

    still.register(delayed)
    await seeder_of(still).seed()
    execution = await still.get_execution("delayed")
    assert execution is not None
    assert execution.when == clock.now() + timedelta(minutes=5)


async def test_a_second_seed_is_kept_out(still: Docket, seeder: Seeder):
    await seeder.seed()
    await seeder.seed()
    assert len(await runs_of(still, "tick")) == 1


async def test_a_live_chain_is_not_touched(still: Docket, seeder: Seeder, by_hand: ByHand, clock: HastyClock):
    await seeder.seed()
    await by_hand.step()
    (before,) = await live(still, "tick")
    clock.jump(timedelta(minutes=10))
    await seeder.seed()
    assert await live(still, "tick") == [before]


async def test_a_running_task_is_not_started_beside_itself(still: Docket, seeder: Seeder, by_hand: ByHand):
    await seeder.seed()
    await by_hand.claim()
    await seeder.seed()
    assert [run.state for run in await runs_of(still, "tick")] == [State.RUNNING]


async def test_chains_that_the_store_has_lost_are_started_again_at_once(docket: Docket):
    docket.register(tick)
    seeder = seeder_of(docket)
    seeding = asyncio.create_task(seeder.run())
    try:
        for _ in range(2):
            seeder.seed_again()
            await eventually(lambda: live(docket, "tick"))
            await docket.clear()
    finally:
        seeding.cancel()


async def test_a_chain_that_was_cleared_is_healed(still: Docket, seeder: Seeder, by_hand: ByHand):
    await seeder.seed()
    await by_hand.step()
    await still.clear()
    assert await live(still, "tick") == []
    await seeder.seed()
    assert len(await live(still, "tick")) == 1


async def test_without_automatic_tasks_nothing_is_asked_of_the_store(still: Docket, faults: Faults):
    await seeder_of(still).seed()
    assert faults.calls["schedule"] == 0


async def test_a_task_registered_late_is_seeded_the_next_time(still: Docket, faults: Faults):
    seeder = seeder_of(still)
    await seeder.seed()
    still.register(tick)
    await seeder.seed()
    assert await still.get_execution("tick") is not None


# Again and again


@pytest.fixture
async def tending(seeder: Seeder) -> AsyncIterator[Seeder]:
    running = asyncio.create_task(seeder.run())
    yield seeder
    running.cancel()
    await asyncio.wait([running])
    if not running.cancelled():
        running.result()


@pytest.mark.usefixtures("tending")
async def test_the_seeder_looks_again_every_minute(still: Docket, faults: Faults, clock: HastyClock):
    await faults.called("schedule", 3)
    assert set(clock.naps) == {INTERVAL}
    assert len(await live(still, "tick")) == 1


@pytest.mark.usefixtures("tending")
@pytest.mark.parametrize("error", [None, OutcomeUnknown("who knows")])
async def test_trouble_with_the_store_is_waited_out(still: Docket, faults: Faults, error: Exception | None):
    faults.fail("schedule", 2, error)
    await faults.called("schedule", 3)
    assert len(await live(still, "tick")) == 1


# With workers


async def test_two_workers_seed_one_chain(docket: Docket, make_worker: Any):
    calls: list[int] = []
    started = asyncio.Event()

    async def once(perpetual: Perpetual = Perpetual(every=HOUR, automatic=True)) -> None:
        calls.append(1)
        started.set()

    docket.register(once)
    faults = behind_a_door(docket)
    async with at_work(make_worker(name="one"), make_worker(name="two")):
        await soon(started.wait())
        await faults.reached("finish", 1)
    assert calls == [1]
    assert len(await live(docket, "once")) == 1


async def test_a_store_that_is_away_at_the_start_does_not_end_the_worker(docket: Docket, worker: Worker):
    async def once(perpetual: Perpetual = Perpetual(automatic=True)) -> None:
        perpetual.cancel()

    docket.register(once)
    faults = behind_a_door(docket)
    faults.fail("schedule", 1)
    await finish(worker)


class Broken(Behavior):
    """Has no good answer to when its first turn comes."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def seed(self, now: datetime) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("answer", [ValueError("no"), 5, "soon", datetime(2030, 1, 1), timedelta(seconds=-1)])  # noqa: DTZ001
async def test_one_that_cannot_be_seeded_does_not_stop_the_others(
    still: Docket, answer: Any, caplog: pytest.LogCaptureFixture
):
    async def broken(behavior: Broken = Broken(answer)) -> None: ...

    still.register(broken)
    still.register(tick)
    assert await seeder_of(still).seed()
    assert [execution.key for execution in (await still.snapshot()).future] == ["tick"]
    assert "the automatic task 'broken' cannot be started" in caplog.text


def test_an_automatic_task_whose_parameters_nobody_gives_is_refused(still: Docket):
    async def lost(to: str, perpetual: Perpetual = Perpetual(automatic=True)) -> None: ...

    with pytest.raises(UsageError, match=r"task 'lost': Perpetual is automatic, and nobody gives its runs.*'to'"):
        still.register(lost)
