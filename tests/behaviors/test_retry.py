"""Retry: a run that fails goes again."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail import Docket, ExecutionState, ExponentialRetry, PayloadError, Retry, Worker
from dovetail.behaviors import ForcedRetry
from dovetail.clock import VirtualClock
from dovetail.model import Requeue, State
from tests.by_hand import ByHand, finish, run_of

MakeWorker = Callable[..., Worker]
SECOND = timedelta(seconds=1)


def at_attempt(retry: Retry, number: int) -> Retry:
    retry.attempt = number
    return retry


# Trying again


async def test_a_run_is_tried_so_many_times_in_all(docket: Docket, worker: Worker):
    attempts: list[int] = []

    async def fail(retry: Retry = Retry(attempts=3)) -> None:
        attempts.append(retry.attempt)
        raise ValueError("no")

    execution = await docket.add(fail)()
    await finish(worker)
    assert attempts == [1, 2, 3]
    await execution.sync()
    assert (execution.state, execution.error) == (ExecutionState.FAILED, "ValueError: no")


async def test_one_attempt_is_no_retry(docket: Docket, worker: Worker):
    calls: list[int] = []

    async def fail(retry: Retry = Retry()) -> None:
        calls.append(retry.attempt)
        raise ValueError

    await docket.add(fail)()
    await finish(worker)
    assert calls == [1]


async def test_a_run_that_succeeds_in_the_end_has_succeeded(docket: Docket, worker: Worker):
    async def flaky(retry: Retry = Retry(attempts=5)) -> int:
        if retry.attempt < 3:
            raise ValueError("not yet")
        return retry.attempt

    execution = await docket.add(flaky)()
    await finish(worker)
    assert await execution.get_result() == 3


async def test_plain_functions_are_tried_again_too(docket: Docket, worker: Worker):
    def flaky(retry: Retry = Retry(attempts=5)) -> int:
        if retry.attempt < 3:
            raise ValueError("not yet")
        return retry.attempt

    execution = await docket.add(flaky)()
    await finish(worker)
    assert await execution.get_result() == 3


async def test_a_run_that_is_to_be_tried_again_is_not_failed_meanwhile(still: Docket, by_hand: ByHand):
    async def fail(retry: Retry = Retry(attempts=2, delay=SECOND)) -> None:
        raise ValueError("no")

    await still.add(fail)()
    run = await by_hand.step()
    assert run.state is State.SCHEDULED
    assert run.finished is None


async def test_every_attempt_leaves_its_error(still: Docket, by_hand: ByHand):
    async def fail(retry: Retry = Retry(attempts=3)) -> None:
        raise ValueError(f"attempt {retry.attempt}")

    await still.add(fail)()
    await by_hand.step()
    await by_hand.step()
    run = await by_hand.step()
    assert [(line.attempt, line.failure.message) for line in run.errors] == [
        (1, "attempt 1"),
        (2, "attempt 2"),
        (3, "attempt 3"),
    ]
    assert run.state is State.FAILED


async def test_a_retry_without_a_delay_is_queued_at_once(still: Docket, by_hand: ByHand):
    async def fail(retry: Retry = Retry(attempts=2)) -> None:
        raise ValueError

    await still.add(fail)()
    assert (await by_hand.step()).state is State.QUEUED


async def test_a_retry_waits_for_its_delay(still: Docket, by_hand: ByHand, clock: VirtualClock):
    async def fail(retry: Retry = Retry(attempts=2, delay=5 * SECOND)) -> None:
        raise ValueError

    await still.add(fail)()
    run = await by_hand.step()
    assert run.due == clock.now() + 5 * SECOND
    assert (await still.engine.claim("early", 1, lease=SECOND)).claims == []
    clock.jump(5 * SECOND)
    assert (await by_hand.step()).attempt == 2


async def test_a_retry_keeps_its_run_and_key(still: Docket, by_hand: ByHand):
    async def fail(retry: Retry = Retry(attempts=2)) -> None:
        raise ValueError

    execution = await still.add(fail, key="k")()
    first, second = await by_hand.step(), await by_hand.step()
    assert first.id == second.id == execution.id
    assert second.key == "k"


async def test_the_delay_can_be_changed_by_the_body(still: Docket, by_hand: ByHand, clock: VirtualClock):
    async def fail(retry: Retry = Retry(attempts=2)) -> None:
        retry.delay = 7 * SECOND
        raise ValueError

    await still.add(fail)()
    assert (await by_hand.step()).due == clock.now() + 7 * SECOND


async def test_what_a_body_does_to_its_retry_does_not_last(still: Docket, by_hand: ByHand, clock: VirtualClock):
    async def fail(retry: Retry = Retry(attempts=3)) -> None:
        if retry.attempt == 1:
            retry.delay = 7 * SECOND
        raise ValueError

    await still.add(fail)()
    await by_hand.step()
    clock.jump(7 * SECOND)
    assert (await by_hand.step()).due == clock.now()


@pytest.mark.parametrize("forever", [Retry.forever(), Retry(attempts=None), ExponentialRetry.forever()])
def test_without_end_there_is_always_another_attempt(forever: Retry):
    assert forever.attempts is None
    assert isinstance(at_attempt(forever, 10**9).recover(_attempt(10**9), _outcome()), Requeue)


def test_forever_takes_a_delay():
    assert Retry.forever(delay=SECOND).delay == SECOND
    assert ExponentialRetry.forever(delay=SECOND, maximum_delay=2 * SECOND).maximum_delay == 2 * SECOND


async def test_a_task_that_retries_for_ever_succeeds_in_the_end(docket: Docket, worker: Worker):
    async def flaky(retry: Retry = Retry.forever()) -> int:
        if retry.attempt < 20:
            raise ValueError("not yet")
        return retry.attempt

    execution = await docket.add(flaky)()
    await finish(worker)
    assert await execution.get_result() == 20


def _attempt(number: int) -> Any:
    from dovetail.behaviors import Attempt
    from dovetail.model import Claim

    claim = Claim("id", 1, "k", "t", b"", number, datetime(2030, 1, 1, tzinfo=UTC))
    return Attempt(claim, (), {}, VirtualClock(), None)  # type: ignore[arg-type]


def _outcome() -> Any:
    from dovetail.behaviors import Outcome

    return Outcome(timedelta(), error=ValueError())


# Asking for another attempt


@pytest.mark.parametrize("how", ["after", "in_"])
async def test_a_body_can_ask_to_be_tried_again_after_a_delay(
    still: Docket, by_hand: ByHand, clock: VirtualClock, how: str
):
    async def later(retry: Retry = Retry(attempts=2)) -> None:
        getattr(retry, how)(9 * SECOND)

    await still.add(later)()
    run = await by_hand.step()
    assert (run.due, run.attempt) == (clock.now() + 9 * SECOND, 2)


async def test_a_body_can_ask_to_be_tried_again_at_a_time(still: Docket, by_hand: ByHand, clock: VirtualClock):
    when = clock.now() + timedelta(hours=3)

    async def later(retry: Retry = Retry(attempts=2)) -> None:
        retry.at(when)

    await still.add(later)()
    assert (await by_hand.step()).due == when


async def test_a_time_asked_for_stands_however_long_the_body_took(still: Docket, by_hand: ByHand, clock: VirtualClock):
    when = clock.now() + timedelta(hours=3)

    async def slow(retry: Retry = Retry(attempts=2)) -> None:
        clock.jump(timedelta(hours=1))
        retry.at(when)

    await still.add(slow)()
    assert (await by_hand.step()).due == when


async def test_a_time_in_the_past_means_now(still: Docket, by_hand: ByHand, clock: VirtualClock):
    async def at_once(retry: Retry = Retry(attempts=2)) -> None:
        retry.at(clock.now() - timedelta(hours=1))

    await still.add(at_once)()
    run = await by_hand.step()
    assert run.state is State.QUEUED
    assert run.due <= clock.now()


async def test_what_was_asked_for_wins_over_the_declared_delay(still: Docket, by_hand: ByHand, clock: VirtualClock):
    async def later(retry: Retry = Retry(attempts=2, delay=timedelta(hours=1))) -> None:
        retry.after(timedelta())

    await still.add(later)()
    assert (await by_hand.step()).state is State.QUEUED


async def test_asking_counts_as_an_attempt_and_fails_when_there_are_none_left(docket: Docket, worker: Worker):
    attempts: list[int] = []

    async def again(retry: Retry = Retry(attempts=2)) -> None:
        attempts.append(retry.attempt)
        retry.after(timedelta())

    execution = await docket.add(again)()
    await finish(worker)
    await execution.sync()
    assert attempts == [1, 2]
    assert execution.state is ExecutionState.FAILED
    assert execution.error is not None
    assert execution.error.startswith("ForcedRetry")


def test_asking_outside_a_run_raises_what_it_raises_within():
    with pytest.raises(ForcedRetry):
        Retry(attempts=2).at(datetime.now(UTC))


# A caller's own


async def test_a_caller_can_pass_a_retry_of_its_own_with_pickle(pickling: Docket, make_worker: MakeWorker):
    attempts: list[int] = []

    async def fail(retry: Retry = Retry(attempts=2)) -> None:
        attempts.append(retry.attempt)
        raise ValueError

    await pickling.add(fail)(retry=Retry(attempts=4))
    await finish(make_worker(pickling))
    assert attempts == [1, 2, 3, 4]


async def test_a_caller_can_pass_a_retry_of_its_own_by_position(pickling: Docket, make_worker: MakeWorker):
    attempts: list[int] = []

    async def fail(retry: Retry = Retry(attempts=2)) -> None:
        attempts.append(retry.attempt)
        raise ValueError

    execution = await pickling.add(fail)(Retry(attempts=4))
    await finish(make_worker(pickling))
    await execution.sync()
    assert execution.error == "ValueError"
    assert attempts == [1, 2, 3, 4]


async def test_what_a_caller_passes_instead_of_a_retry_is_what_the_body_gets(docket: Docket, worker: Worker):
    received: list[Any] = []

    async def fail(retry: Any = Retry(attempts=3)) -> None:
        received.append(retry)
        raise ValueError

    await docket.add(fail)(retry=None)
    await finish(worker)
    assert received == [None]


async def test_a_retry_does_not_travel_as_json(docket: Docket):
    async def fail(retry: Retry = Retry(attempts=2)) -> None: ...

    with pytest.raises(PayloadError, match="retry"):
        await docket.add(fail)(retry=Retry(attempts=4))


def test_a_retry_can_be_pickled():
    retry = ExponentialRetry(attempts=5, minimum_delay=SECOND)
    assert pickle.loads(pickle.dumps(retry)) == retry


def test_retries_are_equal_if_they_are_alike():
    assert Retry(attempts=2) == Retry(attempts=2)
    assert Retry(attempts=2) != Retry(attempts=3)
    assert Retry(attempts=2) != ExponentialRetry(attempts=2)
    assert Retry(attempts=2) != 2


def test_a_retry_shows_what_it_is():
    assert repr(Retry(attempts=2)) == "Retry(attempts=2, delay=datetime.timedelta(0))"


# Exponential


@pytest.mark.parametrize(
    ("attempt", "seconds"), [(1, 1), (2, 2), (3, 4), (4, 8), (7, 64), (8, 64), (1000, 64), (10**9, 64), (2**63, 64)]
)
def test_the_delay_doubles_up_to_the_maximum(attempt: int, seconds: int):
    assert at_attempt(ExponentialRetry(attempts=None), attempt).next_delay() == seconds * SECOND


def test_a_maximum_below_the_minimum_holds_from_the_second_delay_on():
    retry = ExponentialRetry(attempts=5, minimum_delay=10 * SECOND, maximum_delay=SECOND)
    assert [at_attempt(retry, number).next_delay() / SECOND for number in (1, 2, 3)] == [10, 1, 1]


def test_a_maximum_of_nothing_is_no_delay():
    retry = ExponentialRetry(attempts=5, minimum_delay=SECOND, maximum_delay=timedelta())
    assert at_attempt(retry, 2).next_delay() == timedelta()


@pytest.mark.parametrize("attempt", [1, 5, 10**9])
def test_no_delay_stays_no_delay(attempt: int):
    retry = ExponentialRetry(attempts=None, minimum_delay=timedelta())
    assert at_attempt(retry, attempt).next_delay() == timedelta()


def test_a_maximum_that_is_no_power_of_two_is_never_passed():
    retry = ExponentialRetry(attempts=None, minimum_delay=3 * SECOND, maximum_delay=10 * SECOND)
    assert [at_attempt(retry, number).next_delay() / SECOND for number in range(1, 5)] == [3, 6, 10, 10]


durations = st.timedeltas(min_value=timedelta(), max_value=timedelta(days=365))


@given(st.integers(2, 2**70), durations, durations)
def test_a_delay_is_never_more_than_the_maximum(attempt: int, minimum: timedelta, maximum: timedelta):
    retry = ExponentialRetry(attempts=None, minimum_delay=minimum, maximum_delay=maximum)
    assert timedelta() <= at_attempt(retry, attempt).next_delay() <= maximum


@given(st.integers(1, 2**70))
def test_jitter_draws_between_half_of_the_delay_and_the_whole(attempt: int):
    plain = at_attempt(ExponentialRetry(attempts=None), attempt).next_delay()
    jittered = at_attempt(ExponentialRetry(attempts=None, jitter=True), attempt).next_delay()
    assert plain / 2 <= jittered <= plain


def test_jitter_keeps_runs_out_of_step():
    retry = at_attempt(ExponentialRetry(attempts=None, jitter=True), 5)
    assert len({retry.next_delay() for _ in range(20)}) > 1


async def test_an_exponential_retry_spaces_its_attempts(still: Docket, by_hand: ByHand, clock: VirtualClock):
    async def fail(retry: ExponentialRetry = ExponentialRetry(attempts=4, minimum_delay=SECOND)) -> None:
        raise ValueError

    execution = await still.add(fail)()
    delays: list[timedelta] = []
    for _ in range(3):
        run = await by_hand.step()
        delays.append(run.due - clock.now())
        clock.jump(run.due - clock.now())
    await by_hand.step()
    assert delays == [SECOND, 2 * SECOND, 4 * SECOND]
    assert (await run_of(still, key=execution.key)).state is State.FAILED


@pytest.mark.parametrize("wrong", [5, None, "5", timedelta(seconds=-1)])
async def test_a_delay_that_cannot_be_is_refused_in_the_body(still: Docket, by_hand: ByHand, wrong: Any):
    async def task(retry: Retry = Retry(attempts=1)) -> None:
        retry.delay = wrong

    await still.add(task)()
    run = await by_hand.step()
    assert run.state is State.FAILED
    assert "delay must be" in (run.error or "")
