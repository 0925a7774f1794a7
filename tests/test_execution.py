"""Execution: the handle a caller holds on a run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dovetail import (
    CurrentExecution,
    Disposition,
    Docket,
    Execution,
    ExecutionCancelled,
    ExecutionFailed,
    ExecutionState,
    ResultExpired,
    Retry,
    Worker,
)
from dovetail.clock import VirtualClock
from dovetail.errors import DovetailError
from dovetail.model import Claim, Event, EventKind, Failure, ProgressReport, Settle, State, Topic
from tests.by_hand import ByHand, at_work, finish
from tests.faults import behind_a_door
from tests.waiting import soon

MakeWorker = Callable[..., Worker]
AN_HOUR = timedelta(hours=1)


async def greet(name: str = "nobody") -> str:
    return f"hello {name}"


async def silent() -> None: ...


async def fail(message: str) -> None:
    raise ValueError(message)


class Mine(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


async def fail_in_my_own_way() -> None:
    raise Mine(42)


def later() -> datetime:
    return datetime.now(UTC) + AN_HOUR


def made(docket: Docket, *args: Any, function: Any = greet, key: str = "k", **kwargs: Any) -> Execution[Any]:
    return Execution(docket, function, args, kwargs, key, datetime(2030, 1, 1, tzinfo=UTC))


# What it is


def test_a_fresh_execution_says_scheduled_and_loaded(docket: Docket):
    execution = made(docket)
    assert execution.state is ExecutionState.SCHEDULED
    assert execution.disposition is Disposition.LOADED
    assert (execution.attempt, execution.redelivered) == (1, False)
    assert (execution.worker, execution.started_at, execution.completed_at, execution.error) == (None,) * 4


READ_ONLY = [
    "docket",
    "function",
    "args",
    "kwargs",
    "key",
    "function_name",
    "trace_context",
    "redelivered",
    "generation",
]


@pytest.mark.parametrize("name", READ_ONLY)
def test_what_identifies_an_execution_is_read_only(docket: Docket, name: str):
    with pytest.raises(AttributeError):
        setattr(made(docket), name, None)


def test_the_states_are_those_of_docket_and_one_for_parents():
    states = {state.value for state in ExecutionState}
    assert states == {"scheduled", "queued", "running", "completed", "failed", "cancelled", "waiting"}


def test_the_dispositions_are_those_of_docket():
    dispositions = {disposition.value for disposition in Disposition}
    assert dispositions == {"loaded", "scheduled", "already_scheduled", "struck", "superseded", "failed"}


def test_an_argument_is_found_however_it_was_given(docket: Docket):
    assert made(docket, "ann").get_argument("name") == "ann"
    assert made(docket, name="ann").get_argument("name") == "ann"


def test_an_argument_that_was_not_given_is_a_key_error(docket: Docket):
    with pytest.raises(KeyError):
        made(docket).get_argument("name")
    with pytest.raises(KeyError):
        made(docket, "ann").get_argument("no_such_parameter")


def test_a_surplus_keyword_argument_is_found(docket: Docket):
    async def flexible(**more: Any) -> None: ...

    assert made(docket, function=flexible, extra=5).get_argument("extra") == 5


async def two(a: int, b: int) -> None: ...


@pytest.mark.parametrize(
    ("args", "kwargs", "shown"),
    [
        ((), {}, "two(){k}"),
        ((1,), {}, "two(...){k}"),
        ((1,), {"b": 2}, "two(..., b=...){k}"),
        ((), {"b": 2, "a": 1}, "two(b=..., a=...){k}"),
        ((1, 2, 3, 4), {}, "two(..., ...){k}"),
    ],
)
def test_a_call_is_shown_without_its_values(docket: Docket, args: Any, kwargs: Any, shown: str):
    assert made(docket, *args, function=two, **kwargs).call_repr() == shown


def test_an_execution_shows_its_call_and_state(docket: Docket):
    assert repr(made(docket, "secret")) == "<Execution greet(...){k} scheduled>"


def test_the_labels_of_an_execution(docket: Docket):
    execution = made(docket)
    assert execution.general_labels() == {"docket.task": "greet"}
    assert execution.specific_labels() == {
        "docket.task": "greet",
        "docket.key": "k",
        "docket.when": "2030-01-01T00:00:00+00:00",
        "docket.attempt": 1,
    }


# Sync


async def test_sync_reads_what_became_of_a_run(docket: Docket, worker: Worker):
    before = datetime.now(UTC)
    execution = await docket.add(greet)("ann")
    await finish(worker)
    assert execution.state is ExecutionState.QUEUED
    await execution.sync()
    assert execution.state is ExecutionState.COMPLETED
    assert execution.worker == "worker"
    assert execution.error is None
    assert execution.started_at is not None
    assert execution.completed_at is not None
    assert before - timedelta(seconds=1) <= execution.started_at <= execution.completed_at


async def test_sync_reads_an_error(docket: Docket, worker: Worker):
    execution = await docket.add(fail)("no")
    await finish(worker)
    await execution.sync()
    assert (execution.state, execution.error) == (ExecutionState.FAILED, "ValueError: no")


async def test_sync_reads_which_attempt_it_is(still: Docket, by_hand: ByHand):
    async def fail_twice(retry: Retry = Retry(attempts=2)) -> None:
        raise ValueError

    execution = await still.add(fail_twice, key="k")()
    await by_hand.step()
    await execution.sync()
    assert execution.attempt == 2


async def test_sync_of_a_run_without_a_record_goes_back_to_the_beginning(docket: Docket, worker: Worker):
    docket.execution_ttl = timedelta()
    execution = await docket.add(greet)()
    await finish(worker)
    execution.worker, execution.error = "somebody", "something"
    await execution.sync()
    assert execution.state is ExecutionState.SCHEDULED
    assert (execution.worker, execution.started_at, execution.completed_at, execution.error) == (None,) * 4


async def test_a_running_task_knows_its_worker_and_when_it_began(docket: Docket, worker: Worker):
    async def introspect(execution: Execution[Any] = CurrentExecution()) -> tuple[str, str | None, bool]:
        return execution.state.value, execution.worker, execution.started_at is not None

    execution = await docket.add(introspect)()
    await finish(worker)
    assert await execution.get_result() == ("running", "worker", True)


# Results


async def test_a_result_is_the_value_the_task_returned(docket: Docket, worker: Worker):
    execution = await docket.add(greet)("ann")
    await finish(worker)
    assert await execution.get_result() == "hello ann"


async def test_a_task_that_returns_nothing_has_none_for_a_result(docket: Docket, worker: Worker):
    execution = await docket.add(silent)()
    await finish(worker)
    assert await execution.get_result() is None
    assert execution.state is ExecutionState.COMPLETED


@pytest.mark.parametrize("value", [0, "", False, [], {}])
async def test_a_falsy_result_is_a_result(docket: Docket, worker: Worker, value: Any):
    async def give(value: Any) -> Any:
        return value

    execution = await docket.add(give)(value)
    await finish(worker)
    result = await execution.get_result()
    assert result == value
    assert type(result) is type(value)


async def test_a_result_can_be_fetched_by_another_process_that_knows_only_the_key(url: str, make_worker: MakeWorker):
    async with Docket("tests", url) as here, Docket("tests", url) as there:
        await here.add(greet, key="k")("ann")
        await finish(make_worker(here))
        found = await there.get_execution("k")
        assert found is not None
        assert await found.get_result() == "hello ann"


async def test_a_result_that_is_not_there_yet_is_waited_for(docket: Docket, worker: Worker):
    execution = await docket.add(greet)("ann")
    waiting = asyncio.create_task(execution.get_result())
    await finish(worker)
    assert await soon(waiting) == "hello ann"


async def test_many_may_wait_for_one_result(docket: Docket, worker: Worker):
    execution = await docket.add(greet)("ann")
    waiting = [asyncio.create_task(execution.get_result()) for _ in range(20)]
    await finish(worker)
    assert await soon(asyncio.gather(*waiting)) == ["hello ann"] * 20


async def test_no_waiter_misses_an_end_however_they_race(
    docket: Docket, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("dovetail.execution.LOOK_AGAIN", 3600.0)
    async with at_work(make_worker(concurrency=20)):
        executions = [await docket.add(greet)(f"{number}") for number in range(300)]
        results = await soon(asyncio.gather(*(execution.get_result() for execution in executions)))
    assert results == [f"hello {number}" for number in range(300)]


async def test_a_run_that_ends_between_the_read_and_the_subscription_is_not_missed(
    docket: Docket, worker: Worker, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("dovetail.execution.LOOK_AGAIN", 3600.0)
    execution = await docket.add(greet)("ann")
    faults = behind_a_door(docket)

    async def end_it() -> None:
        del faults.after["find"]
        await finish(worker)

    faults.after["find"] = end_it
    assert await soon(execution.get_result()) == "hello ann"


async def test_a_waiter_whose_events_are_lost_looks_again(
    still: Docket, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("dovetail.execution.LOOK_AGAIN", 0.01)
    execution = await still.add(greet)("ann")
    faults = behind_a_door(still)
    waiting = asyncio.create_task(execution.get_result())
    looked = asyncio.create_task(faults.called("find", 5))
    await asyncio.wait([waiting, looked], return_when=asyncio.FIRST_COMPLETED)
    assert not waiting.done(), waiting.exception()
    verdict = await by_hand.attempt()
    assert verdict is not None
    await still.engine.finish([verdict])
    assert await soon(waiting) == "hello ann"


async def test_a_finished_run_is_read_without_a_subscription(docket: Docket, worker: Worker):
    execution = await docket.add(greet)("ann")
    await finish(worker)
    faults = behind_a_door(docket)
    await execution.get_result()
    assert faults.calls["watch"] == 0


async def test_a_failed_run_raises_what_can_be_caught_as_an_execution_failure(docket: Docket, worker: Worker):
    execution = await docket.add(fail)("no such thing")
    await finish(worker)
    with pytest.raises(ExecutionFailed, match="no such thing") as caught:
        await execution.get_result()
    assert caught.value.run.key == execution.key
    assert "raise ValueError" in caught.value.failure.traceback


async def test_a_failed_run_raises_what_can_be_caught_as_the_built_in_type(docket: Docket, worker: Worker):
    execution = await docket.add(fail)("no such thing")
    await finish(worker)
    with pytest.raises(ValueError, match="no such thing"):
        await execution.get_result()


async def test_a_failure_of_a_type_of_ones_own_is_an_execution_failure(docket: Docket, worker: Worker):
    execution = await docket.add(fail_in_my_own_way)()
    await finish(worker)
    with pytest.raises(ExecutionFailed, match="code 42") as caught:
        await execution.get_result()
    assert caught.value.failure.type == "Mine"


async def test_with_pickle_the_original_exception_comes_back(pickling: Docket, make_worker: MakeWorker):
    execution = await pickling.add(fail_in_my_own_way)()
    await finish(make_worker(pickling))
    with pytest.raises(Mine) as caught:
        await execution.get_result()
    assert caught.value.code == 42


async def test_a_failed_group_can_be_fetched(docket: Docket, worker: Worker):
    async def fail_twofold() -> None:
        raise ExceptionGroup("both", [ValueError("left"), KeyError("right")])

    execution = await docket.add(fail_twofold)()
    await finish(worker)
    with pytest.raises(ExecutionFailed, match="both"):
        await execution.get_result()


async def test_a_cancelled_run_raises_that_it_was_cancelled(docket: Docket):
    execution = await docket.add(greet)()
    await docket.cancel(execution.key)
    with pytest.raises(ExecutionCancelled, match=execution.key):
        await execution.get_result()


async def test_a_result_that_is_no_longer_kept_has_expired(docket: Docket, worker: Worker):
    docket.execution_ttl = timedelta()
    execution = await docket.add(greet)()
    await finish(worker)
    with pytest.raises(ResultExpired, match="execution_ttl"):
        await execution.get_result()


async def ended(still: Docket, claim: Claim, error: str | None) -> None:
    failure = Failure(error, "no") if error else None
    await still.engine.finish([Settle(claim, State.FAILED if error else State.COMPLETED, failure=failure)])


async def outcome_of(waiting: asyncio.Task[Any]) -> Any:
    """What a waiter got: its result, or the type of what it was told instead."""
    try:
        return await soon(waiting)
    except DovetailError as error:
        return type(error)


@pytest.fixture
def looks_when_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter that is not reminded to look, so that its looks can be counted."""
    monkeypatch.setattr("dovetail.engine.reminding.DELAYS", ())


