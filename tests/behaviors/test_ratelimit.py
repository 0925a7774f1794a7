"""RateLimit: only so many in a window of time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

import pytest

from dovetail import (
    ConcurrencyLimit,
    CurrentExecution,
    Depends,
    Docket,
    Execution,
    ExecutionCancelled,
    Perpetual,
    RateLimit,
    Retry,
    Snooze,
    UsageError,
    Worker,
    WrongArgument,
    task,
)
from dovetail.clock import VirtualClock
from dovetail.dependencies import AdmissionBlocked
from dovetail.model import State
from tests.by_hand import ByHand, at_work, finish, run_of
from tests.waiting import eventually, soon

MakeWorker = Callable[..., Worker]
SECOND = timedelta(seconds=1)
PER = 10 * SECOND


async def two_per_window(number: int = 0, rate: RateLimit = RateLimit(2, per=PER)) -> None: ...


async def per_tenant(tenant: Annotated[Any, RateLimit(1, per=PER)]) -> None: ...


async def dropping(rate: RateLimit = RateLimit(1, per=PER, drop=True)) -> None: ...


async def add_all(docket: Docket, *calls: Any) -> None:
    """Add calls in this order; their keys are a, b, c and so on."""
    for number, (function, *args) in enumerate(calls):
        await docket.add(function, key=chr(ord("a") + number))(*args)


async def started(by_hand: ByHand) -> list[str]:
    """The keys of all that could start, and has ended at once."""
    claims = await by_hand.claim_all()
    for claim in claims:
        await by_hand.settle(claim)
    return [claim.key for claim in claims]


# The window


async def test_only_so_many_start_in_a_window(still: Docket, by_hand: ByHand):
    await add_all(still, *[(two_per_window, number) for number in range(5)])
    assert await started(by_hand) == ["a", "b"]
    assert await started(by_hand) == []


async def test_the_rest_starts_when_the_window_has_passed_in_the_order_it_came(
    still: Docket, by_hand: ByHand, clock: VirtualClock
):
    await add_all(still, *[(two_per_window, number) for number in range(5)])
    order = [await started(by_hand)]
    for _ in range(2):
        clock.jump(PER)
        order.append(await started(by_hand))
    assert order == [["a", "b"], ["c", "d"], ["e"]]


async def test_the_window_slides(still: Docket, by_hand: ByHand, clock: VirtualClock):
    await add_all(still, (two_per_window, 0))
    assert await started(by_hand) == ["a"]
    clock.jump(6 * SECOND)
    for key in ("x", "y", "z"):
        await still.add(two_per_window, key=key)()
    assert await started(by_hand) == ["x"]
    clock.jump(4 * SECOND)
    assert await started(by_hand) == ["y"]  # the first has left the window, the second has not
    clock.jump(5 * SECOND)
    assert await started(by_hand) == []
    clock.jump(SECOND)
    assert await started(by_hand) == ["z"]


async def test_a_moment_before_the_window_ends_nothing_starts(still: Docket, by_hand: ByHand, clock: VirtualClock):
    await add_all(still, (per_tenant, 1), (per_tenant, 1))
    assert await started(by_hand) == ["a"]
    clock.jump(PER - timedelta(microseconds=1))
    assert await started(by_hand) == []
    clock.jump(timedelta(microseconds=1))
    assert await started(by_hand) == ["b"]


async def test_a_worker_is_told_when_the_window_opens(still: Docket, by_hand: ByHand):
    await add_all(still, (per_tenant, 1), (per_tenant, 1))
    await started(by_hand)
    claimed = await still.engine.claim("by hand", 1, lease=SECOND)
    assert (claimed.claims, claimed.wait) == ([], PER)


async def test_a_run_that_waits_is_scheduled_and_has_not_begun(still: Docket, by_hand: ByHand):
    await add_all(still, (per_tenant, 1), (per_tenant, 1))
    await started(by_hand)
    waiting = await run_of(still, key="b")
    assert (waiting.state, waiting.worker, waiting.started, waiting.attempt) == (State.SCHEDULED, None, None, 1)


async def test_a_waiting_run_that_is_cancelled_makes_way(still: Docket, by_hand: ByHand, clock: VirtualClock):
    await add_all(still, (per_tenant, 1), (per_tenant, 1), (per_tenant, 1))
    await started(by_hand)
    await still.cancel("b")
    clock.jump(PER)
    assert await started(by_hand) == ["c"]


# What is over the limit and may not wait


async def test_with_drop_what_is_over_the_limit_is_cancelled(still: Docket, by_hand: ByHand, clock: VirtualClock):
    await add_all(still, (dropping,), (dropping,))
    assert await started(by_hand) == ["a"]
    assert (await run_of(still, key="b")).state is State.CANCELLED
    clock.jump(PER)
    assert await started(by_hand) == []


async def test_whoever_waits_for_a_dropped_run_is_told(docket: Docket, worker: Worker):
    await docket.add(dropping)()
    execution = await docket.add(dropping)()
    await finish(worker)
    with pytest.raises(ExecutionCancelled):
        await soon(execution.get_result())


async def test_what_was_dropped_does_not_count(still: Docket, by_hand: ByHand, clock: VirtualClock):
    await add_all(still, (dropping,))
    await started(by_hand)
    clock.jump(9 * SECOND)
    await still.add(dropping, key="x")()
    assert await started(by_hand) == []
    clock.jump(SECOND)
    await still.add(dropping, key="y")()
    assert await started(by_hand) == ["y"]


# Who shares it


async def test_each_value_has_a_limit_of_its_own(still: Docket, by_hand: ByHand):
    await add_all(still, (per_tenant, 1), (per_tenant, "1"), (per_tenant, True), (per_tenant, 1))
    assert await started(by_hand) == ["a", "b", "c"]


async def test_tasks_share_nothing_with_each_other(still: Docket, by_hand: ByHand):
    async def another(tenant: Annotated[Any, RateLimit(1, per=PER)]) -> None: ...

    await add_all(still, (per_tenant, 1), (another, 1))
    assert await started(by_hand) == ["a", "b"]


async def test_tasks_of_one_scope_share_their_limit(still: Docket, by_hand: ByHand):
    async def one(rate: RateLimit = RateLimit(1, per=PER, scope="api")) -> None: ...
    async def two(rate: RateLimit = RateLimit(1, per=PER, scope="api")) -> None: ...
    async def other(rate: RateLimit = RateLimit(1, per=PER, scope="web")) -> None: ...

    await add_all(still, (one,), (two,), (other,))
    assert await started(by_hand) == ["a", "c"]


async def test_the_other_limits_of_a_scope_are_something_else(still: Docket, by_hand: ByHand):
    async def one(rate: RateLimit = RateLimit(1, per=PER, scope="api")) -> None: ...
    async def two(limit: ConcurrencyLimit = ConcurrencyLimit(1, scope="api")) -> None: ...

    await add_all(still, (one,), (two,))
    assert await started(by_hand) == ["a", "b"]


# Beside other behaviors


async def test_several_limits_must_all_have_room(still: Docket, by_hand: ByHand, clock: VirtualClock):
    async def both(
        tenant: Annotated[int, RateLimit(1, per=PER)], rate: RateLimit = RateLimit(2, per=60 * SECOND)
    ) -> None: ...

    await add_all(still, (both, 1), (both, 1), (both, 2), (both, 3))
    assert await started(by_hand) == ["a", "c"]
    clock.jump(PER)
    assert await started(by_hand) == []
    clock.jump(50 * SECOND)
    assert await started(by_hand) == ["b", "d"]


@pytest.mark.parametrize("long_first", [True, False])
async def test_each_of_two_windows_counts_a_start_once(
    still: Docket, by_hand: ByHand, clock: VirtualClock, long_first: bool
):
    windows = [RateLimit(4, per=60 * SECOND), RateLimit(3, per=PER)]

    @task(behaviors=windows if long_first else windows[::-1])
    async def both() -> None: ...

    await add_all(still, *[(both,)] * 6)
    assert await started(by_hand) == ["a", "b", "c"]
    clock.jump(PER)
    assert await started(by_hand) == ["d"]
    clock.jump(PER)
    assert await started(by_hand) == []
    why = await still.why("e")
    assert "per=0:01:00 (RateLimit of 'both')" in str(why)
    clock.jump(40 * SECOND)
    assert await started(by_hand) == ["e", "f"]


async def test_tasks_share_two_windows_of_one_scope_in_whatever_order(still: Docket, by_hand: ByHand):
    windows = [RateLimit(2, per=60 * SECOND, scope="api"), RateLimit(5, per=PER, scope="api")]

    @task(behaviors=windows)
    async def one() -> None: ...

    @task(behaviors=windows[::-1])
    async def other() -> None: ...

    await add_all(still, (one,), (other,), (one,), (other,))
    assert await started(by_hand) == ["a", "b"]


async def test_a_start_that_another_limit_prevents_does_not_count(still: Docket, by_hand: ByHand):
    async def both(
        name: str,
        tenant: Annotated[int, RateLimit(1, per=PER)],
        limit: ConcurrencyLimit = ConcurrencyLimit("name"),
    ) -> None: ...

    await add_all(still, (both, "printer", 1), (both, "printer", 2), (both, "plotter", 2))
    assert [claim.key for claim in await by_hand.claim_all()] == ["a", "c"]


async def test_a_failed_run_counts(still: Docket, by_hand: ByHand):
    async def fail(rate: RateLimit = RateLimit(1, per=PER)) -> None:
        raise ValueError

    await add_all(still, (fail,), (fail,))
    await by_hand.step()
    assert await started(by_hand) == []


async def test_each_attempt_counts(still: Docket, by_hand: ByHand, clock: VirtualClock):
    async def fail(rate: RateLimit = RateLimit(1, per=PER), retry: Retry = Retry(attempts=2)) -> None:
        raise ValueError

    await still.add(fail, key="k")()
    await by_hand.step()
    assert await by_hand.claim_all() == []
    clock.jump(PER)
    run = await by_hand.step()
    assert (run.attempt, run.state) == (2, State.FAILED)


async def test_each_run_of_a_perpetual_task_counts(still: Docket, by_hand: ByHand, clock: VirtualClock):
    async def tick(rate: RateLimit = RateLimit(2, per=PER), perpetual: Perpetual = Perpetual()) -> None: ...

    await still.add(tick, key="k")()
    await by_hand.step()
    await by_hand.step()
    assert await by_hand.claim_all() == []
    clock.jump(PER)
    await by_hand.step()


async def test_two_workers_share_the_limit(docket: Docket, make_worker: MakeWorker):
    calls: list[int] = []

    async def call(rate: RateLimit = RateLimit(3, per=timedelta(hours=1), drop=True)) -> None:
        calls.append(1)

    executions = [await docket.add(call)() for _ in range(10)]
    async with at_work(make_worker(name="one"), make_worker(name="two")):
        for execution in executions:
            try:
                await soon(execution.get_result())
            except ExecutionCancelled:
                continue
    assert len(calls) == 3


# What never began has not started


ONE_AN_HOUR = RateLimit(1, per=timedelta(hours=1), scope="unbegun")


def once(error: Callable[[Execution[Any]], Exception]) -> Any:
    """A dependency that raises this the first time."""
    left = [error]

    def guard(execution: Execution[Any] = CurrentExecution()) -> None:
        if left:
            raise left.pop()(execution)

    return Depends(guard)


@pytest.mark.parametrize(
    "error",
    [AdmissionBlocked, lambda _: Snooze(timedelta()), lambda _: ValueError("not yet")],
    ids=["turned away", "snoozed", "failed"],
)
async def test_a_run_stopped_by_what_it_depends_on_gives_its_start_back(
    docket: Docket, worker: Worker, error: Callable[[Execution[Any]], Exception]
):
    async def call(guard: None = once(error), rate: RateLimit = ONE_AN_HOUR, retry: Retry = Retry(attempts=2)) -> str:
        return "called"

    execution = await docket.add(call)()
    async with at_work(worker):
        assert await soon(execution.get_result()) == "called"


async def test_a_run_that_snoozes_in_its_body_has_started(docket: Docket, worker: Worker):
    began: list[str] = []

    async def call(name: str, rate: RateLimit = ONE_AN_HOUR) -> None:
        began.append(name)
        raise Snooze(timedelta())

    execution = await docket.add(call, key="a")("a")
    async with at_work(worker):
        await eventually(lambda: is_parked(docket, "a"))
    assert began == ["a"]
    await docket.cancel(execution.key)


async def test_a_run_that_this_worker_does_not_know_leaves_its_start_to_others(docket: Docket, worker: Worker):
    async def unknown(rate: RateLimit = ONE_AN_HOUR) -> None: ...

    async def known(rate: RateLimit = ONE_AN_HOUR) -> str:
        return "called"

    stranger = await docket.add(unknown, priority=1)()
    execution = await docket.add(known)()
    del docket.tasks["unknown"]
    async with at_work(worker):
        assert await soon(execution.get_result()) == "called"
    await docket.cancel(stranger.key)


async def test_a_run_that_was_stricken_at_its_start_leaves_its_start_to_others(docket: Docket, make_worker: MakeWorker):
    async def stricken(rate: RateLimit = ONE_AN_HOUR) -> None: ...

    async def allowed(rate: RateLimit = ONE_AN_HOUR) -> str:
        return "called"

    first = await docket.add(stricken, priority=1)()
    second = await docket.add(allowed)()
    await docket.strike(stricken)
    async with at_work(make_worker()):
        with pytest.raises(ExecutionCancelled):
            await soon(first.get_result())
        assert await soon(second.get_result()) == "called"


async def is_parked(docket: Docket, key: str) -> bool:
    return (await run_of(docket, key=key)).parked_on is not None


# Declarations that do not fit


def test_a_class_without_its_settings_is_refused(docket: Docket):
    async def task(tenant: Annotated[int, RateLimit]) -> None: ...

    with pytest.raises(UsageError, match="task 'task'"):
        docket.register(task)


async def test_a_call_without_the_argument_is_refused(still: Docket):
    with pytest.raises(WrongArgument, match=r"'per_tenant'.*missing a required argument: 'tenant'"):
        await still.add(per_tenant)()  # type: ignore[call-arg]
