"""Failures: given up, put off, tried again by the kind of error; and the dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

import pytest

from dovetail import (
    CannotRetry,
    Docket,
    Execution,
    ExecutionFailed,
    ExecutionState,
    ExponentialRetry,
    Fail,
    Perpetual,
    Retry,
    Snooze,
    UnknownRun,
    UnknownTask,
    Worker,
    result_of,
)
from dovetail.clock import VirtualClock, from_microseconds
from dovetail.errors import InvalidArgument, InvalidType
from dovetail.model import Requeue, State
from dovetail.worker.roster import Reason
from tests.by_hand import ByHand, finish, run_of
from tests.conftest import MakeWorker

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
ran: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


# Giving up


async def test_a_run_that_gives_up_is_not_tried_again(docket: Docket, worker: Worker) -> None:
    async def give_up(retry: Retry = Retry(attempts=5)) -> None:
        ran.append(retry.attempt)
        raise Fail("there is no such account")

    execution = await docket.add(give_up)()
    await finish(worker)
    assert ran == [1]
    with pytest.raises(ExecutionFailed, match="Fail: there is no such account"):
        await execution.get_result()


async def test_one_of_a_task_group_gives_up_for_all(docket: Docket, worker: Worker) -> None:
    async def member() -> None:
        raise Fail("no")

    async def give_up(retry: Retry = Retry(attempts=5)) -> None:
        ran.append(retry.attempt)
        async with asyncio.TaskGroup() as group:
            group.create_task(member())

    await docket.add(give_up)()
    await finish(worker)
    assert ran == [1]


async def test_a_perpetual_task_that_gives_up_goes_on(docket: Docket, worker: Worker) -> None:
    async def give_up(perpetual: Perpetual = Perpetual(), retry: Retry = Retry(attempts=3)) -> None:
        ran.append(retry.attempt)
        if len(ran) == 3:
            perpetual.cancel()
        raise Fail("not today")

    await docket.add(give_up, key="k")()
    await finish(worker)
    assert ran == [1, 1, 1]


# Putting off


@pytest.mark.parametrize("delay", [SECOND, timedelta()])
async def test_a_snooze_costs_no_attempt_and_is_no_failure(
    by_hand: ByHand, still: Docket, clock: VirtualClock, delay: timedelta
) -> None:
    async def wait_for_it(retry: Retry = Retry(attempts=1)) -> str:
        ran.append(retry.attempt)
        if len(ran) < 4:
            raise Snooze(delay)
        return "done"

    execution = await still.add(wait_for_it)()
    for _ in range(3):
        run = await by_hand.step()
        assert (run.attempt, run.errors, run.error) == (1, (), None)
        clock.jump(delay)
    assert (await by_hand.step()).state is State.COMPLETED
    assert await execution.get_result() == "done"
    assert ran == [1, 1, 1, 1]


async def test_a_retry_may_be_snoozed_until_a_time(by_hand: ByHand, still: Docket, clock: VirtualClock) -> None:
    until = from_microseconds(clock.microseconds()) + MINUTE

    async def wait_for_it(retry: Retry = Retry(attempts=2)) -> None:
        retry.snooze(until)

    await still.add(wait_for_it)()
    run = await by_hand.step()
    assert (run.state, run.due, run.attempt) == (State.SCHEDULED, until, 1)


async def test_a_worker_that_stops_lets_a_run_snooze(by_hand: ByHand, still: Docket) -> None:
    started = asyncio.Event()

    async def wait_for_it() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise Snooze(MINUTE)

    await still.add(wait_for_it)()
    verdict = await by_hand.attempt(stop_for=Reason.SHUTDOWN, once=started)
    assert isinstance(verdict, Requeue)
    assert (verdict.attempt, verdict.due, verdict.failure) == (1, MINUTE, None)


@pytest.mark.parametrize("delay", [-SECOND, 5, None, "tomorrow"])
def test_a_snooze_needs_a_delay_or_a_time(delay: Any) -> None:
    with pytest.raises((InvalidArgument, InvalidType), match="delay must be"):
        Snooze(delay)


# By the kind of error


def flaky(retry: Retry, error: BaseException) -> Callable[..., Any]:
    async def fail(retry: Retry = retry) -> None:
        ran.append(retry.attempt)
        raise error

    return fail


@pytest.mark.parametrize(
    ("retry", "error", "attempts"),
    [
        (Retry(3, on=ConnectionError), ConnectionResetError("x"), 3),
        (Retry(3, on=(ConnectionError, TimeoutError)), TimeoutError("x"), 3),
        (Retry(3, on=(ConnectionError,)), ValueError("x"), 1),
        (Retry(3, not_on=(ValueError,)), UnicodeError("x"), 1),
        (Retry(3, not_on=(ValueError,)), KeyError("x"), 3),
        (Retry(3, on=OSError, not_on=FileNotFoundError), FileNotFoundError("x"), 1),
        (Retry(3, on=OSError, not_on=FileNotFoundError), PermissionError("x"), 3),
        (Retry(3, on=OSError), ExceptionGroup("x", [ValueError(), ExceptionGroup("y", [OSError()])]), 3),
        (Retry(3, not_on=OSError), ExceptionGroup("x", [ValueError(), OSError()]), 1),
        (ExponentialRetry(3, timedelta(), on=OSError), ValueError("x"), 1),
        (ExponentialRetry(3, timedelta(), on=OSError), OSError("x"), 3),
    ],
)
async def test_a_retry_may_go_by_the_kind_of_error(
    by_hand: ByHand, still: Docket, retry: Retry, error: BaseException, attempts: int
) -> None:
    await still.add(flaky(retry, error))()
    await by_hand.step_through()
    assert ran == list(range(1, attempts + 1))


async def test_a_retry_that_the_body_asks_for_goes_by_no_kind(docket: Docket, worker: Worker) -> None:
    async def ask(retry: Retry = Retry(attempts=2, on=(ConnectionError,))) -> None:
        ran.append(retry.attempt)
        retry.after(timedelta())

    await docket.add(ask)()
    await finish(worker)
    assert ran == [1, 2]


async def test_a_retry_by_the_kind_of_error_may_stand_in_metadata(docket: Docket, worker: Worker) -> None:
    async def fail(number: Annotated[int, Retry(3, on=OSError)]) -> None:
        ran.append(number)
        raise OSError

    await docket.add(fail)(1)
    await finish(worker)
    assert ran == [1, 1, 1]


@pytest.mark.parametrize("kinds", [5, "ValueError", (ValueError, 5), ValueError("x"), [ValueError]])
@pytest.mark.parametrize("name", ["on", "not_on"])
def test_what_is_no_exception_type_is_refused(name: str, kinds: Any) -> None:
    with pytest.raises(InvalidType, match=rf"^{name} must be exception types"):
        Retry(**{name: kinds})


def test_a_retry_on_nothing_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="on names no error"):
        Retry(on=())


# Dead letters


async def breaks(number: int, text: str = "") -> None:
    raise ValueError(f"number {number} {text}".strip())


async def works(number: int) -> int:
    ran.append(number)
    return number


@pytest.fixture
async def letters(still: Docket, by_hand: ByHand, clock: VirtualClock) -> list[Execution[None]]:
    """Five runs that failed, a minute apart."""
    executions: list[Execution[None]] = []
    for number in range(5):
        executions.append(await still.add(breaks, key=f"{number}", queue=f"q{number % 2}", group=f"g{number}")(number))
        await by_hand.step()
        clock.jump(MINUTE)
    return executions


def keys(executions: Any) -> list[str]:
    return [each.key for each in executions]


async def test_what_failed_is_listed_by_what_it_has_in_common(still: Docket, letters: list[Execution[None]]) -> None:
    await still.add(works, key="waiting")(1)
    assert keys(await still.failed()) == ["4", "3", "2", "1", "0"]
    assert keys(await still.failed(queue="q1")) == ["3", "1"]
    assert keys(await still.failed(group="g2")) == ["2"]
    assert keys(await still.failed(error="number 4")) == ["4"]
    assert keys(await still.failed(task=breaks, queue="q0")) == ["4", "2", "0"]
    assert keys(await still.failed(task="works")) == []
    first = (await still.failed(error="number 0")).items[0]
    assert (first.state, first.args, first.error) == (ExecutionState.FAILED, (0,), "ValueError: number 0")


async def test_what_failed_is_found_by_when(still: Docket, letters: list[Execution[None]]) -> None:
    times = [(await run_of(still, key=each.key)).finished for each in letters]
    assert keys(await still.failed(since=times[3])) == ["4", "3"]
    assert keys(await still.failed(before=times[1])) == ["0"]
    assert keys(await still.failed(since=times[1], before=times[3])) == ["2", "1"]
    assert keys(await still.failed(since=times[3], limit=1)) == ["4"]


async def test_what_failed_comes_in_pages(still: Docket, letters: list[Execution[None]]) -> None:
    seen: list[list[str]] = []
    cursor: str | None = None
    while True:
        page = await still.failed(limit=2, cursor=cursor)
        seen.append(keys(page))
        if (cursor := page.cursor) is None:
            break
    assert [key for page in seen for key in page] == ["4", "3", "2", "1", "0"]
    assert all(len(page) <= 2 for page in seen)


async def test_a_page_without_any_is_the_last(still: Docket, letters: list[Execution[None]]) -> None:
    since = (await run_of(still, key="0")).finished
    page = await still.failed(before=since + timedelta(seconds=1) if since else None, limit=1)
    assert keys(page) == ["0"]


async def test_a_run_that_failed_goes_again(still: Docket, by_hand: ByHand, letters: list[Execution[None]]) -> None:
    again = await still.retry("3")
    assert (again.id, again.state, again.attempt, again.error) == (letters[3].id, ExecutionState.QUEUED, 1, None)
    await still.retry(letters[1])
    assert keys(await still.failed()) == ["4", "2", "0"]
    await by_hand.step_through()
    assert len(await still.failed()) == 5


async def test_a_run_goes_again_with_other_arguments(still: Docket, by_hand: ByHand) -> None:
    async def picky(number: int, *, text: str = "") -> str:
        if number < 0:
            raise ValueError("negative")
        return f"{number}{text}"

    execution = await still.add(picky, key="k")(-1)
    await by_hand.step()
    again = await still.retry(execution, args=(1,), kwargs={"text": "!"})
    assert (again.args, again.kwargs) == ((1,), {"text": "!"})
    await by_hand.step()
    assert await again.get_result() == "1!"


async def test_all_that_failed_goes_again(still: Docket, by_hand: ByHand, letters: list[Execution[None]]) -> None:
    assert await still.retry_failed(queue="q1") == 2
    assert await still.retry_failed(error="nothing like it") == 0
    assert keys(await still.failed()) == ["4", "2", "0"]
    assert await still.retry_failed(task=breaks, kwargs={"number": 9, "text": "again"}) == 3
    await by_hand.step_through()
    assert len(await still.failed(error="number 9 again")) == 3


async def test_a_run_whose_key_is_taken_harms_no_other(still: Docket, letters: list[Execution[None]]) -> None:
    await still.add(works, key="2")(1)
    assert await still.retry_failed() == 4
    with pytest.raises(CannotRetry, match="'2' is queued; only one that is over"):
        await still.retry("2")


async def test_what_a_failure_took_down_comes_back_with_it(docket: Docket, make_worker: MakeWorker) -> None:
    async def picky(number: int) -> int:
        if number < 0:
            raise ValueError("negative")
        return number

    first = await docket.add(picky)(-1)
    second = await docket.add(works)(result_of(first))
    await finish(make_worker())
    assert ran == []
    await docket.retry(first, args=[7])
    await second.sync()
    assert second.state is ExecutionState.WAITING
    await finish(make_worker())
    assert await second.get_result() == 7


async def test_an_execution_means_its_own_run(still: Docket, by_hand: ByHand, letters: list[Execution[None]]) -> None:
    newer = await still.add(works, key="1")(1)
    await by_hand.step()
    again = await still.retry(letters[1])
    await newer.sync()
    assert (again.id, newer.state) == (letters[1].id, ExecutionState.COMPLETED)
    with pytest.raises(CannotRetry, match="'1' cannot be run again: another run holds its key"):
        await still.retry(newer)


async def test_what_cannot_go_again_says_why(still: Docket, by_hand: ByHand, letters: list[Execution[None]]) -> None:
    with pytest.raises(UnknownRun, match="no record of a run 'nobody'"):
        await still.retry("nobody")
    with pytest.raises(InvalidType, match="key must be text"):
        await still.retry(5)  # type: ignore[arg-type]
    with pytest.raises(InvalidType, match="args must be the positional arguments as a tuple, not 'ab'"):
        await still.retry("1", args="ab")
    with pytest.raises(InvalidType, match="kwargs must be the named arguments as a dict"):
        await still.retry("1", kwargs=[1])  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="waits for no other runs than before"):
        await still.retry("1", args=([await still.add(works)(1)],))
    with pytest.raises(InvalidArgument, match="say which with task="):
        await still.retry_failed(args=(1,))
    with pytest.raises(UnknownTask, match="'nothing' is not registered"):
        await still.retry_failed(task="nothing", args=(1,))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": ""}, "task must not be empty"),
        ({"task": 5}, "task must be a function, not int 5"),
        ({"queue": 5}, "queue must be text"),
        ({"group": ""}, "group must not be empty"),
        ({"error": 5}, "error must be text"),
        ({"since": "yesterday"}, "since must be a datetime"),
        ({"before": "yesterday"}, "before must be a datetime"),
        ({"since": from_microseconds(2), "before": from_microseconds(1)}, "since must be before before"),
    ],
)
async def test_a_filter_that_makes_no_sense_is_refused(docket: Docket, arguments: Any, message: str) -> None:
    for ask in (docket.failed, docket.retry_failed):
        with pytest.raises((InvalidArgument, InvalidType), match=message):
            await ask(**arguments)


@pytest.mark.parametrize("paging", [{"limit": 0}, {"limit": "many"}, {"cursor": 5}])
async def test_a_page_that_makes_no_sense_is_refused(docket: Docket, paging: Any) -> None:
    with pytest.raises((InvalidArgument, InvalidType), match=r"limit|cursor"):
        await docket.failed(**paging)
