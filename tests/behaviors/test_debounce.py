"""Debounce: wait until it is quiet, then go once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

import pytest

from dovetail import ConcurrencyLimit, Cron, Debounce, Docket, Perpetual, Retry, UsageError, Worker, WrongArgument
from dovetail.clock import LAST, VirtualClock
from dovetail.model import State
from dovetail.worker.seeder import Seeder
from tests.by_hand import ByHand, finish, run_of

MakeWorker = Callable[..., Worker]
SECOND = timedelta(seconds=1)
SETTLE = 5 * SECOND

seen: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    seen.clear()


async def reindex(what: str = "", debounce: Debounce = Debounce(SETTLE)) -> None:
    seen.append(what)


async def per_account(account: Annotated[Any, Debounce(SETTLE)], what: str = "") -> None:
    seen.append((account, what))


async def run_all(by_hand: ByHand) -> list[Any]:
    """Run everything that is due; what the bodies saw."""
    seen.clear()
    await by_hand.step_through()
    return list(seen)


# One run of many calls


async def test_a_call_waits_until_it_has_been_quiet(still: Docket, by_hand: ByHand, clock: VirtualClock):
    await still.add(reindex)("a")
    clock.jump(SETTLE - timedelta(microseconds=1))
    assert await run_all(by_hand) == []
    clock.jump(timedelta(microseconds=1))
    assert await run_all(by_hand) == ["a"]


async def test_calls_in_quick_succession_are_one_run_with_the_arguments_of_the_first(
    still: Docket, by_hand: ByHand, clock: VirtualClock
):
    for what in ("a", "b", "c"):
        await still.add(reindex)(what)
    clock.jump(SETTLE)
    assert await run_all(by_hand) == ["a"]
    clock.jump(timedelta(hours=1))
    assert await run_all(by_hand) == []


async def test_each_call_puts_the_run_off(still: Docket, by_hand: ByHand, clock: VirtualClock):
    await still.add(reindex)("a")
    for _ in range(10):
        clock.jump(4 * SECOND)
        await still.add(reindex)("later")
    clock.jump(4 * SECOND)
    assert await run_all(by_hand) == []
    clock.jump(SECOND)
    assert await run_all(by_hand) == ["a"]


async def test_all_calls_have_one_execution(still: Docket):
    first, second = await still.add(reindex)("a"), await still.add(reindex, key="mine")("b")
    assert (first.id, first.key) == (second.id, second.key)
    assert (await still.snapshot()).total_tasks == 1


async def test_many_at_once_are_one(still: Docket, by_hand: ByHand, clock: VirtualClock):
    executions = await still.add_many([still.call(reindex)(what) for what in "abc"])
    assert len({execution.id for execution in executions}) == 1
    clock.jump(SETTLE)
    assert await run_all(by_hand) == ["a"]


async def test_once_it_is_quiet_a_new_round_begins(still: Docket, by_hand: ByHand, clock: VirtualClock):
    for what in ("a", "b"):
        await still.add(reindex)(what)
        clock.jump(SETTLE)
        assert await run_all(by_hand) == [what]


async def test_a_call_while_the_run_is_running_is_another_run(still: Docket, by_hand: ByHand, clock: VirtualClock):
    await still.add(reindex)("a")
    clock.jump(SETTLE)
    running = await by_hand.claim()
    await still.add(reindex)("b")
    await still.add(reindex)("c")
    await by_hand.settle(running)
    assert await run_all(by_hand) == []
    clock.jump(SETTLE)
    assert await run_all(by_hand) == ["b"]


async def test_a_run_that_is_put_off_can_be_cancelled(still: Docket, by_hand: ByHand, clock: VirtualClock):
    execution = await still.add(reindex)("a")
    await still.cancel(execution.key)
    clock.jump(SETTLE)
    assert await run_all(by_hand) == []
    await still.add(reindex)("b")
    clock.jump(SETTLE)
    assert await run_all(by_hand) == ["b"]


async def test_everyone_who_called_can_wait_for_the_result(docket: Docket, worker: Worker):
    async def count(debounce: Debounce = Debounce(timedelta(milliseconds=1))) -> int:
        return 7

    executions = await docket.add_many([docket.call(count)(), docket.call(count)()])
    await finish(worker)
    assert [await execution.get_result() for execution in executions] == [7, 7]


async def test_replace_means_what_it_says(still: Docket, by_hand: ByHand, clock: VirtualClock):
    await still.replace(reindex, clock.now(), "k")("a")
    await still.replace(reindex, clock.now(), "k")("b")
    assert await run_all(by_hand) == ["b"]


# Who shares it


async def test_each_value_settles_on_its_own(still: Docket, by_hand: ByHand, clock: VirtualClock):
    for account in (1, "1", True, 1):
        await still.add(per_account)(account)
    clock.jump(SETTLE)
    assert await run_all(by_hand) == [(1, ""), ("1", ""), (True, "")]


async def test_tasks_share_nothing_with_each_other(still: Docket):
    async def another(what: str = "", debounce: Debounce = Debounce(SETTLE)) -> None: ...

    keys = {(await still.add(task)()).key for task in (reindex, another)}
    assert len(keys) == 2


async def test_in_one_scope_the_first_call_wins_whatever_task_it_is_of(
    still: Docket, by_hand: ByHand, clock: VirtualClock
):
    async def one(debounce: Debounce = Debounce(SETTLE, scope="index")) -> None:
        seen.append("one")

    async def two(debounce: Debounce = Debounce(SETTLE, scope="index")) -> None:
        seen.append("two")

    await still.add(one)()
    await still.add(two)()
    clock.jump(SETTLE)
    assert await run_all(by_hand) == ["one"]


async def test_a_value_shows_in_no_log_line(
    still: Docket, by_hand: ByHand, clock: VirtualClock, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    await still.add(per_account)("the secret")
    clock.jump(SETTLE)
    await by_hand.step()
    assert "per_account" in caplog.text
    assert "secret" not in caplog.text


# Beside other behaviors


async def test_a_retry_is_not_debounced(still: Docket, by_hand: ByHand, clock: VirtualClock):
    async def fail(debounce: Debounce = Debounce(SETTLE), retry: Retry = Retry(attempts=2)) -> None:
        raise ValueError

    await still.add(fail)()
    clock.jump(SETTLE)
    assert (await by_hand.step()).state is State.QUEUED
    assert (await by_hand.step()).state is State.FAILED


async def test_a_limit_goes_with_it(still: Docket, by_hand: ByHand, clock: VirtualClock):
    async def both(account: Annotated[int, Debounce(SETTLE)], limit: ConcurrencyLimit = ConcurrencyLimit()) -> None: ...

    for account in (1, 2, 1):
        await still.add(both)(account)
    clock.jump(SETTLE)
    (first,) = await by_hand.claim_all()
    await by_hand.settle(first)
    (second,) = await by_hand.claim_all()
    await by_hand.settle(second)
    assert await by_hand.claim_all() == []


async def test_the_next_run_of_a_perpetual_task_comes_when_it_is_due(
    still: Docket, by_hand: ByHand, clock: VirtualClock
):
    async def tick(debounce: Debounce = Debounce(SETTLE), perpetual: Perpetual = Perpetual(every=SECOND)) -> None: ...

    execution = await still.add(tick)()
    clock.jump(SETTLE)
    await by_hand.step()
    following = await run_of(still, key=execution.key)
    assert (following.state, following.due) == (State.SCHEDULED, clock.now() + SECOND)


@pytest.mark.parametrize("again", [Perpetual(every=timedelta(hours=1), automatic=True), Cron("0 * * * *")])
async def test_a_seed_that_comes_again_does_not_put_the_run_off(
    still: Docket, by_hand: ByHand, clock: VirtualClock, again: Perpetual
):
    async def tick(debounce: Debounce = Debounce(SETTLE), again: Any = again) -> None: ...

    still.register(tick)
    seeder = Seeder(still.engine, still.clock, still.tasks, still.drafter, lambda: still.retention)
    await seeder.seed()
    (planned,) = (await still.snapshot()).future
    clock.jump(planned.when - clock.now())
    await seeder.seed()
    await by_hand.step()
    (planned,) = (await still.snapshot()).future
    clock.jump(timedelta(minutes=1))
    await seeder.seed()
    assert [each.when for each in (await still.snapshot()).future] == [planned.when]


# Calls and declarations that do not fit


@pytest.mark.parametrize("ahead", [timedelta(), timedelta(hours=1), -timedelta(hours=1)])
async def test_a_call_for_a_time_settles_from_that_time_on(still: Docket, clock: VirtualClock, ahead: timedelta):
    planned = await still.add(reindex, when=clock.now() + ahead)()
    assert (await run_of(still, key=planned.key)).due == clock.now() + ahead + SETTLE


async def test_a_call_for_the_end_of_time_stays_there(still: Docket):
    planned = await still.add(reindex, when=LAST)()
    assert (await run_of(still, key=planned.key)).due == LAST


async def test_a_call_without_the_argument_is_refused(still: Docket):
    with pytest.raises(WrongArgument, match=r"'per_account'.*missing a required argument: 'account'"):
        await still.add(per_account)(what="x")  # type: ignore[call-arg]


def test_a_task_has_one(docket: Docket):
    async def task(account: Annotated[int, Debounce(SETTLE)], debounce: Debounce = Debounce(SETTLE)) -> None: ...

    with pytest.raises(UsageError, match=r"task 'task'.*Debounce"):
        docket.register(task)
