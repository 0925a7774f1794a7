"""Queues: paused and resumed, and looked at; and what hangs on what."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dovetail import Docket, ExecutionState
from dovetail.clock import VirtualClock, from_microseconds
from dovetail.errors import InvalidArgument, InvalidType, UnknownRun
from dovetail.model import NewRun, WorkerInfo, new_id
from tests.by_hand import ByHand, at_work, finish
from tests.conftest import MakeWorker
from tests.waiting import soon

MINUTE = timedelta(minutes=1)
ran: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


async def note(what: str) -> str:
    ran.append(what)
    return what


async def breaks() -> None:
    raise ValueError("broken")


# Pausing


async def test_nothing_of_a_paused_queue_starts(by_hand: ByHand, still: Docket) -> None:
    await still.add(note, queue="mail")("before")
    await still.pause("mail")
    await still.add(note, queue="mail")("since")
    await still.add(note)("elsewhere")
    assert len(await by_hand.claim_all()) == 1
    await still.resume("mail")
    assert len(await by_hand.claim_all()) == 2


async def test_an_idle_worker_goes_on_as_soon_as_a_queue_is_resumed(docket: Docket, make_worker: MakeWorker) -> None:
    await docket.pause("mail")
    async with at_work(make_worker()):
        execution = await docket.add(note, queue="mail")("late")
        await soon((await docket.add(note)("elsewhere")).get_result())
        assert ran == ["elsewhere"]
        await docket.resume("mail")
        assert await soon(execution.get_result()) == "late"


async def test_what_runs_goes_on_when_its_queue_is_paused(docket: Docket, make_worker: MakeWorker) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    async def long() -> str:
        started.set()
        await go_on.wait()
        return "done"

    async with at_work(make_worker()):
        execution = await docket.add(long, queue="mail")()
        await soon(started.wait())
        await docket.pause("mail")
        go_on.set()
        assert await soon(execution.get_result()) == "done"


async def test_a_pause_may_have_an_end(by_hand: ByHand, still: Docket, clock: VirtualClock) -> None:
    await still.add(note, queue="mail")("late")
    await still.pause("mail", until=from_microseconds(clock.microseconds()) + MINUTE)
    assert await by_hand.claim_all() == []
    clock.jump(2 * MINUTE)
    assert len(await by_hand.claim_all()) == 1


async def test_an_idle_worker_goes_on_as_soon_as_a_pause_ends(
    docket: Docket, make_worker: MakeWorker, never_polls: None
) -> None:
    await docket.pause("mail", until=datetime.now(UTC) + timedelta(seconds=2))
    async with at_work(make_worker()):
        execution = await docket.add(note, queue="mail")("late")
        assert await soon(execution.get_result()) == "late"


async def test_a_queue_that_is_not_paused_may_be_resumed(docket: Docket) -> None:
    await docket.resume("mail")
    assert await docket.queues() == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"queue": ""}, "queue must not be empty"),
        ({"queue": 5}, "queue must be text"),
        ({"queue": "q", "reason": 5}, "reason must be text"),
        ({"queue": "q", "owner": ""}, "owner must not be empty"),
        ({"queue": "q", "until": "tomorrow"}, "until must be a datetime"),
        ({"queue": "q", "until": from_microseconds(0)}, "until is over already"),
    ],
)
async def test_a_pause_that_makes_no_sense_is_refused(docket: Docket, arguments: Any, message: str) -> None:
    with pytest.raises((InvalidArgument, InvalidType), match=message):
        await docket.pause(**arguments)


# Fair share


async def test_ten_thousand_runs_of_one_group_do_not_delay_the_one_of_another(still: Docket) -> None:
    for _ in range(2):
        runs = [NewRun(new_id(), "", "note", group="big") for _ in range(5000)]
        await still.engine.schedule([run.but(key=run.id) for run in runs])
    await still.add(note, group="small")("the one")
    claims = (await still.engine.claim("worker", 2, lease=MINUTE)).claims
    assert sorted(claim.group or "" for claim in claims) == ["big", "small"]


# Looking


async def test_queues_tell_what_is_in_them(by_hand: ByHand, still: Docket, clock: VirtualClock) -> None:
    now = from_microseconds(clock.microseconds())
    await still.add(note, queue="a", when=now)("due")
    clock.jump(MINUTE)
    await still.add(note, queue="a")("due later")
    await still.add(note, queue="b", when=now + 60 * MINUTE)("ahead")
    await still.pause("c", "a storm", owner="ann", until=now + 60 * MINUTE)
    a, b, c = await still.queues()
    assert (a.name, a.count(ExecutionState.QUEUED), a.oldest_due, a.paused) == ("a", 2, now, None)
    assert (b.name, b.counts[ExecutionState.SCHEDULED], b.count(), b.oldest_due) == ("b", 1, 1, None)
    assert (c.name, c.is_paused, c.count()) == ("c", True, 0)
    assert c.paused is not None
    assert (c.paused.reason, c.paused.owner, c.paused.until) == ("a storm", "ann", now + 60 * MINUTE)
    assert c.paused.since == now + MINUTE


async def test_a_queue_that_a_worker_names_is_listed_while_it_is_empty(still: Docket) -> None:
    await still.add(note, queue="bulk", group="tenant")("grouped")
    info = WorkerInfo("worker", queues=("mail", "bulk"))
    await still.engine.heartbeat(info, [], lease=MINUTE)
    bulk, mail = await still.queues()
    assert (bulk.name, bulk.count()) == ("bulk", 1)
    assert (mail.name, mail.count(), mail.oldest_due, mail.paused) == ("mail", 0, None, None)


# What hangs on what


async def test_a_graph_shows_all_that_hangs_together(docket: Docket) -> None:
    top = docket.call(note, key="top")("top")
    left = docket.call(note, key="left", after=[top])("left")
    right = docket.call(note, key="right", after=["top"])("right")
    bottom = docket.call(note, key="bottom", after=[left, right])("bottom")
    await docket.add_many([top, left, right, bottom])
    await docket.add(note, key="another")("another")
    for start in ("top", "left", "bottom"):
        graph = await docket.graph(start)
        assert graph.is_whole
        names = {node.id: node.key for node in graph.nodes.values()}
        assert [node.key for node in graph.roots] == ["top"]
        assert sorted((names[parent], names[child]) for parent, child in graph.edges) == [
            ("left", "bottom"),
            ("right", "bottom"),
            ("top", "left"),
            ("top", "right"),
        ]
        assert sorted(names[each] for each in graph.node("top").children) == ["left", "right"]


async def test_a_graph_shows_what_fell_and_why(docket: Docket, make_worker: MakeWorker) -> None:
    first = await docket.add(breaks, key="first")()
    second = await docket.add(note, key="second", after=[first])("second")
    await finish(make_worker())
    graph = await docket.graph(second)
    assert graph.node("first").state is ExecutionState.FAILED
    assert (graph.node("second").state, graph.node("second").doomed_by) == (ExecutionState.CANCELLED, first.id)


async def test_a_graph_has_no_edges_to_what_is_no_longer_kept(docket: Docket, make_worker: MakeWorker) -> None:
    parent = await docket.add(breaks)()
    child = await docket.add(note, after=[parent])("child")
    await finish(make_worker())
    await docket.discard(parent)
    graph = await docket.graph(child)
    assert (graph.edges, [node.id for node in graph.nodes.values()]) == ([], [child.id])


async def test_a_graph_says_when_there_is_more(docket: Docket) -> None:
    first = await docket.add(note, key="first")("first")
    await docket.add_many([docket.call(note, after=[first])("x") for _ in range(5)])
    graph = await docket.graph("first", at_most=3)
    assert (len(graph.nodes), graph.is_whole) == (3, False)
    assert (await docket.graph("first", at_most=6)).is_whole
    with pytest.raises(KeyError):
        graph.node("nobody")


async def test_there_is_no_graph_of_what_does_not_exist(docket: Docket) -> None:
    with pytest.raises(UnknownRun, match="no record of a run 'nobody' on the docket 'tests'"):
        await docket.graph("nobody")
    with pytest.raises(InvalidArgument, match="key must not be empty"):
        await docket.graph("")
    with pytest.raises(InvalidArgument, match="at_most must be at least 1"):
        await docket.graph("nobody", at_most=0)
