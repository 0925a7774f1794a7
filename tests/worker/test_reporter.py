"""The reporter: writes what running tasks say of their progress, and does not let them flood the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from dovetail import Docket, OutcomeUnknown, Progress, Worker
from dovetail.clock import VirtualClock
from dovetail.model import ProgressReport
from dovetail.worker.reporter import INTERVAL, Reporter
from tests.by_hand import finish
from tests.clocks import HastyClock
from tests.faults import Faults, behind_a_door
from tests.waiting import soon


class Written:
    """A store that keeps what was reported, write by write, and fails if it is told to."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.writes: list[list[ProgressReport]] = []
        self.error: BaseException | None = None

    async def report(self, reports: list[ProgressReport]) -> None:
        await self.open.wait()
        if self.error is not None:
            raise self.error
        self.writes.append(list(reports))


def said(run: str = "run", **what: Any) -> ProgressReport:
    return ProgressReport("key", run, 1, **what)


@pytest.fixture
def store() -> Written:
    return Written()


@pytest.fixture
def clock() -> HastyClock:
    return HastyClock()


@pytest.fixture
def reporter(store: Written, clock: HastyClock) -> Reporter:
    return Reporter(store, clock)  # type: ignore[arg-type]


# When it is written


async def test_the_first_report_of_a_run_is_written_at_once(reporter: Reporter, store: Written):
    await reporter.report(said(increment=1))
    await reporter.report(said("other", increment=1))
    assert store.writes == [[said(increment=1)], [said("other", increment=1)]]


async def test_those_that_follow_are_gathered(reporter: Reporter, store: Written):
    for _ in range(1000):
        await reporter.report(said(increment=1))
    assert len(store.writes) == 1


async def test_what_is_left_is_written_when_the_run_ends(reporter: Reporter, store: Written):
    for _ in range(5):
        await reporter.report(said(increment=1))
    await reporter.conclude("run")
    assert store.writes == [[said(increment=1)], [said(increment=4)]]


async def test_with_nothing_left_nothing_is_written_at_the_end(reporter: Reporter, store: Written):
    await reporter.report(said(increment=1))
    await reporter.conclude("run")
    await reporter.conclude("one that never said anything")
    assert len(store.writes) == 1


async def test_the_end_of_one_run_is_not_that_of_another(reporter: Reporter, store: Written):
    for run in ("one", "two"):
        await reporter.report(said(run, increment=1))
        await reporter.report(said(run, increment=2))
    await reporter.conclude("one")
    assert store.writes[2:] == [[said("one", increment=2)]]


async def test_a_run_that_has_ended_begins_anew(reporter: Reporter, store: Written):
    await reporter.report(said(increment=1))
    await reporter.conclude("run")
    await reporter.report(said(increment=5))
    assert store.writes[-1] == [said(increment=5)]


@pytest.fixture
async def at_it(reporter: Reporter) -> AsyncIterator[Reporter]:
    running = asyncio.create_task(reporter.run())
    yield reporter
    running.cancel()
    await asyncio.wait([running])
    if not running.cancelled():
        running.result()


def added(store: Written, run: str) -> int:
    return sum(each.increment for write in store.writes for each in write if each.id == run)


async def test_what_is_gathered_is_written_from_time_to_time(store: Written, clock: HastyClock, at_it: Reporter):
    for _ in range(10):
        await at_it.report(said(increment=1))
    await asyncio.sleep(0)
    assert added(store, "run") == 10
    assert set(clock.naps) == {INTERVAL}


async def test_what_several_runs_said_is_written_together(store: Written, at_it: Reporter):
    for run in ("one", "two"):
        await at_it.report(said(run, increment=1))
    store.open.clear()  # a slow write: meanwhile others speak
    for run in ("one", "one", "two"):
        await at_it.report(said(run, increment=1))
    store.open.set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert [sorted(each.id or "" for each in write) for write in store.writes[2:]] == [["one"], ["one", "two"]]


