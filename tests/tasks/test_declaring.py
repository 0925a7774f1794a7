"""Declaring tasks: what @task says holds unless the call says otherwise."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dovetail import (
    ConcurrencyLimit,
    Cron,
    CurrentExecution,
    Docket,
    Execution,
    ExecutionState,
    Perpetual,
    Retry,
    Timeout,
    Worker,
    task,
)
from dovetail.errors import ConflictingBehaviors, DuplicateTask, InvalidArgument, InvalidType
from dovetail.model import Retention
from dovetail.testing import assert_scheduled
from tests.by_hand import ByHand, finish, run_of
from tests.conftest import MakeWorker

ran: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@task(
    name="mail.send",
    queue="mail",
    priority=7,
    behaviors=[Retry(attempts=2)],
    tags=["mail", "out"],
    retention=timedelta(hours=3),
)
async def send(address: str) -> str:
    ran.append(address)
    if len(ran) < 2:
        raise ValueError("not yet")
    return address


@task
def plain(number: int) -> int:
    return number + 1


async def test_a_declared_function_is_still_one() -> None:
    ran.append("before")
    assert await send("ann") == "ann"
    assert plain(1) == 2


async def test_what_is_declared_holds(docket: Docket) -> None:
    execution = await docket.add(send)("ann")
    run = await run_of(docket, key=execution.key)
    assert (run.task, run.queue, run.priority) == ("mail.send", "mail", 7)
    assert (execution.function_name, execution.tags) == ("mail.send", ("mail", "out"))
    assert docket.execution_of(run).tags == ("mail", "out")


async def test_what_the_call_says_wins_also_where_it_is_the_default(docket: Docket) -> None:
    execution = await docket.add(send, queue="default", priority=0, tags=[])("ann")
    run = await run_of(docket, key=execution.key)
    assert (run.queue, run.priority, execution.tags) == ("default", 0, ())
    call = docket.call(send, queue="other", priority=-1, tags=["x"])("bob")
    (other,) = await docket.add_many([call])
    run = await run_of(docket, key=other.key)
    assert (run.queue, run.priority, other.tags) == ("other", -1, ("x",))
    replaced = await docket.replace(send, datetime(2040, 1, 1, tzinfo=UTC), "k", queue="default")("ann")
    assert (await run_of(docket, key=replaced.key)).queue == "default"


async def test_declared_behaviors_are_at_work(docket: Docket, worker: Worker) -> None:
    execution = await docket.add(send)("ann")
    await finish(worker)
    assert ran == ["ann", "ann"]
    assert await execution.get_result() == "ann"


async def test_declared_behaviors_go_with_those_of_parameters(docket: Docket, worker: Worker) -> None:
    @task(behaviors=[Timeout(timedelta(milliseconds=20)), ConcurrencyLimit("number", max_concurrent=1)])
    async def slow(number: int, retry: Retry = Retry(attempts=2)) -> None:
        ran.append(retry.attempt)
        await asyncio.Event().wait()

    execution = await docket.add(slow)(1)
    await finish(worker)
    await execution.sync()
    assert (ran, execution.state) == ([1, 2], ExecutionState.FAILED)
    assert execution.run is not None
    assert [limit.capacity for limit in execution.run.limits] == [1]


async def test_a_declared_perpetual_task_is_started_in_its_queue(docket: Docket, make_worker: MakeWorker) -> None:
    @task(name="tick", queue="ticks", priority=3, behaviors=[Perpetual(timedelta(hours=1), automatic=True)], tags=["t"])
    async def tick() -> None:
        ran.append("tick")

    docket.register(tick)
    await finish(make_worker(), tick=1)
    assert ran == ["tick"]
    page = (await docket.snapshot()).future
    for each in page:
        assert each.tags == ("t",)


async def test_the_next_run_keeps_what_was_declared_and_said(by_hand: ByHand, still: Docket) -> None:
    @task(behaviors=[Perpetual()], tags=["declared"])
    async def again() -> None: ...

    execution = await still.add(again, key="k", tags=["said"], queue="q")()
    await by_hand.step()
    later = await still.get_execution("k")
    assert later is not None
    assert later.run is not None
    assert later.id != execution.id
    assert (later.tags, later.run.queue) == (("said",), "q")


async def test_a_worker_sees_the_tags(docket: Docket, worker: Worker) -> None:
    @task(tags=("a", "b"))
    async def look(execution: Execution[None] = CurrentExecution()) -> None:
        ran.append(execution.tags)

    await docket.add(look)()
    await finish(worker)
    assert ran == [("a", "b")]


async def test_a_declared_retention_counts_instead_of_the_dockets(by_hand: ByHand, still: Docket) -> None:
    @task(retention=Retention(completed=timedelta()))
    async def leaves_nothing() -> None: ...

    execution = await still.add(leaves_nothing, key="k")()
    verdict = await by_hand.attempt()
    assert verdict is not None
    await still.engine.finish([verdict])
    assert await still.get_execution(execution.key) is None


async def test_a_declared_name_is_used_by_strikes_and_assertions(docket: Docket) -> None:
    await docket.add(send)("ann")
    await assert_scheduled(docket, send, "ann")
    await docket.strike(send)
    assert [strike.function for strike in await docket.strikes()] == ["mail.send"]
    assert (await docket.add("mail.send")("bob")).disposition == "struck"


# Names


def named(name: str | None) -> Any:
    @task(name=name)
    async def inner() -> None: ...

    return inner


async def test_two_functions_of_one_explicit_name_are_refused(docket: Docket) -> None:
    first, second = named("same"), named("same")
    docket.register(first)
    docket.register(first)
    with pytest.raises(DuplicateTask, match=r"two tasks are called 'same': .*named.<locals>.inner and .*give one"):
        docket.register(second)
    with pytest.raises(DuplicateTask):
        docket.add(second)
    docket.register(second, names=["same"])
    assert docket.tasks["same"] is second


async def test_a_function_without_an_explicit_name_takes_the_place_of_another(docket: Docket) -> None:
    docket.register(named(None))
    docket.register(second := named(None))
    assert docket.tasks["inner"] is second


async def test_a_function_that_is_defined_again_is_no_clash(docket: Docket) -> None:
    first, second = named("same"), named("same")
    first.__qualname__ = second.__qualname__ = "inner"
    docket.register(first)
    docket.register(second)
    assert docket.tasks["same"] is second


# What makes no sense


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": ""}, "name must not be empty"),
        ({"name": 5}, "name must be text"),
        ({"queue": None}, "queue must be text"),
        ({"priority": "high"}, "priority must be a whole number"),
        ({"behaviors": Retry()}, "behaviors must be a list of behaviors"),
        ({"behaviors": [Retry]}, "each of behaviors must be a behavior"),
        ({"behaviors": ["retry"]}, "each of behaviors must be a behavior"),
        ({"tags": "mail"}, "tags must be a list of texts"),
        ({"retention": 5}, "retention must be a timedelta"),
        ({"retention": timedelta(-1)}, "retention must be zero or more"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises((InvalidArgument, InvalidType), match=message):
        task(**arguments)


def test_only_functions_are_declared() -> None:
    with pytest.raises(InvalidType, match="function must be a function, not int 5"):
        task(5)  # type: ignore[call-overload]
    with pytest.raises(InvalidType, match="cannot be declared as a task"):
        task(name="len")(len)


async def test_declared_behaviors_that_do_not_go_together_are_refused(docket: Docket) -> None:
    @task(behaviors=[Retry(attempts=2)])
    async def twice(retry: Retry = Retry(attempts=3)) -> None: ...

    with pytest.raises(ConflictingBehaviors, match=r"task 'twice': Only one Retry .*@task"):
        docket.register(twice)

    @task(behaviors=[ConcurrencyLimit("account", max_concurrent=1)])
    async def no_account() -> None: ...

    with pytest.raises(InvalidArgument, match=r"task 'no_account': .*'account'"):
        docket.register(no_account)


async def test_a_cron_may_be_declared(docket: Docket) -> None:
    @task(behaviors=[Cron("0 9 * * *")])
    async def daily() -> None: ...

    docket.register(daily)
    assert "daily" in docket.tasks
