"""The virtual clock: it moves when it is told to, and everything happens at its time on the way."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dovetail import Cron, CurrentExecution, Docket, Execution, Perpetual, Retry, Worker
from dovetail.clock import SystemClock, VirtualClock
from dovetail.clock import virtual as virtual
from tests.waiting import PATIENCE, soon

SECOND, MINUTE, HOUR, DAY = (timedelta(seconds=count) for count in (1, 60, 3600, 86400))
START = datetime(2030, 1, 1, tzinfo=UTC)


class Ran(list[Any]):
    """What ran, and when."""


@pytest.fixture
def ran() -> Ran:
    return Ran()


@pytest.fixture
async def working(still: Docket) -> AsyncIterator[Worker]:
    """A worker in the background of the docket whose time stands still."""
    async with Worker(still, name="worker") as worker:
        running = asyncio.create_task(worker.run_forever())
        yield worker
        worker.stop()
        await running


# Sleepers


async def test_time_stands_still_until_it_is_moved(clock: VirtualClock) -> None:
    before = clock.now()
    await clock.settle()
    assert clock.now() == before


async def test_sleepers_wake_in_the_order_of_their_time_and_at_their_time(clock: VirtualClock) -> None:
    woken: list[timedelta] = []

    async def sleeper(duration: timedelta) -> None:
        await clock.sleep(duration)
        woken.append(clock.now() - START)

    async with asyncio.TaskGroup() as group:
        for duration in (HOUR, SECOND, MINUTE):
            group.create_task(sleeper(duration))
        await clock.advance(MINUTE)
        assert woken == [SECOND, MINUTE]
        await clock.advance_until(START + DAY)
        assert woken == [SECOND, MINUTE, HOUR]
    assert clock.now() == START + DAY


async def test_who_sleeps_again_on_the_way_is_woken_again(clock: VirtualClock) -> None:
    woken: list[timedelta] = []

    async def walk() -> None:
        for _ in range(5):
            await clock.sleep(MINUTE)
            woken.append(clock.now() - START)

    async with asyncio.TaskGroup() as group:
        group.create_task(walk())
        await clock.advance(HOUR)
    assert woken == [MINUTE * n for n in range(1, 6)]


async def test_a_wait_ends_with_its_event_or_its_time(clock: VirtualClock) -> None:
    event = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        timed = group.create_task(clock.wait(event, MINUTE))
        untimed = group.create_task(clock.wait(event, None))
        await clock.advance(MINUTE)
        assert (timed.done(), untimed.done()) == (True, False)
        event.set()


async def test_a_sleeper_that_was_cancelled_holds_nobody_up(clock: VirtualClock) -> None:
    sleeping = asyncio.create_task(clock.sleep(MINUTE))
    await clock.settle()
    sleeping.cancel()
    await clock.settle()
    assert await clock.advance_to_next() is False
    assert clock.now() == START


async def test_the_next_stop_is_where_the_first_sleep_ends(clock: VirtualClock) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(clock.sleep(HOUR))
        assert await clock.advance_to_next() is True
    assert clock.now() == START + HOUR


async def test_time_stops_for_routine_once_and_then_wakes_it_at_the_next_stop(clock: VirtualClock) -> None:
    rounds: list[timedelta] = []

    async def routine() -> None:
        while True:
            await clock.rest(None, SECOND)
            rounds.append(clock.now() - START)

    running = asyncio.create_task(routine())
    async with asyncio.TaskGroup() as group:
        group.create_task(clock.sleep(HOUR))
        await clock.advance(DAY)
    running.cancel()
    assert rounds == [SECOND, HOUR, DAY]


async def test_a_rest_ends_with_its_event_and_stops_the_time_at_its_end(clock: VirtualClock) -> None:
    event = asyncio.Event()
    ended: list[timedelta] = []

    async def rest() -> None:
        await clock.rest(event, 10 * HOUR, HOUR)
        ended.append(clock.now() - START)

    async with asyncio.TaskGroup() as group:
        group.create_task(rest())
        await clock.advance(2 * HOUR)
        assert ended == [HOUR]
        group.create_task(rest())
        await clock.settle()
        event.set()
        await clock.settle()
        assert ended == [HOUR, 2 * HOUR]


async def test_who_rests_first_is_done_before_anyone_else_is_woken(clock: VirtualClock) -> None:
    order: list[str] = []

    async def renew() -> None:
        await clock.rest(None, SECOND, first=True)
        for _ in range(10):
            await asyncio.sleep(0)
        order.append("renewed")

    async def look() -> None:
        await clock.rest(None, SECOND)
        order.append("looked")

    async with asyncio.TaskGroup() as group:
        group.create_task(look())
        group.create_task(renew())
        await clock.advance(MINUTE)
    assert order == ["renewed", "looked"]


async def test_the_system_clock_rests_for_the_shorter_time() -> None:
    system = SystemClock()
    event = asyncio.Event()
    await soon(system.rest(None, HOUR, timedelta(milliseconds=1)))
    await soon(system.rest(event, timedelta(milliseconds=1)))
    event.set()
    await soon(system.rest(event, HOUR))


# Moving


async def test_time_cannot_go_back(clock: VirtualClock) -> None:
    with pytest.raises(ValueError, match="cannot go back"):
        await clock.advance(-SECOND)


async def test_two_cannot_move_the_clock_at_once(clock: VirtualClock) -> None:
    async def move_too() -> None:
        await clock.advance(HOUR)

    async with asyncio.TaskGroup() as group:
        other = group.create_task(move_too())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="being moved already"):
            await clock.settle()
    assert other.done()


async def test_work_in_a_thread_is_waited_for(clock: VirtualClock) -> None:
    done: list[str] = []
    loop = asyncio.get_running_loop()
    proceed = threading.Event()

    def work() -> None:
        proceed.wait(PATIENCE)
        loop.call_soon_threadsafe(done.append, "done")
        clock.work_ended()

    clock.work_began()
    threading.Thread(target=work).start()
    loop.call_soon(proceed.set)
    await clock.advance(SECOND)
    assert done == ["done"]


async def test_work_without_end_is_an_error_that_names_the_bodies(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail.clock.virtual.RESTLESS", 0.05)
    clock.work_began()
    with clock.body("stuck"), pytest.raises(RuntimeError, match=r"no end of work .*'stuck'"):
        await clock.advance(SECOND)


async def test_a_perpetual_task_without_a_pause_leaves_time_no_chance(
    still: Docket, clock: VirtualClock, working: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def restless(perpetual: Perpetual = Perpetual()) -> None: ...

    monkeypatch.setattr("dovetail.clock.virtual.RESTLESS", 0.2)
    await still.add(restless, key="restless")()
    with pytest.raises(RuntimeError, match="no chance to move"):
        await clock.advance(SECOND)


async def test_a_loop_that_hides_its_queue_is_given_turns(
    still: Docket, clock: VirtualClock, working: Worker, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Shy:
        """A loop without the attribute that shows what is ready."""

        def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
            self.create_future = loop.create_future

    async def tick(perpetual: Perpetual = Perpetual(every=HOUR)) -> None:
        ran.append(clock.now() - START)

    loop = asyncio.get_running_loop()
    await still.add(tick)()
    real = asyncio.get_running_loop
    monkeypatch.setattr(virtual, "asyncio", _Asyncio(lambda: Shy(loop) if real() is loop else real()))
    await clock.advance(3 * HOUR)
    assert ran == [timedelta(), HOUR, 2 * HOUR, 3 * HOUR]


class _Asyncio:
    """asyncio, with another answer to which loop is running."""

    def __init__(self, get_running_loop: Any) -> None:
        self.get_running_loop = get_running_loop

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)


# A worker on the clock


async def test_a_month_of_hours_runs_each_at_its_time(
    still: Docket, clock: VirtualClock, working: Worker, ran: Ran
) -> None:
    async def tick(perpetual: Perpetual = Perpetual(every=HOUR), execution: Execution = CurrentExecution()) -> None:
        ran.append((clock.now(), execution.when))

    await still.add(tick, when=START + HOUR)()
    await clock.advance(31 * DAY)
    assert ran == [(START + n * HOUR, START + n * HOUR) for n in range(1, 31 * 24 + 1)]


async def test_tasks_that_are_due_at_different_times_run_in_order(
    still: Docket, clock: VirtualClock, working: Worker, ran: Ran
) -> None:
    async def note(name: str) -> None:
        ran.append((name, clock.now() - START))

    for name, due in (("last", DAY), ("first", SECOND), ("second", HOUR)):
        await still.add(note, when=START + due)(name)
    await clock.advance(DAY)
    assert ran == [("first", SECOND), ("second", HOUR), ("last", DAY)]


async def test_what_is_due_later_does_not_run(still: Docket, clock: VirtualClock, working: Worker, ran: Ran) -> None:
    async def note() -> None:
        ran.append(clock.now())

    await still.add(note, when=START + HOUR)()
    await clock.advance(HOUR - timedelta(microseconds=1))
    assert ran == []
    await clock.advance(timedelta(microseconds=1))
    assert ran == [START + HOUR]


async def test_retries_come_after_their_delay(still: Docket, clock: VirtualClock, working: Worker, ran: Ran) -> None:
    async def flaky(retry: Retry = Retry(attempts=3, delay=10 * MINUTE)) -> None:
        ran.append(clock.now() - START)
        raise ValueError("again")

    await still.add(flaky)()
    await clock.advance(DAY)
    assert ran == [timedelta(), 10 * MINUTE, 20 * MINUTE]


async def test_a_plain_function_is_waited_for(still: Docket, clock: VirtualClock, working: Worker, ran: Ran) -> None:
    def tick(perpetual: Perpetual = Perpetual(every=HOUR)) -> None:
        ran.append(clock.now() - START)

    await still.add(tick)()
    await clock.advance(3 * HOUR)
    assert ran == [timedelta(), HOUR, 2 * HOUR, 3 * HOUR]


async def test_a_body_that_awaits_real_time_is_waited_for(
    still: Docket, clock: VirtualClock, working: Worker, ran: Ran
) -> None:
    async def tick(perpetual: Perpetual = Perpetual(every=HOUR)) -> None:
        await asyncio.sleep(0.01)
        ran.append(clock.now() - START)

    await still.add(tick)()
    await clock.advance(3 * HOUR)
    assert ran == [timedelta(), HOUR, 2 * HOUR, 3 * HOUR]


async def test_a_body_that_sleeps_on_the_clock_takes_that_long_and_keeps_its_lease(
    still: Docket, clock: VirtualClock, working: Worker, ran: Ran
) -> None:
    async def nap(execution: Execution = CurrentExecution()) -> None:
        await clock.sleep(10 * MINUTE)
        ran.append((clock.now() - START, execution.redelivered))

    await still.add(nap)()
    await clock.advance(HOUR)
    assert ran == [(10 * MINUTE, False)]


async def test_time_moves_on_without_a_body_that_waits_for_the_test(
    url: str, ran: Ran, caplog: pytest.LogCaptureFixture
) -> None:
    clock = VirtualClock(patience=timedelta(milliseconds=20))
    event = asyncio.Event()

    async def waiting() -> None:
        await event.wait()
        ran.append(clock.now() - START)

    async with Docket("tests", url, clock=clock) as docket, Worker(docket) as worker:
        running = asyncio.create_task(worker.run_forever())
        await docket.add(waiting, key="waits")()
        with caplog.at_level(logging.WARNING, "dovetail.clock"):
            await clock.advance(MINUTE)
        waited_for = [record.message for record in caplog.records if "without 'waits'" in record.message]
        assert len(waited_for) == 1  # not at every stop
        event.set()
        await clock.settle()
        worker.stop()
        await running
    assert ran == [MINUTE]


async def test_a_run_whose_worker_fell_silent_starts_elsewhere_once_its_lease_has_lapsed(
    still: Docket, clock: VirtualClock, working: Worker, ran: Ran
) -> None:
    async def note(execution: Execution = CurrentExecution()) -> None:
        ran.append((clock.now() - START, execution.redelivered))

    await still.add(note, when=START + MINUTE)()
    await clock.advance(SECOND)
    clock.jump(MINUTE)
    claimed = await still.engine.claim("silent", 1, lease=30 * SECOND)
    assert len(claimed.claims) == 1
    await clock.advance(MINUTE)
    assert ran == [(MINUTE + 31 * SECOND, True)]


async def test_a_worker_that_runs_until_all_is_finished_ends_when_time_has_come(
    still: Docket, clock: VirtualClock, ran: Ran
) -> None:
    async def note() -> None:
        ran.append(clock.now() - START)

    await still.add(note, when=START + DAY)()
    async with Worker(still) as worker:
        running = asyncio.create_task(worker.run_until_finished())
        await clock.advance(DAY)
        assert ran == [DAY]
        assert running.done()


async def test_an_automatic_task_that_ended_itself_comes_back_on_the_way(
    still: Docket, clock: VirtualClock, ran: Ran
) -> None:
    async def once(cron: Cron = Cron("0 * * * *")) -> None:
        ran.append(clock.now())
        cron.cancel()

    still.register(once)
    async with Worker(still) as worker:
        running = asyncio.create_task(worker.run_forever())
        await clock.advance(DAY)
        worker.stop()
        await running
    assert ran == [START + number * HOUR for number in range(1, 25)]


async def test_an_automatic_task_that_was_stricken_begins_when_it_may(
    still: Docket, clock: VirtualClock, ran: Ran
) -> None:
    async def hourly(perpetual: Perpetual = Perpetual(every=HOUR, automatic=True)) -> None:
        ran.append(clock.now())

    still.register(hourly)
    await still.strike(hourly, until=clock.now() + 5 * HOUR)
    async with Worker(still) as worker:
        running = asyncio.create_task(worker.run_forever())
        await clock.advance(8 * HOUR)
        worker.stop()
        await running
    assert ran == [START + number * HOUR for number in range(5, 9)]