@pytest.mark.usefixtures("looks_when_told")
@pytest.mark.parametrize(("error", "outcome"), [(None, None), ("Mine", ExecutionFailed)])
async def test_one_who_waits_for_a_run_that_leaves_no_record_learns_how_it_ended(
    still: Docket, by_hand: ByHand, error: str | None, outcome: Any
):
    still.execution_ttl = timedelta()
    execution = await still.add(silent)()
    claim = await by_hand.claim()
    faults = behind_a_door(still)
    waiting = asyncio.create_task(execution.get_result())
    await faults.reached("find", 2)
    await ended(still, claim, error)
    assert await outcome_of(waiting) is outcome


@pytest.mark.usefixtures("looks_when_told")
@pytest.mark.parametrize(("error", "outcome"), [(None, None), ("Mine", ExecutionFailed)])
async def test_one_who_waits_learns_how_a_run_ended_that_was_gone_before_he_could_look(
    still: Docket, by_hand: ByHand, error: str | None, outcome: Any
):
    still.execution_ttl = timedelta()
    execution = await still.add(silent)()
    faults = behind_a_door(still)
    waiting = asyncio.create_task(execution.get_result())
    await faults.reached("find", 2)
    claimed: asyncio.Future[Claim] = asyncio.get_running_loop().create_future()

    async def end_it() -> None:
        del faults.before["find"]
        await ended(still, await claimed, error)

    # That it runs is told first, and makes the waiter look; by then it is over.
    faults.before["find"] = end_it
    claimed.set_result(await by_hand.claim())
    assert await outcome_of(waiting) is outcome


