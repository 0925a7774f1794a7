"""Results: what runs are to receive is read together, and once."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from dovetail import Docket, EngineUnavailable, result_of
from dovetail.engine import Engine
from dovetail.model import Page, Requeue, RunQuery, Settle, State
from dovetail.worker.results import Reader
from dovetail.worker.runner import UNREADABLE_DELAY
from tests.by_hand import ByHand, soon


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


@pytest.mark.parametrize("trouble", [EngineUnavailable("gone"), OSError("odd")])
async def test_a_run_whose_results_cannot_be_read_is_put_back_or_fails(
    still: Docket, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    first = await still.add(number)(1)
    await still.add(number)(result_of(first))
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
