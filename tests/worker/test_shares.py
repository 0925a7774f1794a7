"""A worker that takes several queues: weights and concurrency; and what has waited for long."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from dovetail import Docket, Queue
from dovetail.errors import InvalidArgument, InvalidType
from tests.by_hand import at_work, finish
from tests.conftest import MakeWorker
from tests.waiting import soon

ran: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


async def note(what: str) -> str:
    ran.append(what)
    return what


async def test_starts_are_shared_by_weight(docket: Docket, make_worker: MakeWorker):
    await docket.add_many([docket.call(note, queue=queue)(queue) for queue in ("mail", "bulk") for _ in range(40)])
    await finish(make_worker(queues=[Queue("mail", weight=3), "bulk"], concurrency=1))
    assert 28 <= ran[:40].count("mail") <= 32
    assert len(ran) == 80


async def test_priorities_count_within_a_queue_and_not_between_them(docket: Docket, make_worker: MakeWorker):
    await docket.add_many([docket.call(note, queue="mail", priority=9)(f"mail {n}") for n in range(4)])
    await docket.add_many([docket.call(note, queue="bulk", priority=n)(f"bulk {n}") for n in range(4)])
    await finish(make_worker(queues=[Queue("mail"), Queue("bulk")], concurrency=1))
    assert [what for what in ran if what.startswith("bulk")] == ["bulk 3", "bulk 2", "bulk 1", "bulk 0"]
    assert ran.index("bulk 3") < 2


async def test_a_queue_at_its_bound_leaves_the_rest_to_others_and_goes_on_at_once(
    docket: Docket, make_worker: MakeWorker, never_polls: None
):
    at_a_time, most, gate = 0, 0, asyncio.Semaphore(0)

    async def long() -> None:
        nonlocal at_a_time, most
        at_a_time += 1
        most = max(most, at_a_time)
        await gate.acquire()
        at_a_time -= 1

    async with at_work(make_worker(queues=[Queue("mail", concurrency=2), Queue("bulk")], concurrency=4)):
        slow = await docket.add_many([docket.call(long, queue="mail")() for _ in range(6)])
        quick = await docket.add_many([docket.call(note, queue="bulk")("quick") for _ in range(6)])
        for each in quick:
            await soon(each.get_result())
        assert at_a_time == 2
        # One after the other ends, with nothing else to wake the worker.
        for each in slow:
            gate.release()
            await soon(each.get_result())
    assert most == 2


async def test_a_run_that_becomes_due_starts_in_time(docket: Docket, make_worker: MakeWorker, never_polls: None):
    async with at_work(make_worker(queues=[Queue("mail"), Queue("bulk", concurrency=1)])):
        later = await docket.add(note, queue="bulk", when=datetime.now(UTC) + timedelta(milliseconds=300))("later")
        assert await soon(later.get_result()) == "later"


# Ageing


async def test_what_has_been_due_for_long_goes_first(docket: Docket, make_worker: MakeWorker):
    now = datetime.now(UTC)
    await docket.add(note, when=now - timedelta(minutes=12))("old")
    await docket.add(note, priority=10, when=now)("high")
    await finish(make_worker(ageing=timedelta(minutes=1), concurrency=1))
    assert ran == ["old", "high"]


async def test_it_ages_in_queues_with_a_share_too(docket: Docket, make_worker: MakeWorker):
    now = datetime.now(UTC)
    await docket.add(note, queue="mail", when=now - timedelta(minutes=12))("old")
    await docket.add(note, queue="mail", priority=10, when=now)("high")
    await finish(make_worker(queues=[Queue("mail", concurrency=1)], ageing=timedelta(minutes=1)))
    assert ran == ["old", "high"]


@pytest.mark.parametrize(
    ("ageing", "message"), [(timedelta(), "ageing must be more than zero"), (60, "ageing must be a timedelta")]
)
async def test_ageing_that_makes_no_sense_is_refused(make_worker: MakeWorker, ageing: timedelta, message: str):
    with pytest.raises((InvalidArgument, InvalidType), match=message):
        make_worker(ageing=ageing)
