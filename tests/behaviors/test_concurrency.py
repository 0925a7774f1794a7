"""ConcurrencyLimit: only so many at once."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

import pytest

from dovetail import ConcurrencyLimit, Depends, Docket, Perpetual, Retry, UsageError, Worker
from dovetail.clock import VirtualClock
from dovetail.errors import InvalidArgument, InvalidType
from dovetail.model import RunQuery, State
from tests.by_hand import ByHand, at_work, finish, run_of
from tests.waiting import soon

MakeWorker = Callable[..., Worker]
SECOND = timedelta(seconds=1)


async def alone(number: int = 0, limit: ConcurrencyLimit = ConcurrencyLimit()) -> None: ...


async def two_at_once(number: int = 0, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=2)) -> None: ...


async def per_account(account: Annotated[Any, ConcurrencyLimit(1)], number: int = 0) -> None: ...


async def by_name(account: Any = None, limit: ConcurrencyLimit = ConcurrencyLimit("account")) -> None: ...


async def add_all(docket: Docket, *calls: Any) -> list[str]:
    """Add calls in this order; their keys are a, b, c and so on."""
    keys = [chr(ord("a") + number) for number in range(len(calls))]
    for key, (function, *args) in zip(keys, calls, strict=True):
        await docket.add(function, key=key)(*args)
    return keys


async def claimed(by_hand: ByHand) -> list[str]:
    return [claim.key for claim in await by_hand.claim_all()]


# Which runs share a limit


async def test_only_so_many_runs_of_a_task_start(still: Docket, by_hand: ByHand):
    await add_all(still, (two_at_once, 1), (two_at_once, 2), (two_at_once, 3))
    assert await claimed(by_hand) == ["a", "b"]


async def test_one_at_once_is_the_default(still: Docket, by_hand: ByHand):
    await add_all(still, (alone,), (alone,))
    assert await claimed(by_hand) == ["a"]


async def test_each_value_of_an_argument_has_a_limit_of_its_own(still: Docket, by_hand: ByHand):
    await add_all(still, (per_account, 1), (per_account, 2), (per_account, 1), (per_account, 2))
    assert await claimed(by_hand) == ["a", "b"]


async def test_an_argument_can_be_named(still: Docket, by_hand: ByHand):
    await add_all(still, (by_name, 1), (by_name, 2), (by_name, 1))
    assert await claimed(by_hand) == ["a", "b"]


async def test_it_does_not_matter_how_an_argument_was_passed(still: Docket, by_hand: ByHand):
    await still.add(by_name, key="a")(7)
    await still.add(by_name, key="b")(account=7)
    assert await claimed(by_hand) == ["a"]


async def test_a_default_is_a_value_like_any_other(still: Docket, by_hand: ByHand):
    await still.add(by_name, key="a")()
    await still.add(by_name, key="b")(None)
    assert await claimed(by_hand) == ["a"]


async def test_an_argument_named_in_metadata_is_the_one_that_counts(still: Docket, by_hand: ByHand):
    async def task(here: Annotated[int, ConcurrencyLimit("there")], there: int) -> None: ...

    await add_all(still, (task, 1, 1), (task, 2, 1), (task, 1, 2))
    assert await claimed(by_hand) == ["a", "c"]


async def test_a_bare_class_in_metadata_allows_one(still: Docket, by_hand: ByHand):
    async def task(account: Annotated[int, ConcurrencyLimit]) -> None: ...

    await add_all(still, (task, 1), (task, 1), (task, 2))
    assert await claimed(by_hand) == ["a", "c"]


async def test_arguments_beyond_the_signature_can_be_named(still: Docket, by_hand: ByHand):
    async def task(limit: ConcurrencyLimit = ConcurrencyLimit("account"), **others: Any) -> None: ...

    await still.add(task, key="a")(account=1)
    await still.add(task, key="b")(account=1)
    await still.add(task, key="c")(account=2)
    assert await claimed(by_hand) == ["a", "c"]


async def test_all_positional_arguments_together_can_be_named(still: Docket, by_hand: ByHand):
    async def task(*path: str, limit: ConcurrencyLimit = ConcurrencyLimit("path")) -> None: ...

    await add_all(still, (task, "x", "y"), (task, "x", "y"), (task, "x"))
    assert await claimed(by_hand) == ["a", "c"]


async def test_tasks_share_nothing_with_each_other(still: Docket, by_hand: ByHand):
    await add_all(still, (alone,), (per_account, 1), (by_name, 1))
    assert await claimed(by_hand) == ["a", "b", "c"]


async def test_tasks_of_one_scope_share_their_limit(still: Docket, by_hand: ByHand):
    async def one(limit: ConcurrencyLimit = ConcurrencyLimit(scope="printer")) -> None: ...
    async def two(limit: ConcurrencyLimit = ConcurrencyLimit(scope="printer")) -> None: ...
    async def other(limit: ConcurrencyLimit = ConcurrencyLimit(scope="plotter")) -> None: ...

    await add_all(still, (one,), (two,), (other,))
    assert await claimed(by_hand) == ["a", "c"]


async def test_tasks_of_one_scope_share_each_value(still: Docket, by_hand: ByHand):
    async def one(account: Annotated[int, ConcurrencyLimit(1, scope="bank")]) -> None: ...
    async def two(account: int, limit: ConcurrencyLimit = ConcurrencyLimit("account", scope="bank")) -> None: ...

    await add_all(still, (one, 1), (two, 1), (two, 2))
    assert await claimed(by_hand) == ["a", "c"]


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


DIFFERENT = [
    (1, "1"), (1, True), (0, False), (1, 1.0), ("", None), ("None", None), ("x" * 5000, "x" * 4999 + "y"),
    ([1, 2], [2, 1]), ([1], (1,)), ({"a": 1}, {"a": 2}), (b"x", "x"), ("a\n", "a"), (Colour.RED, Colour.BLUE),
    ("a\ud800", "a\ud801"), ("x" * 98, "x" * 99), (frozenset("a"), frozenset("b")), (set[int](), {}),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), DIFFERENT, ids=lambda value: ascii(value)[:20])
def test_different_values_are_told_apart(one: Any, other: Any):
    limit = ConcurrencyLimit("account")
    keys = [limit.key_for("task", {"account": value}) for value in (one, other)]
    assert keys[0] != keys[1]
    assert all(len(key) <= 1000 for key in keys)


@pytest.mark.parametrize(
    "value", [1, "x" * 5000, [1, {"a": [2]}], {"b": 1}, None, Colour.RED], ids=lambda v: ascii(v)[:20]
)
async def test_values_that_are_the_same_share_a_limit(pickling: Docket, value: Any):
    await add_all(pickling, (per_account, value), (per_account, value))
    claims = (await pickling.engine.claim("w", 5, lease=30 * SECOND)).claims
    assert [claim.key for claim in claims] == ["a"]


def test_a_set_is_the_same_in_whatever_order_it_was_filled():
    limit = ConcurrencyLimit("tags")
    # 8 and 0 fall into one place of a small table: which of them comes first is a matter of history.
    assert repr({0, 8}) != repr({8, 0})
    assert limit.key_for("task", {"tags": {0, 8}}) == limit.key_for("task", {"tags": {8, 0}})


def test_a_task_and_a_scope_of_one_name_are_two_things():
    here, there = ConcurrencyLimit(), ConcurrencyLimit(scope="sync")
    assert here.key_for("sync", {}) != there.key_for("sync", {})


def test_a_long_name_makes_a_key_that_can_be_stored():
    keys = {ConcurrencyLimit(scope=letter * 1000).key_for("t", {}) for letter in "ab"}
    assert len(keys) == 2
    assert all(len(key) <= 1000 for key in keys)


class Anonymous:
    """Its repr is where it lies in memory."""


@pytest.mark.parametrize("value", [object(), [Anonymous()], {"deep": (Anonymous(),)}])
async def test_a_value_that_cannot_be_told_apart_is_refused(pickling: Docket, value: Any):
    with pytest.raises(InvalidType, match=r"'account' of the task 'per_account' is or holds an object whose repr"):
        await pickling.add(per_account)(value)
    assert (await pickling.snapshot()).total_tasks == 0


def test_a_number_that_is_given_twice_is_refused():
    with pytest.raises(ValueError, match="given twice: 3 and 5"):
        ConcurrencyLimit(3, max_concurrent=5)


# Waiting


async def test_a_run_that_finds_no_room_waits_outside_of_any_worker(still: Docket, by_hand: ByHand):
    await add_all(still, (alone,), (alone,))
    await by_hand.claim_all()
    waiting = await run_of(still, key="b")
    assert (waiting.state, waiting.worker, waiting.started) == (State.SCHEDULED, None, None)


async def test_runs_wake_in_the_order_they_came(still: Docket, by_hand: ByHand):
    await add_all(still, *[(alone, number) for number in range(5)])
    order: list[str] = []
    for _ in range(5):
        (claim,) = await by_hand.claim_all()
        order.append(claim.key)
        await by_hand.settle(claim)
    assert order == ["a", "b", "c", "d", "e"]


async def test_one_place_set_free_wakes_one(still: Docket, by_hand: ByHand):
    await add_all(still, *[(two_at_once, number) for number in range(5)])
    first, _ = await by_hand.claim_all()
    await by_hand.settle(first)
    assert await claimed(by_hand) == ["c"]
    assert await claimed(by_hand) == []


@pytest.mark.parametrize("state", [State.COMPLETED, State.FAILED, State.CANCELLED])
async def test_every_end_sets_the_place_free(still: Docket, by_hand: ByHand, state: State):
    await add_all(still, (alone,), (alone,))
    (claim,) = await by_hand.claim_all()
    await by_hand.settle(claim, state)
    assert await claimed(by_hand) == ["b"]


async def test_a_body_that_fails_sets_its_place_free(still: Docket, by_hand: ByHand):
    async def fail(limit: ConcurrencyLimit = ConcurrencyLimit()) -> None:
        raise ValueError

    await add_all(still, (fail,), (fail,))
    assert (await by_hand.step()).key == "a"
    assert (await by_hand.step()).key == "b"


async def test_a_waiting_run_that_is_cancelled_makes_way(still: Docket, by_hand: ByHand):
    await add_all(still, (alone,), (alone,), (alone,))
    (claim,) = await by_hand.claim_all()
    await still.cancel("b")
    await by_hand.settle(claim)
    assert await claimed(by_hand) == ["c"]


async def test_a_woken_run_that_is_cancelled_passes_its_turn_on(still: Docket, by_hand: ByHand):
    await add_all(still, (alone,), (alone,), (alone,))
    (claim,) = await by_hand.claim_all()
    await by_hand.settle(claim)
    await still.cancel("b")
    assert await claimed(by_hand) == ["c"]


async def test_a_run_that_waits_for_a_place_keeps_nobody_else_from_starting(still: Docket, by_hand: ByHand):
    await add_all(still, (per_account, 1), (per_account, 1), (per_account, 1), (per_account, 2))
    assert await claimed(by_hand) == ["a", "d"]


async def test_a_run_that_is_to_be_tried_again_gives_its_place_up_meanwhile(
    still: Docket, by_hand: ByHand, clock: VirtualClock
):
    async def flaky(
        limit: ConcurrencyLimit = ConcurrencyLimit(), retry: Retry = Retry(attempts=2, delay=SECOND)
    ) -> None:
        if retry.attempt == 1:
            raise ValueError

    await add_all(still, (flaky,), (flaky,))
    await by_hand.step()
    (second,) = await by_hand.claim_all()
    assert second.key == "b"
    clock.jump(SECOND)
    assert await claimed(by_hand) == []
    await by_hand.settle(second)
    again = await by_hand.step()
    assert (again.key, again.attempt, again.state) == ("a", 2, State.COMPLETED)


async def test_a_perpetual_task_goes_under_its_limit_every_time(still: Docket, by_hand: ByHand):
    async def tick(
        account: int, limit: ConcurrencyLimit = ConcurrencyLimit("account"), perpetual: Perpetual = Perpetual()
    ) -> None: ...

    await add_all(still, (tick, 1), (tick, 1))
    assert [(await by_hand.step()).key for _ in range(4)] == ["a", "b", "a", "b"]
    runs = (await still.engine.find(RunQuery(states=(State.QUEUED, State.SCHEDULED)))).items
    assert [limit.key for run in runs for limit in run.limits] == ["concurrency:task:tick:account=1"] * 2


async def test_a_limit_of_a_perpetual_task_goes_with_its_arguments(still: Docket, by_hand: ByHand):
    async def tick(account: Annotated[int, ConcurrencyLimit(1)], perpetual: Perpetual = Perpetual()) -> None:
        perpetual.perpetuate(account + 1)

    await still.add(tick, key="k")(1)
    await by_hand.step()
    (limit,) = (await run_of(still, key="k")).limits
    assert limit.key == "concurrency:task:tick:account=2"


# With workers


class Watched:
    """How many are at work at once, at most."""

    def __init__(self) -> None:
        self.now = self.most = self.ended = 0

    async def work(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.now -= 1
        self.ended += 1


async def test_the_limit_holds_within_a_worker(docket: Docket, make_worker: MakeWorker):
    watched = Watched()

    async def work(limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=3)) -> None:
        await watched.work()

    for _ in range(20):
        await docket.add(work)()
    await finish(make_worker(concurrency=10))
    assert (watched.most, watched.ended) == (3, 20)


async def test_the_limit_holds_over_two_workers(docket: Docket, make_worker: MakeWorker):
    begun: list[str] = []
    both, release = asyncio.Event(), asyncio.Event()

    async def hold(name: str, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=2)) -> None:
        begun.append(name)
        if len(begun) == 2:
            both.set()
        await release.wait()

    executions = [await docket.add(hold)(name) for name in "abcd"]
    async with at_work(make_worker(name="one", concurrency=4), make_worker(name="two", concurrency=4)):
        await soon(both.wait())
        snapshot = await docket.snapshot()
        assert (begun, len(snapshot.running), len(snapshot.future)) == (["a", "b"], 2, 2)
        release.set()
        for execution in executions:
            await soon(execution.get_result())
    assert sorted(begun) == ["a", "b", "c", "d"]


async def test_plain_functions_have_limits_too(docket: Docket, make_worker: MakeWorker):
    now: list[int] = []
    most: list[int] = []

    def work(limit: ConcurrencyLimit = ConcurrencyLimit()) -> None:
        now.append(1)
        most.append(len(now))
        now.pop()

    for _ in range(5):
        await docket.add(work)()
    await finish(make_worker(concurrency=5))
    assert most == [1] * 5


# What the body sees


async def test_the_body_can_ask_which_runs_it_shares_the_limit_with(still: Docket, by_hand: ByHand):
    keys: list[str] = []

    async def task(account: int, limit: ConcurrencyLimit = ConcurrencyLimit("account", 3)) -> None:
        keys.append(limit.concurrency_key)
        assert limit.max_concurrent == 3

    await still.add(task)(5)
    await by_hand.step()
    assert keys == ["concurrency:task:task:account=5"]


def test_outside_of_a_run_there_is_no_key():
    with pytest.raises(RuntimeError, match="only while a worker runs the task"):
        _ = ConcurrencyLimit("account").concurrency_key


# Calls and declarations that do not fit


async def test_a_call_without_the_argument_fails_when_it_runs(still: Docket, by_hand: ByHand):
    async def task(limit: ConcurrencyLimit = ConcurrencyLimit("account"), **more: int) -> None: ...

    await still.add(task)(other=2)
    run = await by_hand.step()
    assert run.state is State.FAILED
    assert "ConcurrencyLimit of the task 'task' needs the argument 'account'; given were: other" in (run.error or "")


def test_a_parameter_that_the_task_does_not_have_is_refused(docket: Docket):
    async def task(account: int, limit: ConcurrencyLimit = ConcurrencyLimit("acount")) -> None: ...

    with pytest.raises(InvalidArgument, match=r"task 'task': ConcurrencyLimit names the parameter 'acount'.*account"):
        docket.register(task)
    assert "task" not in docket.tasks


def test_a_task_has_one_limit_on_concurrency(docket: Docket):
    async def task(
        account: Annotated[int, ConcurrencyLimit(1)], limit: ConcurrencyLimit = ConcurrencyLimit()
    ) -> None: ...

    with pytest.raises(UsageError, match=r"task 'task'.*ConcurrencyLimit"):
        docket.register(task)


@pytest.mark.parametrize(
    ("one", "same"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ([{"x", "y", "z"}], [{"z", "y", "x"}]),
        ({"deep": ({1, 2, 3},)}, {"deep": ({3, 2, 1},)}),
    ],
)
def test_equal_values_share_a_limit_whatever_order_they_show(one: Any, same: Any):
    limit = ConcurrencyLimit("account")
    assert limit.key_for("task", {"account": one}) == limit.key_for("task", {"account": same})


@pytest.mark.parametrize(("one", "other"), [([1], (1,)), ({1}, [1]), ("1", 1), ({"a": 1}, {"a": 2}), (True, 1)])
def test_values_that_differ_share_none(one: Any, other: Any):
    limit = ConcurrencyLimit("account")
    assert limit.key_for("task", {"account": one}) != limit.key_for("task", {"account": other})


def test_a_limit_on_what_is_injected_is_refused(docket: Docket):
    async def task(
        account: int = Depends(lambda: 1), limit: ConcurrencyLimit = ConcurrencyLimit("account")
    ) -> None: ...

    with pytest.raises(
        InvalidArgument, match="task 'task': ConcurrencyLimit names the parameter 'account', which callers"
    ):
        docket.register(task)
