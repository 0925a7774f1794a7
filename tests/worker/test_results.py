"""Results: what runs are to receive is read together, and once."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from dovetail import Docket, EngineUnavailable, result_of
from dovetail.codec.references import Reference
from dovetail.engine import Engine
from dovetail.model import BROUGHT, Page, Requeue, RunQuery, Settle, State
from dovetail.tasks import Task
from dovetail.tasks.drafting import RECEIVED
from dovetail.worker.results import Reader
from dovetail.worker.runner import UNREADABLE_DELAY
from tests.by_hand import ByHand
from tests.waiting import soon


class Shelf:
    """An engine that counts how often it is asked, and answers when it may."""

    def __init__(self) -> None:
        self.asked: list[set[str]] = []
        self.may_answer = asyncio.Event()

    async def find(self, query: RunQuery) -> Page[Any]:
        self.asked.append(set(query.ids))
        await self.may_answer.wait()
        return Page([])


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def reader(shelf: Shelf) -> Reader:
    return Reader(cast("Engine", shelf))


async def test_what_is_asked_for_during_a_read_is_read_together(shelf: Shelf, reader: Reader) -> None:
    first = asyncio.create_task(reader.read(["1"]))
    await asyncio.sleep(0)
    others = [asyncio.create_task(reader.read([str(number)])) for number in range(2, 10)]
    await asyncio.sleep(0)
    shelf.may_answer.set()
    await soon(asyncio.gather(first, *others))
    assert shelf.asked == [{"1"}, {str(number) for number in range(2, 10)}]


async def test_one_who_is_stopped_leaves_the_read_to_the_next(shelf: Shelf, reader: Reader) -> None:
    first = asyncio.create_task(reader.read(["1"]))
    await asyncio.sleep(0)
    second, third = [asyncio.create_task(reader.read([each])) for each in "23"]
    await asyncio.sleep(0)
    second.cancel()
    first.cancel()
    shelf.may_answer.set()
    await soon(third)
    assert shelf.asked == [{"1"}, {"2", "3"}]


async def test_nothing_is_not_read(shelf: Shelf, reader: Reader) -> None:
    assert await reader.read([]) == {}
    assert shelf.asked == []


async def number(value: int) -> int:
    return value


async def long(value: str | None = None) -> str:
    return "x" * BROUGHT


async def cannot_be_found(query: RunQuery) -> Any:
    raise AssertionError("nobody has to look")


async def test_what_a_claim_brought_is_not_read(
    still: Docket, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await still.add(number)(1)
    await still.add(number)(result_of(first))
    await by_hand.step()
    monkeypatch.setattr(still.engine, "find", cannot_be_found)
    verdict = await by_hand.attempt()
    assert isinstance(verdict, Settle)
    assert verdict.state is State.COMPLETED


async def test_each_who_receives_a_result_has_a_value_of_its_own(still: Docket, by_hand: ByHand) -> None:
    received: list[list[int]] = []

    async def make() -> list[int]:
        return []

    async def grow(mine: list[int]) -> None:
        mine.append(1)
        received.append(mine)

    first = await still.add(make)()
    await still.add(grow)(result_of(first))
    await still.add(grow)(result_of(first))
    for _ in range(3):
        await by_hand.step()
    assert received == [[1], [1]]


@pytest.mark.parametrize(("count", "is_brought"), [(RECEIVED, True), (RECEIVED + 1, False)])
async def test_of_few_runs_the_results_are_brought(still: Docket, count: int, is_brought: bool) -> None:
    async def total(values: list[int]) -> int:
        return sum(values)

    parts = [Reference(None, f"part {number}") for number in range(count)]
    drafted = still.drafter.draft(Task.of(total), "total", (parts,), {}, retention=still.retention)
    assert (len(drafted.after), drafted.wants_results) == (count, is_brought)


@pytest.mark.parametrize("trouble", [EngineUnavailable("gone"), OSError("odd")])
async def test_a_run_whose_results_cannot_be_read_is_put_back_or_fails(
    still: Docket, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    first = await still.add(long)()
    await still.add(long)(result_of(first))
    await by_hand.step()

    async def fail(query: RunQuery) -> Any:
        raise trouble

    monkeypatch.setattr(still.engine, "find", fail)
    verdict = await by_hand.attempt()
    if isinstance(trouble, EngineUnavailable):
        assert isinstance(verdict, Requeue)
        assert (verdict.attempt, verdict.due) == (1, UNREADABLE_DELAY)
    else:
        assert isinstance(verdict, Settle)
        assert verdict.state is State.FAILED
