"""Draining a docket."""

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from dovetail import CurrentDocket, Docket, ExecutionFailed, Perpetual, Retry, Shared, UsageError, Worker
from dovetail.clock import VirtualClock
from dovetail.model import Hold, HoldKind
from dovetail.testing import assert_no_tasks, assert_scheduled, assert_task_count, drain

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.fixture
def ran() -> list[Any]:
    return []


@pytest.fixture(params=["still", "docket"])
def either(request: pytest.FixtureRequest) -> Docket:
    """A docket on a clock that stands still, and one on the host's."""
    return request.getfixturevalue(request.param)


async def test_everything_that_is_due_runs(either: Docket, ran: list[Any]) -> None:
    async def note(number: int) -> None:
        ran.append(number)

    for number in range(20):
        await either.add(note)(number)
    assert await drain(either) == 20
    assert sorted(ran) == list(range(20))
    await assert_no_tasks(either)


async def test_nothing_to_do_is_done_at_once(either: Docket) -> None:
    assert await drain(either) == 0


async def test_what_the_runs_schedule_runs_as_well(either: Docket, ran: list[Any]) -> None:
    async def count_down(number: int, docket: Docket = CurrentDocket()) -> None:
        ran.append(number)
        if number:
            await docket.add(count_down)(number - 1)

    await either.add(count_down)(3)
    assert await drain(either) == 4
    assert ran == [3, 2, 1, 0]


async def test_plain_functions_run(either: Docket, ran: list[Any]) -> None:
    def note() -> None:
        ran.append(threading.current_thread().name)

    await either.add(note)()
    await drain(either)
    assert len(ran) == 1


async def test_what_is_due_later_stays(either: Docket, clock: VirtualClock) -> None:
    async def later() -> None: ...

    await either.add(later, when=clock.now() + HOUR)()
    assert await drain(either) == 0
    await assert_scheduled(either, later)


async def test_every_attempt_counts(either: Docket) -> None:
    async def flaky(retry: Retry = Retry(attempts=3)) -> None:
        raise ValueError("always")

    await either.add(flaky)()
    assert await drain(either) == 3


async def test_time_moves_to_what_is_due_later(still: Docket, clock: VirtualClock, ran: list[Any]) -> None:
    start = clock.now()

    async def later(retry: Retry = Retry(attempts=2, delay=HOUR)) -> None:
        ran.append(clock.now() - start)
        raise ValueError("once more")

    await still.add(later, when=start + DAY)()
    assert await drain(still, future=True) == 2
    assert ran == [DAY, DAY + HOUR]
    await assert_no_tasks(still)
    assert clock.now() == start + DAY + HOUR


async def test_only_a_virtual_clock_can_be_moved(docket: Docket) -> None:
    with pytest.raises(UsageError, match="VirtualClock"):
        await drain(docket, future=True)


async def test_a_failure_does_not_stop_it_unless_asked(either: Docket) -> None:
    async def fail() -> None:
        raise LookupError("no such thing")

    await either.add(fail)()
    await drain(either)
    await either.add(fail)()
    with pytest.raises(LookupError, match="no such thing") as caught:
        await drain(either, raise_errors=True)
    assert isinstance(caught.value, ExecutionFailed)


async def test_a_failure_is_raised_though_no_record_is_kept(url: str, clock: VirtualClock) -> None:
    async def fail() -> None:
        raise LookupError("no such thing")

    async with Docket("tests", url, execution_ttl=timedelta(), clock=clock) as docket:
        await docket.add(fail)()
        with pytest.raises(LookupError, match="no such thing"):
            await drain(docket, raise_errors=True)


async def test_a_retry_that_succeeds_is_no_failure(either: Docket) -> None:
    async def flaky(retry: Retry = Retry(attempts=2)) -> None:
        if retry.attempt == 1:
            raise ValueError("the first")

    await either.add(flaky)()
    assert await drain(either, raise_errors=True) == 2


async def test_a_perpetual_task_runs_once_and_its_next_run_stays(still: Docket) -> None:
    async def tick(perpetual: Perpetual = Perpetual(every=HOUR)) -> None: ...

    await still.add(tick)()
    assert await drain(still) == 1
    await assert_task_count(still, tick, count=1)


@pytest.mark.parametrize("every", [timedelta(), HOUR])
async def test_a_perpetual_task_ends_in_a_clear_error(still: Docket, every: timedelta) -> None:
    async def tick(perpetual: Perpetual = Perpetual(every=every)) -> None: ...

    await still.add(tick, key="tick")()
    with pytest.raises(UsageError, match="not empty after 10 attempts; most often ran 'tick' 11 times"):
        await drain(still, future=True, at_most=10)


async def test_a_run_that_cannot_start_is_named(still: Docket) -> None:
    async def held() -> None: ...

    await still.engine.hold([Hold(HoldKind.PAUSE, queue="default")])
    await still.add(held, key="held")()
    with pytest.raises(UsageError, match=r"'held' \(held, queued\)"):
        await drain(still, future=True)


async def test_a_worker_of_the_caller_can_do_it(still: Docket, ran: list[Any]) -> None:
    async def connection() -> str:
        return "shared"

    async def note(value: str = Shared(connection)) -> None:
        ran.append(value)

    await still.add(note)()
    await still.add(note)()
    async with Worker(still, name="mine") as worker:
        await drain(still, worker=worker)
    assert ran == ["shared", "shared"]


async def test_beside_a_worker_that_runs_already(still: Docket, ran: list[Any]) -> None:
    async def note() -> None:
        ran.append("ran")

    async with Worker(still, name="other") as worker:
        running = asyncio.create_task(worker.run_forever())
        await still.add(note)()
        await drain(still)
        assert ran == ["ran"]
        worker.stop()
        await running


async def test_automatic_tasks_are_not_started(still: Docket, ran: list[Any]) -> None:
    async def tick(perpetual: Perpetual = Perpetual(every=HOUR, automatic=True)) -> None:
        ran.append("ran")

    still.register(tick)
    assert await drain(still) == 0
    assert ran == []


async def test_a_bound_has_to_be_a_number(still: Docket) -> None:
    with pytest.raises(ValueError, match="at_most"):
        await drain(still, at_most=0)