@pytest.mark.usefixtures("looks_when_told")
async def test_an_end_that_is_heard_of_when_the_run_is_back_at_work_is_not_its_result(still: Docket, by_hand: ByHand):
    execution = await still.add(greet, key="k")("ann")
    faults = behind_a_door(still)
    waiting = asyncio.create_task(execution.get_result())
    await faults.reached("find", 2)

    async def put_it_back() -> None:
        del faults.before["find"]
        await still.retry("k")

    claim = await by_hand.claim()
    await faults.reached("find", 3)  # having heard that it runs
    faults.before["find"] = put_it_back
    await by_hand.settle(claim)
    await faults.reached("find", 5)
    verdict = await by_hand.attempt()
    assert verdict is not None
    await still.engine.finish([verdict])
    assert await soon(waiting) == "hello ann"


# How long to wait


async def test_a_timeout_ends_the_wait(docket: Docket):
    execution = await docket.add(greet, when=later())()
    with pytest.raises(TimeoutError, match=r"^Timeout waiting for execution"):
        await soon(execution.get_result(timeout=timedelta(milliseconds=10)))


async def test_a_deadline_ends_the_wait(docket: Docket):
    execution = await docket.add(greet, when=later())()
    with pytest.raises(TimeoutError, match=r"^Timeout waiting for execution"):
        await soon(execution.get_result(deadline=datetime.now(UTC) + timedelta(milliseconds=10)))


