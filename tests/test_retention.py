"""How long records are kept, and how many; the archive, discarding and finding; on every store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dovetail import (
    CannotDiscard,
    Docket,
    Execution,
    ExecutionState,
    Perpetual,
    ResultExpired,
    Retention,
    UnknownRun,
    UsageError,
    task,
)
from dovetail.clock import VirtualClock
from dovetail.engine import Archives
from dovetail.errors import InvalidArgument, InvalidType
from tests.by_hand import ByHand

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


async def works(number: int = 0) -> int:
    return number


async def breaks(number: int = 0) -> None:
    raise ValueError(f"number {number}")


async def sweep(docket: Docket) -> None:
    while (await docket.engine.sweep()).more:
        pass


def keys(executions: Any) -> list[str]:
    return [each.key for each in executions]


async def keys_left(docket: Docket) -> list[str]:
    await sweep(docket)
    return keys(await docket.find(newest_first=False))


# How long


async def test_a_docket_says_how_long_each_ending_is_kept(url: str, clock: VirtualClock, threads: Any) -> None:
    retention = Retention(completed=MINUTE, failed=DAY)
    async with Docket("tests", url, clock=clock, retention=retention) as docket:
        assert (docket.retention, docket.execution_ttl) == (retention, MINUTE)
        by_hand = ByHand(docket, threads)
        await docket.add(works, key="well")()
        await docket.add(breaks, key="badly")()
        await by_hand.step_through()
        clock.jump(HOUR)
        assert await keys_left(docket) == ["badly"]


async def test_a_duration_is_meant_for_every_ending(url: str) -> None:
    assert Docket("tests", url, retention=HOUR).retention == Retention.of(HOUR)


async def test_a_ttl_is_a_retention(url: str) -> None:
    docket = Docket("tests", url, execution_ttl=HOUR)
    assert docket.retention == Retention.of(HOUR)
    docket.execution_ttl = MINUTE
    assert docket.retention == Retention.of(MINUTE)


async def test_only_one_of_both_can_be_given(url: str) -> None:
    with pytest.raises(InvalidArgument, match="execution_ttl and retention both say"):
        Docket("tests", url, execution_ttl=timedelta(minutes=15), retention=HOUR)


@pytest.mark.parametrize(
    ("retention", "message"),
    [
        (5, r"retention must be a timedelta or a Retention"),
        (-SECOND, r"retention must be zero or more"),
        (Retention(failed=-SECOND), r"retention\.failed must be zero or more"),
        (Retention(failed=5), r"retention\.failed must be a timedelta"),  # type: ignore[arg-type]
        (Retention(keep=0), r"retention\.keep must be at least 1"),
        (Retention(keep=1_000_000), r"retention\.keep must be at most 100000"),
        (Retention(keep=True), r"retention\.keep must be a whole number"),
        (Retention(archive=timedelta()), r"retention\.archive must be more than zero"),
    ],
)
def test_a_retention_that_cannot_be_is_refused(retention: Any, message: str) -> None:
    with pytest.raises((InvalidArgument, InvalidType), match=message):
        Docket("tests", "memory://", retention=retention)
    with pytest.raises((InvalidArgument, InvalidType), match=message):
        task(retention=retention)


async def test_a_task_says_how_long_it_is_kept(still: Docket, by_hand: ByHand, clock: VirtualClock) -> None:
    @task(retention=Retention(completed=DAY))
    async def precious() -> None: ...

    await still.add(precious, key="precious")()
    await still.add(works, key="plain")()
    await by_hand.step_through()
    clock.jump(HOUR)
    assert await keys_left(still) == ["precious"]


@pytest.mark.parametrize("retention", [Retention.forever(), timedelta.max])
async def test_for_ever_is_for_ever(still: Docket, by_hand: ByHand, clock: VirtualClock, retention: Any) -> None:
    @task(retention=retention)
    async def eternal() -> None: ...

    await still.add(eternal, key="eternal")()
    await by_hand.step()
    clock.jump(36_000 * DAY)
    assert await keys_left(still) == ["eternal"]


# How many


async def test_the_last_so_many_runs_of_a_task_are_kept(still: Docket, by_hand: ByHand, clock: VirtualClock) -> None:
    @task(retention=Retention(keep=2))
    async def counted(number: int) -> int:
        return number

    executions: list[Execution[int]] = []
    for number in range(4):
        executions.append(await still.add(counted, key=f"{number}")(number))
        await by_hand.step()
        clock.jump(DAY)
    assert await keys_left(still) == ["2", "3"]
    assert await executions[3].get_result() == 3
    with pytest.raises(ResultExpired):
        await executions[0].get_result()


async def test_a_perpetual_task_has_a_history(still: Docket, by_hand: ByHand, clock: VirtualClock) -> None:
    @task(retention=Retention(keep=3))
    async def again(perpetual: Perpetual = Perpetual(every=MINUTE)) -> None: ...

    await still.add(again, key="again")()
    for _ in range(5):
        await by_hand.step()
        clock.jump(MINUTE)
    await sweep(still)
    assert len(await still.find(states=["completed"])) == 3


# The archive


async def test_an_archive_is_refused_where_there_is_none(still: Docket) -> None:
    @task(retention=Retention(archive=DAY))
    async def archived() -> None: ...

    if isinstance(still.engine, Archives):
        await still.add(archived)()
        assert Docket("tests", still.url, retention=Retention(archive=DAY)).retention.archive == DAY
        return
    for refused in (still.add, still.register):
        with pytest.raises(
            UsageError, match="the retention of the task 'archived': an archive needs a docket in Postgre"
        ):
            refused(archived)
    with pytest.raises(UsageError, match=r"retention: an archive needs .* and this one is kept at redis://"):
        Docket("tests", still.url, retention=Retention(archive=DAY))


@pytest.fixture
async def archiving(url: str, clock: VirtualClock) -> AsyncIterator[Docket]:
    """A docket with an archive, in which three runs lie, of which one failed and has doomed another."""
    if url.startswith("redis"):
        pytest.skip("this store has no archive")
    async with Docket("tests", url, clock=clock, retention=Retention.of(MINUTE).but(archive=DAY)) as docket:
        yield docket


@pytest.fixture
async def put_away(archiving: Docket, clock: VirtualClock, threads: Any) -> Docket:
    well = await archiving.add(works, key="well")(7)
    badly = await archiving.add(breaks, key="badly", after=[well], tags=["sad"])(1)
    await archiving.add(works, key="doomed", after=[badly])(2)
    await ByHand(archiving, threads).step_through()
    clock.jump(HOUR)
    await sweep(archiving)
    assert isinstance(archiving.engine, Archives)
    assert await archiving.engine.archived() == 3
    return archiving


async def test_what_is_in_the_archive_is_read_as_before(put_away: Docket) -> None:
    well = await put_away.get_execution("well")
    assert well is not None
    assert await well.get_result() == 7
    assert keys(await put_away.find()) == ["doomed", "badly", "well"]
    assert keys(await put_away.failed(tags=["sad"], error="number 1")) == ["badly"]
    graph = await put_away.graph("well")
    assert [graph.nodes[child].key for _, child in graph.edges] == ["badly", "doomed"]


async def test_what_is_in_the_archive_can_be_run_again(put_away: Docket, threads: Any) -> None:
    again = await put_away.retry("badly", kwargs={"number": 3})
    assert again.state is ExecutionState.QUEUED
    ran = await ByHand(put_away, threads).step_through()
    assert [(run.key, run.error) for run in ran] == [("badly", "ValueError: number 3")]


async def test_what_is_in_the_archive_can_be_discarded(put_away: Docket) -> None:
    assert await put_away.discard_failed() == 1
    await put_away.discard("well")
    await put_away.discard("doomed")
    assert await put_away.engine.residue() == {}  # type: ignore[attr-defined]


async def test_a_result_in_the_archive_can_be_an_argument(put_away: Docket, threads: Any) -> None:
    well = await put_away.get_execution("well")
    child = await put_away.add(works)(well)  # type: ignore[arg-type]
    await ByHand(put_away, threads).step()
    assert await child.get_result() == 7


async def test_what_leaves_the_archive_is_gone(put_away: Docket, clock: VirtualClock) -> None:
    clock.jump(DAY)
    assert await put_away.get_execution("well") is None
    await sweep(put_away)
    assert await put_away.engine.residue() == {}  # type: ignore[attr-defined]


# Discarding


@pytest.fixture
async def letters(still: Docket, by_hand: ByHand, clock: VirtualClock) -> list[Execution[None]]:
    """Four runs that failed, a minute apart."""
    executions: list[Execution[None]] = []
    for number in range(4):
        tags = ["odd" if number % 2 else "even", "letter"]
        executions.append(await still.add(breaks, key=f"{number}", queue=f"q{number % 2}", tags=tags)(number))
        await by_hand.step()
        clock.jump(MINUTE)
    return executions


async def test_a_run_that_is_over_is_discarded(still: Docket, letters: list[Execution[None]]) -> None:
    await still.discard("3")
    await still.discard(letters[1])
    assert keys(await still.failed()) == ["2", "0"]
    with pytest.raises(UnknownRun, match="no record of a run '3'"):
        await still.discard("3")


async def test_a_run_that_is_not_over_is_not_discarded(still: Docket, by_hand: ByHand) -> None:
    await still.add(works, key="k")()
    with pytest.raises(CannotDiscard, match="'k' is queued; only one that is over can be discarded") as refused:
        await still.discard("k")
    assert refused.value.code == "cannot_discard"
    await by_hand.claim()
    with pytest.raises(CannotDiscard, match="'k' is running"):
        await still.discard("k")


async def test_all_that_failed_and_is_meant_is_discarded(still: Docket, letters: list[Execution[None]]) -> None:
    await still.add(works, key="waiting")()
    assert await still.discard_failed(queue="q1", error="number 3") == 1
    assert await still.discard_failed(tags=["even", "letter"]) == 2
    assert keys(await still.failed()) == ["1"]
    assert await still.discard_failed(task="works") == 0
    assert await still.discard_failed(task=breaks) == 1
    assert keys(await still.find()) == ["waiting"]


async def test_a_dependent_of_what_was_discarded_can_be_run_again(still: Docket, by_hand: ByHand) -> None:
    parent = await still.add(breaks, key="parent")()
    await still.add(works, key="after", after=[parent])(5)
    await still.add(works, key="fed")(parent)  # type: ignore[arg-type]
    await by_hand.step()
    await still.discard(parent)
    fed = await still.get_execution("fed")
    assert fed is not None
    assert fed.state is ExecutionState.CANCELLED
    assert (await still.retry("after")).state is ExecutionState.QUEUED
    assert (await by_hand.step()).state is ExecutionState.COMPLETED
    # The result that it was to receive is gone, and it says so.
    await still.retry("fed")
    run = await by_hand.step()
    assert run.state is ExecutionState.FAILED
    assert (run.error or "").startswith("ResultExpired: the run 'fed' is to receive the result of 'parent'")


@pytest.mark.parametrize("tags", ["odd", 5, [""]])
async def test_tags_that_cannot_be_are_refused(docket: Docket, tags: Any) -> None:
    for ask in (docket.failed, docket.retry_failed, docket.discard_failed, docket.find):
        with pytest.raises((InvalidArgument, InvalidType), match="tags must"):
            await ask(tags=tags)


# Finding


async def test_runs_are_found_by_what_they_have_in_common(
    still: Docket, by_hand: ByHand, letters: list[Execution[None]], clock: VirtualClock
) -> None:
    between = datetime.fromtimestamp(clock.microseconds() / 1e6, UTC)
    clock.jump(MINUTE)
    await still.add(works, key="order:1", group="ann", tags=["odd"])()
    await still.add(works, key="order:2", queue="q1", when=between + HOUR)()
    assert keys(await still.find()) == ["order:2", "order:1", "3", "2", "1", "0"]
    assert keys(await still.find(states=["failed"], queues=["q1"])) == ["3", "1"]
    assert keys(await still.find(states=[ExecutionState.SCHEDULED, "queued"])) == ["order:2", "order:1"]
    assert keys(await still.find(tasks=[works])) == ["order:2", "order:1"]
    assert keys(await still.find(tasks=["works", breaks], queues=["q1"])) == ["order:2", "3", "1"]
    assert keys(await still.find(groups=["ann"])) == ["order:1"]
    assert keys(await still.find(tags=["odd"])) == ["order:1", "3", "1"]
    assert keys(await still.find(tags=["odd", "letter"], newest_first=False)) == ["1", "3"]
    assert keys(await still.find(key_prefix="order:")) == ["order:2", "order:1"]
    assert keys(await still.find(created_after=between)) == ["order:2", "order:1"]
    assert keys(await still.find(created_before=between, error="number 2")) == ["2"]


async def test_what_is_found_comes_in_pages(still: Docket, letters: list[Execution[None]]) -> None:
    seen: list[str] = []
    page = await still.find(limit=3)
    seen += keys(page)
    page = await still.find(limit=3, cursor=page.cursor)
    seen += keys(page)
    assert seen == ["3", "2", "1", "0"]
    assert page.cursor is None


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"states": "failed"}, "states must be a list of states"),
        ({"states": ["broken"]}, "each of states must be one of 'scheduled'"),
        ({"tasks": "works"}, "tasks must be a list of functions or names"),
        ({"tasks": [""]}, "each of tasks must not be empty"),
        ({"queues": "default"}, "queues must be a list of texts"),
        ({"groups": [5]}, "each of groups must be text"),
        ({"key_prefix": ""}, "key_prefix must not be empty"),
        ({"created_after": datetime(2026, 1, 1)}, "created_after must know its time zone"),  # noqa: DTZ001
        ({"created_before": "now"}, "created_before must be a datetime"),
        ({"error": 5}, "error must be text"),
        ({"newest_first": "yes"}, "newest_first must be True or False"),
        ({"limit": 0}, "limit must be at least 1"),
    ],
)
async def test_what_cannot_be_found_is_refused(still: Docket, asked: dict[str, Any], message: str) -> None:
    with pytest.raises((InvalidArgument, InvalidType), match=message):
        await still.find(**asked)


async def test_a_time_that_cannot_be_is_refused(still: Docket) -> None:
    now = datetime.now(UTC)
    with pytest.raises(InvalidArgument, match="created_after must be before created_before"):
        await still.find(created_after=now, created_before=now)
