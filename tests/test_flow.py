"""Flow: what a call waits for, what it receives, whose turn it takes, and when it is one too many."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import pytest

from dovetail import (
    ConcurrencyLimit,
    Disposition,
    Docket,
    Execution,
    ExecutionCancelled,
    ExecutionFailed,
    ExecutionState,
    Retry,
    Worker,
    result_of,
)
from dovetail.errors import InvalidArgument, InvalidType, PayloadError, UnknownParent
from dovetail.model import BROUGHT
from dovetail.worker.threads import Threads
from tests.by_hand import ByHand, at_work, finish, run_of
from tests.conftest import MakeWorker
from tests.waiting import soon

LATER = datetime(2040, 1, 1, tzinfo=UTC)
ran: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


async def number(value: int) -> int:
    ran.append(value)
    return value


async def add(left: int, right: int = 0) -> int:
    return left + right


async def total(values: Any) -> Any:
    ran.append(values)
    return sum(values.values() if isinstance(values, dict) else values)


async def breaks() -> int:
    raise ValueError("broken")


async def note(what: str) -> None:
    ran.append(what)


@pytest.fixture(params=["json", "pickle"])
async def either(url: str, request: pytest.FixtureRequest) -> AsyncIterator[Docket]:
    """A docket of either codec."""
    async with Docket("flow", url, codec=request.param) as docket:
        docket.register(number)
        yield docket


# Results as arguments


async def test_an_execution_as_an_argument_is_its_result(either: Docket, make_worker: MakeWorker) -> None:
    first = await either.add(number)(1)
    second = await either.add(add)(result_of(first), right=10)
    assert second.state is ExecutionState.WAITING
    await finish(make_worker(either))
    assert await second.get_result() == 11


@pytest.mark.parametrize("kind", [list, tuple, lambda each: {str(place): part for place, part in enumerate(each)}])
async def test_executions_in_a_container_are_their_results(either: Docket, make_worker: MakeWorker, kind: Any) -> None:
    parts = [await either.add(number)(each) for each in range(4)]
    together = await either.add(total)(kind(parts))
    await finish(make_worker(either))
    assert await together.get_result() == 6


async def test_many_results_come_together(docket: Docket, make_worker: MakeWorker) -> None:
    parts = [docket.call(add)(each) for each in range(1200)]
    together = docket.call(total)(parts)
    *_, last = await docket.add_many([*parts, together])
    await finish(make_worker(concurrency=100))
    assert await last.get_result() == sum(range(1200))


async def test_a_large_result_comes_as_well(docket: Docket, worker: Worker) -> None:
    async def long() -> str:
        return "x" * 100_000

    async def length(text: str) -> int:
        return len(text)

    first = await docket.add(long)()
    second = await docket.add(length)(result_of(first))
    await finish(worker)
    assert await second.get_result() == 100_000


async def test_a_chain_takes_results_along(docket: Docket, worker: Worker) -> None:
    step: Execution[int] = await docket.add(number)(1)
    for _ in range(5):
        step = await docket.add(add)(result_of(step), 1)
    await finish(worker)
    assert await step.get_result() == 6


async def test_a_diamond_is_scheduled_in_one_step(either: Docket, make_worker: MakeWorker) -> None:
    top = either.call(number)(1)
    left = either.call(add)(result_of(top), 10)
    right = either.call(add, key="right")(result_of(top), 100)
    bottom = either.call(add)(result_of(left), result_of(right))
    *_, last = await either.add_many([top, left, right, bottom], chunk_size=1)
    assert last.state is ExecutionState.WAITING
    await finish(make_worker(either))
    assert await last.get_result() == 112


async def test_a_batch_of_which_a_part_waits_for_nobody_leaves_nothing(docket: Docket) -> None:
    first = docket.call(number, key="first")(1)
    with pytest.raises(UnknownParent, match="nobody"):
        await docket.add_many([first, docket.call(number, after=["nobody"])(2)], chunk_size=1)
    assert await docket.get_execution("first") is None


async def test_a_parent_that_is_over_gives_its_result_at_once(docket: Docket, make_worker: MakeWorker) -> None:
    first = await docket.add(number)(5)
    await finish(make_worker())
    second = await docket.add(add)(result_of(first))
    assert second.state is ExecutionState.QUEUED
    await finish(make_worker())
    assert await second.get_result() == 5


async def test_a_parent_without_a_result_gives_none(docket: Docket, worker: Worker) -> None:
    async def tell(what: str | None) -> None:
        ran.append(what)

    first = await docket.add(note)("first")
    await docket.add(tell)(result_of(first))
    await finish(worker)
    assert ran == ["first", None]


async def test_a_retry_receives_the_result_again(docket: Docket, worker: Worker) -> None:
    async def flaky(value: int, retry: Retry = Retry(attempts=2)) -> int:
        if retry.attempt == 1:
            raise ValueError(value)
        return value

    again = await docket.add(flaky)(result_of(await docket.add(number)(7)))
    await finish(worker)
    assert await again.get_result() == 7


async def test_a_parent_that_was_replaced_gives_the_result_of_its_replacement(docket: Docket, worker: Worker) -> None:
    first = await docket.add(number, when=LATER, key="n")(1)
    second = await docket.add(add)(result_of(first))
    await docket.replace(number, datetime.now(UTC), "n")(2)
    await finish(worker)
    assert await second.get_result() == 2


async def test_a_parent_named_by_its_key_alone_is_found_among_those_waited_for(docket: Docket, worker: Worker) -> None:
    first = docket.call(number, key="n")(1)
    second = docket.call(add)(result_of(first))
    executions = await docket.add_many([first, second])
    await finish(worker)
    assert await executions[1].get_result() == 1


@pytest.mark.parametrize("size", [1, BROUGHT + 1])
async def test_a_result_is_kept_for_those_who_receive_it(url: str, threads: Threads, size: int) -> None:
    async def letters(count: int) -> str:
        return "x" * count

    async def count(text: str) -> int:
        return len(text)

    async with Docket("short", url, execution_ttl=timedelta()) as short, Docket("short", url) as docket:
        first = await short.add(letters)(size)
        second = await docket.add(count)(result_of(first))
        docket.register(letters)
        by_hand = ByHand(docket, threads)
        verdict = await by_hand.attempt()
        assert verdict is not None
        await docket.engine.finish([verdict])
        await docket.engine.sweep()
        assert await docket.get_execution(first.key) is None
        await by_hand.step()
        assert await second.get_result() == size


async def test_a_result_that_is_no_longer_kept_fails_the_run(still: Docket, by_hand: ByHand) -> None:
    first = await still.add(number, key="first")(1)
    await still.add(add, key="second")(result_of(first))
    await by_hand.step()
    await still.discard("first")
    run = await by_hand.step()
    assert run.state is ExecutionState.FAILED
    assert (run.error or "").startswith(
        "ResultExpired: the run 'second' is to receive the result of 'first', which is no"
    )


async def test_the_result_of_a_run_that_failed_fails_the_run(docket: Docket, worker: Worker) -> None:
    first = await docket.add(breaks, key="first")()
    second = await docket.add(add, after_failure="run")(result_of(first))
    await finish(worker)
    with pytest.raises(ExecutionFailed, match="'first', which has none: it failed: ValueError: broken"):
        await second.get_result()


async def test_an_execution_among_objects_of_a_class_is_refused(docket: Docket) -> None:
    class Box:
        pass

    with pytest.raises(PayloadError, match="argument 'values' of 'total'"):
        await docket.add(total)([await docket.add(number)(1), Box()])


async def test_a_limit_cannot_go_by_a_result_to_come(docket: Docket) -> None:
    async def limited(account: Annotated[int, ConcurrencyLimit(1)]) -> None: ...

    with pytest.raises(InvalidArgument, match="goes by the argument 'account'"):
        await docket.add(limited)(result_of(await docket.add(number)(1)))


async def test_a_task_cannot_return_an_execution(either: Docket, make_worker: MakeWorker) -> None:
    async def parent() -> Any:
        return await either.add(number)(1)

    execution = await either.add(parent)()
    await finish(make_worker(either))
    with pytest.raises(PayloadError, match="result could not be stored"):
        await execution.get_result()


def test_only_executions_have_a_result() -> None:
    with pytest.raises(InvalidType, match="must be an Execution"):
        result_of("key")  # type: ignore[call-overload]


# Waiting


async def test_after_waits_for_executions_calls_and_keys(by_hand: ByHand, still: Docket) -> None:
    one = await still.add(note, key="one")("one")
    await still.add(note, key="two")("two")
    three = still.call(note)("three")
    last = still.call(note, after=[one, "two", three])("last")
    await still.add_many([three, last])
    await by_hand.step_through()
    assert ran == ["one", "two", "three", "last"]


async def test_after_may_be_a_generator(docket: Docket, worker: Worker) -> None:
    parts = [await docket.add(note)(each) for each in "ab"]
    await docket.add(note, after=(each for each in parts))("last")
    await finish(worker)
    assert ran[2:] == ["last"]


async def test_what_hangs_on_a_failure_is_cancelled_to_any_depth(docket: Docket, worker: Worker) -> None:
    first = await docket.add(breaks, key="first")()
    second = await docket.add(note, after=[first])("second")
    third = await docket.add(note, after=[second])("third")
    await finish(worker)
    with pytest.raises(ExecutionCancelled, match=f"was cancelled: ParentFailed: the run {second.id}, which this one"):
        await third.get_result()
    assert third.run is not None
    assert third.run.doomed_by == second.id
    assert ran == []


async def test_a_run_may_go_whatever_became_of_its_parents(docket: Docket, worker: Worker) -> None:
    first = await docket.add(breaks)()
    await docket.add(note, after=[first], after_failure="run")("cleaned up")
    await finish(worker)
    assert ran == ["cleaned up"]


async def test_a_chain_of_six_is_done_at_once(docket: Docket, make_worker: MakeWorker) -> None:
    async with at_work(make_worker()):
        step: Execution[int] = await docket.add(number)(1)
        for _ in range(5):
            step = await docket.add(add)(result_of(step), 1)
        assert await soon(step.get_result()) == 6


@pytest.mark.parametrize("parent", ["nobody", None])
async def test_a_parent_that_does_not_exist_is_an_error(docket: Docket, parent: str | None) -> None:
    with pytest.raises(UnknownParent, match="there is no such run"):
        await docket.add(note, after=[parent or docket.call(note)("never sent")])("x")


async def test_a_stricken_call_cannot_be_waited_for(docket: Docket) -> None:
    await docket.strike(note)
    struck = await docket.add(note)("x")
    with pytest.raises(InvalidArgument, match="was stricken and never scheduled"):
        docket.add(number, after=[struck])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"after": "key"}, "after must be a list of executions or keys"),
        ({"after": 5}, "after must be a list of executions or keys"),
        ({"after": [5]}, "each of after must be an execution"),
        ({"after": [""]}, "each of after must not be empty"),
        ({"after_failure": "retry"}, "after_failure must be one of 'cancel', 'run', not 'retry'"),
        ({"group": 5}, "group must be text"),
        ({"group": ""}, "group must not be empty"),
        ({"unique": "always"}, "unique must be one of 'live', 'pending'"),
        ({"unique": "pending"}, "needs a key, or unique_by"),
        ({"unique_by": "what"}, "unique_by must be a list of texts"),
        ({"unique_by": ["colour"]}, "unique_by names 'colour', and 'note' has no such parameter; it has what"),
        ({"unique_by": []}, "unique_by names no parameter"),
        ({"unique_by": ["what"], "key": "k"}, "key 'k' and unique_by both say"),
        ({"queue": ""}, "queue must not be empty"),
        ({"priority": "high"}, "priority must be a whole number"),
    ],
)
async def test_an_option_that_makes_no_sense_is_named(docket: Docket, options: Any, message: str) -> None:
    for make in (docket.add, docket.call):
        with pytest.raises((InvalidArgument, InvalidType), match=message):
            make(note, **options)


async def test_a_single_execution_is_no_list(docket: Docket) -> None:
    with pytest.raises(InvalidType, match=r"such as \[execution\]"):
        docket.add(note, after=await docket.add(number)(1))  # type: ignore[call-overload]


# Fair share


async def test_groups_take_turns(by_hand: ByHand, still: Docket) -> None:
    for group in "aaab":
        await still.add(note, group=group)(group)
    await by_hand.step_through()
    assert sorted(ran[:2]) == ["a", "b"]
    assert (await run_of(still, id=(await still.add(note, group="c")("c")).id)).group == "c"


# Uniqueness


async def test_a_key_is_unique_while_its_run_lives_or_only_while_it_is_pending(by_hand: ByHand, still: Docket) -> None:
    await still.add(note, key="k")("first")
    claim = await by_hand.claim()
    assert (await still.add(note, key="k")("live")).disposition is Disposition.ALREADY_SCHEDULED
    beside = await still.add(note, key="k", unique="pending")("beside")
    assert beside.disposition is Disposition.SCHEDULED
    assert (await still.add(note, key="k", unique="pending")("x")).disposition is Disposition.ALREADY_SCHEDULED
    await by_hand.settle(claim)


async def sync(account: int, options: dict[str, int] | None = None, *, force: bool = False) -> None: ...


async def test_chosen_arguments_make_the_key(docket: Docket) -> None:
    once = docket.add(sync, unique_by=("account",))
    first = await once(1, {"a": 1})
    assert first.key.startswith("sync:")
    assert (await once(account=1, force=True)).disposition is Disposition.ALREADY_SCHEDULED
    assert (await once(2)).disposition is Disposition.SCHEDULED


async def test_the_order_in_a_dict_makes_no_other_key(docket: Docket) -> None:
    once = docket.add(sync, unique_by=["options", "account"])
    first = await once(1, {"a": 1, "b": 2})
    assert (await once(1, {"b": 2, "a": 1})).id == first.id
    assert (await once(1)).id != first.id


async def test_chosen_arguments_are_unique_within_a_batch(docket: Docket) -> None:
    call = docket.call(sync, unique_by=["account"], unique="pending")
    executions = await docket.add_many([call(1), call(2), call(1, force=True)])
    assert [each.disposition.value for each in executions] == ["scheduled", "scheduled", "already_scheduled"]


async def test_a_chosen_argument_has_to_be_given(docket: Docket) -> None:
    async def anything(**values: int) -> None: ...

    with pytest.raises(InvalidArgument, match="unique_by names 'account', which this call of 'anything'"):
        docket.call(anything, unique_by=["account"])(other=1)