async def test_a_deadline_that_has_passed_ends_the_wait_at_once(docket: Docket):
    execution = await docket.add(greet, when=later())()
    with pytest.raises(TimeoutError, match=r"^Timeout waiting for execution"):
        await soon(execution.get_result(deadline=datetime.now(UTC) - AN_HOUR))


async def test_what_is_over_is_told_to_one_who_has_no_time_to_wait(docket: Docket, worker: Worker):
    execution = await docket.add(greet)()
    await soon(worker.run_until_finished())
    assert await soon(execution.get_result(timeout=timedelta())) == "hello nobody"
    assert await soon(execution.get_result(deadline=datetime.now(UTC) - AN_HOUR)) == "hello nobody"


async def test_a_timeout_and_a_deadline_do_not_go_together(docket: Docket):
    execution = await docket.add(greet)()
    with pytest.raises(ValueError, match="both timeout and deadline"):
        await execution.get_result(timeout=AN_HOUR, deadline=later())


async def test_a_result_that_comes_in_time_is_returned(docket: Docket, worker: Worker):
    execution = await docket.add(greet)("ann")
    waiting = asyncio.create_task(execution.get_result(timeout=timedelta(seconds=5)))
    await finish(worker)
    assert await waiting == "hello ann"


async def test_a_task_that_failed_with_a_timeout_is_told_from_a_wait_that_took_too_long(docket: Docket, worker: Worker):
    async def too_slow() -> None:
        raise TimeoutError("the task's own")

    execution = await docket.add(too_slow)()
    await finish(worker)
    with pytest.raises(ExecutionFailed, match="the task's own") as caught:
        await execution.get_result(timeout=timedelta(seconds=5))
    assert isinstance(caught.value, TimeoutError)


