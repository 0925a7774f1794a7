"""Cooldown: after one, none for a while."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

import pytest

from dovetail import Cooldown, Docket, ExecutionCancelled, Retry, UsageError, Worker, WrongArgument
from dovetail.clock import VirtualClock
from dovetail.model import State
from tests.by_hand import ByHand, finish, run_of

MakeWorker = Callable[..., Worker]
MINUTE = timedelta(minutes=1)


async def refresh(number: int = 0, cooldown: Cooldown = Cooldown(MINUTE)) -> None: ...


async def per_account(account: Annotated[Any, Cooldown(MINUTE)]) -> None: ...


async def add_all(docket: Docket, *calls: Any) -> None:
    """Add calls in this order; their keys are a, b, c and so on."""
    for number, (function, *args) in enumerate(calls):
        await docket.add(function, key=chr(ord("a") + number))(*args)


async def started(by_hand: ByHand) -> list[str]:
    claims = await by_hand.claim_all()
    for claim in claims:
        await by_hand.settle(claim)
    return [claim.key for claim in claims]


async def test_the_first_goes_at_once_and_the_others_are_cancelled(still: Docket, by_hand: ByHand):
    await add_all(still, (refresh, 1), (refresh, 2), (refresh, 3))
    assert await started(by_hand) == ["a"]
    assert [(await run_of(still, key=key)).state for key in "bc"] == [State.CANCELLED, State.CANCELLED]


async def test_what_was_cancelled_says_why(still: Docket, by_hand: ByHand):
    why = "Dropped: the limit cooldown:task:refresh had no room, and cancels what it does not admit"
    await add_all(still, (refresh, 1))
    execution = await still.add(refresh, key="b")(2)
    await started(by_hand)
    assert [each.error for each in await still.find(states=[State.CANCELLED], error="had no room")] == [why]
    with pytest.raises(ExecutionCancelled, match=f"'b' was cancelled: {why}"):
        await execution.get_result()


async def test_after_the_window_the_next_one_goes(still: Docket, by_hand: ByHand, clock: VirtualClock):
    await add_all(still, (refresh, 1))
    await started(by_hand)
    clock.jump(MINUTE - timedelta(microseconds=1))
    await still.add(refresh, key="early")()
    assert await started(by_hand) == []
    clock.jump(timedelta(microseconds=1))
    await still.add(refresh, key="late")()
    assert await started(by_hand) == ["late"]


async def test_the_window_begins_with_the_start(still: Docket, by_hand: ByHand, clock: VirtualClock):
    async def slow(cooldown: Cooldown = Cooldown(MINUTE)) -> None:
        clock.jump(MINUTE / 2)

    await add_all(still, (slow,))
    await by_hand.step()
    clock.jump(MINUTE / 2)
    await still.add(slow, key="next")()
    assert await started(by_hand) == ["next"]


async def test_what_was_cancelled_does_not_begin_a_window(still: Docket, by_hand: ByHand, clock: VirtualClock):
    await add_all(still, (refresh,))
    await started(by_hand)
    clock.jump(MINUTE / 2)
    await still.add(refresh, key="dropped")()
    assert await started(by_hand) == []
    clock.jump(MINUTE / 2)
    await still.add(refresh, key="next")()
    assert await started(by_hand) == ["next"]


async def test_a_failed_run_began_a_window_too(still: Docket, by_hand: ByHand):
    async def fail(cooldown: Cooldown = Cooldown(MINUTE)) -> None:
        raise ValueError

    await add_all(still, (fail,), (fail,))
    assert (await by_hand.step()).state is State.FAILED
    assert await started(by_hand) == []


async def test_each_value_has_a_window_of_its_own(still: Docket, by_hand: ByHand):
    await add_all(still, (per_account, 1), (per_account, "1"), (per_account, True), (per_account, 1))
    assert await started(by_hand) == ["a", "b", "c"]


async def test_tasks_share_nothing_with_each_other(still: Docket, by_hand: ByHand):
    async def another(account: Annotated[Any, Cooldown(MINUTE)]) -> None: ...

    await add_all(still, (per_account, 1), (another, 1), (refresh,))
    assert await started(by_hand) == ["a", "b", "c"]


async def test_tasks_of_one_scope_share_their_window(still: Docket, by_hand: ByHand):
    async def one(cooldown: Cooldown = Cooldown(MINUTE, scope="cache")) -> None: ...
    async def two(cooldown: Cooldown = Cooldown(MINUTE, scope="cache")) -> None: ...

    await add_all(still, (one,), (two,))
    assert await started(by_hand) == ["a"]


async def test_of_several_all_must_be_over(still: Docket, by_hand: ByHand, clock: VirtualClock):
    async def both(account: Annotated[int, Cooldown(MINUTE)], region: Annotated[str, Cooldown(MINUTE / 2)]) -> None: ...

    await add_all(still, (both, 1, "eu"), (both, 1, "us"), (both, 2, "eu"), (both, 2, "us"))
    assert await started(by_hand) == ["a", "d"]
    clock.jump(MINUTE / 2)
    await still.add(both, key="e")(1, "eu")
    await still.add(both, key="f")(3, "eu")
    assert await started(by_hand) == ["f"]


async def test_a_window_of_another_length_in_one_scope_keeps_to_its_own(
    still: Docket, by_hand: ByHand, clock: VirtualClock
):
    async def short(cooldown: Cooldown = Cooldown(MINUTE / 2, scope="cache")) -> None: ...
    async def long(cooldown: Cooldown = Cooldown(MINUTE, scope="cache")) -> None: ...

    await add_all(still, (long,))
    await started(by_hand)
    clock.jump(MINUTE / 2)
    await still.add(long, key="long")()
    assert await started(by_hand) == []
    await still.add(short, key="short")()
    assert await started(by_hand) == ["short"]


async def test_whoever_waits_for_a_cancelled_run_is_told(docket: Docket, worker: Worker):
    first, second = await docket.add(refresh)(1), await docket.add(refresh)(2)
    await finish(worker)
    assert await first.get_result() is None
    with pytest.raises(ExecutionCancelled):
        await second.get_result()


async def test_an_attempt_within_the_window_is_cancelled(still: Docket, by_hand: ByHand):
    async def fail(cooldown: Cooldown = Cooldown(MINUTE), retry: Retry = Retry(attempts=2)) -> None:
        raise ValueError

    await still.add(fail, key="k")()
    await by_hand.step()
    assert await by_hand.claim_all() == []
    assert (await run_of(still, key="k")).state is State.CANCELLED


def test_a_class_without_its_settings_is_refused(docket: Docket):
    async def task(account: Annotated[int, Cooldown]) -> None: ...

    with pytest.raises(UsageError, match="task 'task'"):
        docket.register(task)


async def test_a_call_without_the_argument_is_refused(still: Docket):
    with pytest.raises(WrongArgument, match=r"'per_account'.*missing a required argument: 'account'"):
        await still.add(per_account)()  # type: ignore[call-arg]