async def test_between_two_writes_lies_an_interval(store: Written):
    reporter = Reporter(store, VirtualClock())  # type: ignore[arg-type]
    running = asyncio.create_task(reporter.run())
    await reporter.report(said(increment=1))
    for _ in range(20):  # the clock stands still: the second write is the last for now
        await reporter.report(said(increment=1))
        await asyncio.sleep(0)
    running.cancel()
    assert len(store.writes) == 2


# What is written


@pytest.mark.parametrize(
    ("reports", "together"),
    [
        ([{"increment": 1}, {"increment": 2}], {"increment": 3}),
        ([{"total": 5}, {"increment": 2}], {"increment": 2, "total": 5}),
        ([{"total": 5}, {"total": 6}], {"total": 6}),
        ([{"message": "a"}, {"increment": 1}], {"message": "a", "increment": 1}),
        ([{"message": "a"}, {"message": "b"}], {"message": "b"}),
        ([{"message": "a"}, {"clear_message": True}], {"clear_message": True}),
        ([{"clear_message": True}, {"message": "b"}], {"message": "b"}),
        ([{"clear_message": True}, {"increment": 1}], {"clear_message": True, "increment": 1}),
    ],
)
async def test_reports_are_added_up(
    reporter: Reporter, store: Written, reports: list[dict[str, Any]], together: dict[str, Any]
):
    await reporter.report(said())
    for report in reports:
        await reporter.report(said(**report))
    await reporter.conclude("run")
    assert store.writes[1:] == [[said(**together)]]


# A store that fails


@pytest.mark.parametrize("error", [None, OutcomeUnknown("who knows")])
async def test_a_store_that_fails_does_not_fail_the_run(
    docket: Docket, worker: Worker, caplog: pytest.LogCaptureFixture, error: BaseException | None
):
    async def work(progress: Progress = Progress()) -> str:
        for _ in range(5):
            await progress.increment()
        return "done"

    execution = await docket.add(work)()
    behind_a_door(docket).fail("report", 1000, error)
    await finish(worker)
    assert await execution.get_result() == "done"
    assert "the progress of 1 runs could not be written" in caplog.text


@pytest.mark.usefixtures("at_it")
async def test_after_trouble_reports_go_on(reporter: Reporter, store: Written):
    store.error = OutcomeUnknown("who knows")
    await reporter.report(said(increment=1))
    await reporter.report(said(increment=1))
    await asyncio.sleep(0)
    store.error = None
    await reporter.report(said(increment=1))
    await reporter.conclude("run")
    assert sum(report.increment for write in store.writes for report in write) == 3


@pytest.mark.usefixtures("at_it")
async def test_a_run_does_not_end_while_what_it_said_is_on_its_way(reporter: Reporter, store: Written):
    await reporter.report(said(increment=1))
    store.open.clear()
    await reporter.report(said(increment=1))
    await asyncio.sleep(0)  # the reporter has begun to write
    ending = asyncio.create_task(reporter.conclude("run"))
    await asyncio.sleep(0)
    assert not ending.done()
    store.open.set()
    await soon(ending)
    assert sum(report.increment for write in store.writes for report in write) == 2


# With a worker


async def test_a_body_that_reports_all_the_time_writes_little(docket: Docket, worker: Worker):
    async def work(progress: Progress = Progress()) -> None:
        for _ in range(2000):
            await progress.increment()

    await docket.add(work)()
    faults: Faults = behind_a_door(docket)
    await finish(worker)
    assert 2 <= faults.calls["report"] < 200


async def test_all_of_it_is_told_before_the_end(docket: Docket, worker: Worker):
    amounts: list[int] = []

    async def work(progress: Progress = Progress()) -> None:
        for _ in range(100):
            await progress.increment()

    execution = await docket.add(work, key="k")()
    ready = asyncio.Event()

    async def listen() -> None:
        async for event in execution.subscribe(ready=ready):
            if event["type"] == "progress":
                amounts.append(event["current"] or 0)
            elif event["state"].is_terminal:
                return

    listening = asyncio.create_task(listen())
    await soon(ready.wait())
    await finish(worker)
    await soon(listening)
    assert amounts == sorted(amounts)
    assert amounts[-1] == 100


def test_the_interval_is_short_enough_to_watch():
    assert timedelta() < INTERVAL <= timedelta(seconds=1)