async def test_one_who_stops_waiting_harms_nobody(docket: Docket, worker: Worker):
    execution = await docket.add(greet)("ann")
    impatient = asyncio.create_task(execution.get_result())
    patient = asyncio.create_task(execution.get_result())
    await asyncio.sleep(0)
    impatient.cancel()
    await finish(worker)
    assert await soon(patient) == "hello ann"
    assert impatient.cancelled() or impatient.done()


# Subscribing


async def states(events: AsyncIterator[Any], until: str) -> list[Any]:
    seen: list[Any] = []
    async for event in events:
        if event["type"] == "state":
            seen.append(event)
            if event["state"] == until:
                break
    return seen


async def test_the_first_two_events_are_a_read_and_need_no_subscription(still: Docket, clock: VirtualClock):
    when = clock.now() + AN_HOUR
    execution = await still.add(greet, when=when, key="k")()
    faults = behind_a_door(still)
    events = execution.subscribe()
    assert await anext(events) == {
        "type": "state",
        "key": "k",
        "state": ExecutionState.SCHEDULED,
        "when": when.isoformat(),
        "worker": None,
        "started_at": None,
        "completed_at": None,
        "error": None,
    }
    assert await anext(events) == {
        "type": "progress",
        "key": "k",
        "current": None,
        "total": 100,
        "message": None,
        "updated_at": None,
    }
    assert faults.calls["watch"] == 0
    await events.aclose()  # type: ignore[attr-defined]


@pytest.fixture
def followed() -> Callable[[Execution[Any], str], Any]:
    """Follow an execution until a state, in the background; returned once the subscription stands."""

    async def follow(execution: Execution[Any], until: str) -> asyncio.Task[list[Any]]:
        ready = asyncio.Event()
        task = asyncio.create_task(states(execution.subscribe(ready=ready), until))
        await soon(ready.wait())
        return task

    return follow


async def test_the_events_of_a_future_run_come_in_order(
    still: Docket, by_hand: ByHand, clock: VirtualClock, followed: Any
):
    execution = await still.add(greet, when=clock.now() + AN_HOUR)()
    following = await followed(execution, "completed")
    clock.jump(AN_HOUR)
    await by_hand.step()
    events = await soon(following)
    assert [event["state"] for event in events] == ["scheduled", "queued", "running", "completed"]
    assert all(isinstance(event["state"], ExecutionState) for event in events)


