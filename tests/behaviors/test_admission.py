"""Turning an attempt away before it begins."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from dovetail import CurrentExecution, Depends, Docket, Execution, ExecutionCancelled, Perpetual, Retry, Worker
from dovetail.behaviors import blocked
from dovetail.behaviors.admission import RETRY_DELAY
from dovetail.clock import VirtualClock
from dovetail.dependencies import AdmissionBlocked, ConcurrencyBlocked
from dovetail.model import State
from tests.by_hand import ByHand, finish, run_of, runs_of

SECOND = timedelta(seconds=1)
ran: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


def refusing(times: int, kind: type[AdmissionBlocked] = AdmissionBlocked, **settings: Any) -> Any:
    """A dependency that turns so many attempts away."""
    left = [times]

    def guard(execution: Execution[Any] = CurrentExecution()) -> str:
        if left[0]:
            left[0] -= 1
            raise kind(execution, **settings)
        return "admitted"

    return Depends(guard)


# Put back


async def test_a_refused_run_goes_back_at_no_cost(still: Docket, by_hand: ByHand, clock: VirtualClock):
    async def task(guard: str = refusing(1), retry: Retry = Retry(attempts=1)) -> None:
        ran.append((guard, retry.attempt))

    await still.add(task, key="k")()
    run = await by_hand.step()
    assert (run.state, run.attempt, run.error, run.errors) == (State.SCHEDULED, 1, None, ())
    assert run.due == clock.now() + RETRY_DELAY
    assert await by_hand.claim_all() == []
    clock.jump(RETRY_DELAY)
    assert (await by_hand.step()).state is State.COMPLETED
    assert ran == [("admitted", 1)]


async def test_it_can_say_when_to_try_again(still: Docket, by_hand: ByHand, clock: VirtualClock):
    async def task(guard: str = refusing(1, retry_delay=7 * SECOND)) -> None: ...

    await still.add(task)()
    assert (await by_hand.step()).due == clock.now() + 7 * SECOND


async def test_no_delay_means_at_once(still: Docket, by_hand: ByHand):
    async def task(guard: str = refusing(1, retry_delay=timedelta())) -> None: ...

    await still.add(task)()
    assert (await by_hand.step()).state is State.QUEUED


async def test_it_may_be_refused_any_number_of_times(docket: Docket, worker: Worker):
    async def task(guard: str = refusing(20, retry_delay=timedelta())) -> str:
        return guard

    execution = await docket.add(task)()
    await finish(worker)
    assert await execution.get_result() == "admitted"


async def test_it_keeps_its_key_and_arguments(still: Docket, by_hand: ByHand):
    async def task(name: str, guard: str = refusing(1, retry_delay=timedelta())) -> None:
        ran.append(name)

    execution = await still.add(task, key="k")("ann")
    assert (await by_hand.step()).id == (await by_hand.step()).id == execution.id
    assert ran == ["ann"]


async def test_a_refusal_wins_over_other_failures(still: Docket, by_hand: ByHand):
    def broken() -> None:
        raise LookupError

    async def task(one: Any = Depends(broken), guard: str = refusing(1), two: Any = Depends(broken)) -> None: ...

    await still.add(task)()
    assert (await by_hand.step()).state is State.SCHEDULED


async def test_plain_functions_can_be_refused(still: Docket, by_hand: ByHand, clock: VirtualClock):
    def task(guard: str = refusing(1)) -> None:
        ran.append(guard)

    await still.add(task)()
    assert (await by_hand.step()).state is State.SCHEDULED
    assert ran == []


async def test_a_perpetual_task_that_is_refused_goes_on_afterwards(still: Docket, by_hand: ByHand, clock: VirtualClock):
    async def tick(
        guard: str = refusing(1, retry_delay=SECOND), perpetual: Perpetual = Perpetual(every=SECOND)
    ) -> None:
        ran.append(1)

    await still.add(tick, key="k")()
    await by_hand.step()
    assert len(await runs_of(still, "k")) == 1
    clock.jump(SECOND)
    await by_hand.step()
    assert (ran, (await run_of(still, key="k")).state) == ([1], State.SCHEDULED)


async def test_what_was_set_up_before_is_torn_down(still: Docket, by_hand: ByHand):
    @contextmanager
    def resource() -> Any:
        try:
            yield
        finally:
            ran.append("torn down")

    async def task(first: Any = Depends(resource), guard: str = refusing(1)) -> None: ...

    await still.add(task)()
    await by_hand.step()
    assert ran == ["torn down"]


# Cancelled


@pytest.mark.parametrize("settings", [{"reschedule": False}, {"handled": True}])
async def test_without_another_try_it_is_cancelled(docket: Docket, worker: Worker, settings: Any):
    async def task(guard: str = refusing(1, **settings)) -> None:
        ran.append(1)

    execution = await docket.add(task)()
    await finish(worker)
    with pytest.raises(ExecutionCancelled):
        await execution.get_result()
    assert ran == []


async def test_a_retry_does_not_come_between(docket: Docket, worker: Worker):
    async def task(guard: str = refusing(1, reschedule=False), retry: Retry = Retry(attempts=5)) -> None:
        ran.append(1)

    execution = await docket.add(task)()
    await finish(worker)
    await execution.sync()
    assert (execution.state, ran) == (State.CANCELLED, [])


async def test_a_run_that_is_turned_away_for_good_says_why(docket: Docket, worker: Worker):
    async def task(guard: str = refusing(1, reschedule=False, reason="the tenant has left")) -> None: ...

    execution = await docket.add(task, key="k")()
    await finish(worker)
    run = await run_of(docket, key="k")
    assert run.error == "AdmissionBlocked: 'k' was not admitted: the tenant has left"
    with pytest.raises(ExecutionCancelled, match=r"'k' was cancelled: AdmissionBlocked: .*: the tenant has left"):
        await execution.get_result()


# What is said of it


async def test_a_refusal_is_no_error_in_the_log(still: Docket, by_hand: ByHand, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)

    async def task(guard: str = refusing(1)) -> None: ...

    await still.add(task, key="k")()
    await by_hand.step()
    assert "task(){k} (handed back)" in caplog.text
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_refusal_says_who_was_refused_and_why(docket: Docket):
    async def task() -> None: ...

    execution = await docket.add(task, key="k")()
    assert str(AdmissionBlocked(execution, "too full")) == "'k' was not admitted: too full"
    error = AdmissionBlocked(execution)
    assert (error.execution, error.reason) == (execution, "admission control")
    assert (error.handled, error.reschedule, error.retry_delay) == (False, True, None)


def test_a_refusal_is_found_among_others():
    refusal = ConcurrencyBlocked(None, "orders", 2)
    assert (refusal.concurrency_key, refusal.max_concurrent) == ("orders", 2)
    group = ExceptionGroup("several", [ValueError(), ExceptionGroup("inner", [KeyError(), refusal])])
    assert blocked(group) is refusal
    assert blocked(refusal) is refusal
    assert blocked(ExceptionGroup("none", [ValueError()])) is None
    assert blocked(ValueError()) is None
    assert blocked(None) is None