async def test_live_events_carry_what_belongs_to_them(
    still: Docket, by_hand: ByHand, clock: VirtualClock, followed: Any
):
    execution = await still.add(greet, when=clock.now() + AN_HOUR, key="k")()
    following = await followed(execution, "completed")
    clock.jump(AN_HOUR)
    await by_hand.step()
    now = clock.now().isoformat()
    running, completed = (await soon(following))[-2:]
    assert running == {
        "type": "state",
        "key": "k",
        "state": "running",
        "worker": "by hand",
        "started_at": now,
    }
    assert completed == {"type": "state", "key": "k", "state": "completed", "completed_at": now}


async def test_no_state_is_told_twice_when_hints_without_news_come_between(
    still: Docket, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
):
    # Such as the engine gives to those who may have missed something: they make the subscriber read for himself.
    watch = still.engine.watch

    @asynccontextmanager
    async def hinting(*topics: Topic) -> AsyncIterator[AsyncIterator[Event]]:
        async def interleaved(events: AsyncIterator[Event]) -> AsyncIterator[Event]:
            async for event in events:
                yield Event(EventKind.STATE)
                yield event

        async with watch(*topics) as events:
            yield interleaved(events)

    monkeypatch.setattr(still.engine, "watch", hinting)
    execution = await still.add(greet)()
    ready, heard = asyncio.Event(), asyncio.Queue[str]()

    async def listen() -> None:
        async for event in execution.subscribe(ready=ready):
            if event["type"] == "state":
                heard.put_nowait(event["state"].value)

    listening = asyncio.create_task(listen())
    await soon(ready.wait())
    claim = await by_hand.claim()
    told = [await soon(heard.get()), await soon(heard.get())]
    await ended(still, claim, None)
    told.append(await soon(heard.get()))
    listening.cancel()
    await asyncio.wait([listening])
    assert told == ["queued", "running", "completed"]


async def test_a_change_between_listening_and_reading_is_told_once(still: Docket, by_hand: ByHand):
    execution = await still.add(greet)()
    faults = behind_a_door(still)
    claims: list[Claim] = []

    async def claim_it() -> None:
        if faults.calls["watch"] and not claims:
            claims.append(await by_hand.claim())

    faults.before["find"] = claim_it
    ready = asyncio.Event()
    following = asyncio.create_task(states(execution.subscribe(ready=ready), "completed"))
    await soon(ready.wait())
    await ended(still, claims[0], None)
    assert [event["state"] for event in await soon(following)] == ["queued", "running", "completed"]


async def test_a_failure_is_told_with_its_error(still: Docket, by_hand: ByHand, followed: Any):
    execution = await still.add(fail)("no")
    following = await followed(execution, "failed")
    await by_hand.step()
    assert (await soon(following))[-1]["error"] == "ValueError: no"


async def test_a_cancellation_is_told(still: Docket, followed: Any):
    execution = await still.add(greet)()
    following = await followed(execution, "cancelled")
    await still.cancel(execution.key)
    event = (await soon(following))[-1]
    assert event["completed_at"] is not None
    assert "error" not in event


@pytest.mark.parametrize(("delay", "told"), [(timedelta(), "queued"), (AN_HOUR, "scheduled")])
async def test_a_retry_is_told_as_queued_or_as_scheduled(
    still: Docket, by_hand: ByHand, followed: Any, delay: timedelta, told: str, clock: VirtualClock
):
    async def fail_once(retry: Retry = Retry(attempts=2, delay=delay)) -> None:
        if retry.attempt == 1:
            raise ValueError

    # The declaration is read when the function is made, so that each case has its own.
    execution = await still.add(fail_once)()
    following = await followed(execution, "completed")
    await by_hand.step()
    clock.jump(AN_HOUR)
    await by_hand.step()
    heard = [event["state"] for event in await soon(following)]
    assert heard[:3] == ["queued", "running", told]
    assert heard[-2:] == ["running", "completed"]


async def test_what_changed_between_the_read_and_the_subscription_is_told(still: Docket, by_hand: ByHand):
    execution = await still.add(greet)()
    events = execution.subscribe()
    assert (await anext(events))["state"] == "queued"  # type: ignore[typeddict-item]
    await anext(events)
    await by_hand.step()
    assert (await soon(anext(events)))["state"] == "completed"
    await events.aclose()  # type: ignore[attr-defined]


async def test_progress_is_told(still: Docket, by_hand: ByHand):
    execution = await still.add(greet, key="k")()
    claim = await by_hand.claim()
    events = execution.subscribe()
    assert (await anext(events))["state"] == "running"  # type: ignore[typeddict-item]
    assert (await anext(events))["current"] == 0  # type: ignore[typeddict-item]
    ready = asyncio.Event()
    live = execution.subscribe(ready=ready)
    heard = [await anext(live), await anext(live)]
    next_one = asyncio.ensure_future(anext(live))
    await soon(ready.wait())
    report = ProgressReport("k", claim.id, claim.epoch, increment=3, total=10, message="on the way")
    await still.engine.report([report])
    progress = await soon(next_one)
    assert len(heard) == 2
    assert (progress["type"], progress["current"], progress["total"], progress["message"]) == (
        "progress",
        3,
        10,
        "on the way",
    )
    await live.aclose()  # type: ignore[attr-defined]
    await events.aclose()  # type: ignore[attr-defined]


async def test_events_of_other_keys_are_not_told(still: Docket, by_hand: ByHand, followed: Any):
    execution = await still.add(greet, key="mine")()
    following = await followed(execution, "completed")
    await still.add(greet, key="other")()
    await still.cancel("other")
    await by_hand.step()
    assert {event["key"] for event in await soon(following)} == {"mine"}


@pytest.mark.parametrize("key", ["a'b\"c", "line\nbreak", "{brace}", "ключ"])
async def test_events_of_any_key_are_told(still: Docket, by_hand: ByHand, followed: Any, key: str):
    execution = await still.add(greet, key=key)()
    following = await followed(execution, "completed")
    await by_hand.step()
    assert (await soon(following))[-1]["key"] == key


async def test_a_subscription_to_a_run_that_a_worker_runs_sees_it_through(docket: Docket, worker: Worker):
    execution = await docket.add(greet, when=datetime.now(UTC) + timedelta(milliseconds=50))()
    following = asyncio.create_task(states(execution.subscribe(), "completed"))
    async with at_work(worker):
        events = await soon(following)
    assert [event["state"] for event in events][-1] == "completed"


async def test_a_run_whose_record_is_gone_ended_as_it_was_last_seen_to(docket: Docket):
    execution = Execution(docket, greet, (), {}, "gone", later())
    execution.state, execution.error = ExecutionState.FAILED, "ValueError: it was wrong"
    with pytest.raises(ExecutionFailed, match="it was wrong"):
        await execution.get_result()
    execution.state = ExecutionState.CANCELLED
    with pytest.raises(ExecutionCancelled):
        await execution.get_result()


# Being replaced


async def test_a_body_can_ask_whether_its_run_was_replaced(docket: Docket, worker: Worker):
    first: list[bool] = []
    second: list[bool] = []

    async def work(answers: str, execution: Execution[Any] = CurrentExecution()) -> None:
        if answers == "second":
            second.append(await execution.is_superseded())
            return
        first.append(await execution.is_superseded())
        await docket.replace(work, datetime.now(UTC), "k")("second")
        first.append(await execution.is_superseded())

    await docket.add(work, key="k")("first")
    await finish(worker)
    assert (first, second) == ([False, True], [False])


async def test_an_execution_that_was_never_scheduled_is_not_superseded(docket: Docket):
    await docket.add(greet, key="k")()
    assert not await Execution(docket, greet, (), {}, "k", datetime.now(UTC)).is_superseded()
