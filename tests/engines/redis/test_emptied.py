"""A server that loses all it held beneath workers that run: they say so, put down what they held, and go on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dovetail import Docket, Perpetual, ResultExpired, Worker, instrumentation
from dovetail.model import Severity, WorkerInfo
from tests.servers import redis as servers
from tests.servers.redis import Server
from tests.waiting import eventually, soon

BEAT = timedelta(milliseconds=50)
LEASE = timedelta(seconds=10)
LOSS = "the store has lost all that it held"


@pytest.fixture
def server() -> Iterator[Server]:
    """One of its own: it is emptied."""
    with servers.server("valkey") as server:
        yield server


@pytest.fixture
def noticed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The workers whose metric has counted a loss."""
    workers: list[str] = []

    def add(amount: float, labels: dict[str, str]) -> None:
        workers.extend([labels["docket.worker"]] * int(amount))

    monkeypatch.setattr(instrumentation.STORE_EMPTIED, "add", add)
    return workers


@asynccontextmanager
async def docket_on(server: Server) -> AsyncIterator[Docket]:
    async with Docket("tests", server.url, heartbeat_interval=BEAT, durability="process") as docket:
        yield docket


@asynccontextmanager
async def at_work(docket: Docket, *names: str) -> AsyncIterator[None]:
    """So many workers, which have all said that they are there."""
    workers = [Worker(docket, name) for name in names]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(worker.run_forever()) for worker in workers]
        try:
            await eventually(lambda: has_heard_of(docket, len(names)))
            yield
        finally:
            for task in tasks:
                task.cancel()


async def was_seen_after(docket: Docket, moment: datetime) -> bool:
    return any(each.last_seen is not None and each.last_seen > moment for each in await docket.workers())


async def has_heard_of(docket: Docket, workers: int) -> bool:
    return len(await docket.workers()) == workers


def flush(server: Server) -> None:
    with server.client() as client:
        client.flushall()


def losses(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if LOSS in record.getMessage()]


async def test_work_goes_on_after_a_flush_under_load(
    server: Server, noticed: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    ticks, held, let_go = [0], asyncio.Event(), asyncio.Event()
    done: set[int] = set()

    async def tick(perpetual: Perpetual = Perpetual(every=timedelta(hours=1), automatic=True)) -> None:
        ticks[0] += 1

    async def hold() -> None:
        held.set()
        try:
            await asyncio.Event().wait()
        finally:
            let_go.set()

    async def work(number: int) -> None:
        done.add(number)

    async with docket_on(server) as docket:
        docket.register(tick)
        async with at_work(docket, "ann"):
            await docket.add(hold)()
            await docket.schedules.add("nightly", work, "0 3 * * *")(1)
            await docket.strike(work, "number", "==", -1)
            await soon(held.wait())
            await eventually(lambda: ticks[0] == 1)
            await docket.add_many([docket.call(work)(number) for number in range(2000)])
            flush(server)
            await soon(let_go.wait())
            await eventually(lambda: ticks[0] == 2)
            await docket.add_many([docket.call(work)(number) for number in range(5000, 5100)])
            await eventually(lambda: done >= set(range(5000, 5100)))
            await eventually(lambda: noticed)
            assert await docket.schedules.list() == []
            assert await docket.strikes() == []
            found = {each.check: each for each in await eventually(lambda: doctor_says(docket))}
    assert noticed == ["ann"]
    assert "schedules, strikes and pauses" in losses(caplog)[0]
    assert found["store.emptied"].severity is Severity.PROBLEM
    assert "schedule again what waited" in found["store.emptied"].advice


async def doctor_says(docket: Docket) -> list[Any] | None:
    """What the doctor finds, once the next heartbeat has told of the loss."""
    found = await docket.examine()
    return found if any(each.check == "store.emptied" for each in found) else None


async def test_every_worker_notices_once(server: Server, noticed: list[str], caplog: pytest.LogCaptureFixture) -> None:
    async with docket_on(server) as docket, at_work(docket, "ann", "bob"):
        flush(server)
        await eventually(lambda: sorted(noticed) == ["ann", "bob"])
        await eventually(lambda: has_heard_of(docket, 2))
    assert len(losses(caplog)) == 2


async def test_who_waits_for_a_result_is_told_that_it_will_not_come(server: Server) -> None:
    async def work() -> None: ...

    async with docket_on(server) as docket:
        execution = await docket.add(work)()
        waiting = asyncio.create_task(execution.get_result())
        await eventually(lambda: is_watched(server))
        flush(server)
        with pytest.raises(ResultExpired):
            await soon(waiting)


def is_watched(server: Server) -> bool:
    with server.client() as client:
        return bool(client.pubsub_channels())


@pytest.mark.parametrize(("appendonly", "expected"), [("no", ["ann"]), ("yes", [])])
async def test_a_server_that_comes_back_without_what_it_had_is_noticed(
    noticed: list[str], caplog: pytest.LogCaptureFixture, appendonly: str, expected: list[str]
) -> None:
    async def work() -> None: ...

    caplog.set_level(logging.ERROR, "dovetail")
    with servers.server("valkey", appendonly=appendonly, appendfsync="always") as server:
        async with docket_on(server) as docket, at_work(docket, "ann"):
            server.kill()
            server.start()
            back = datetime.now(UTC)
            await soon((await docket.add(work)()).get_result())
            await eventually(lambda: was_seen_after(docket, back))
            await eventually(lambda: noticed == expected)
    assert noticed == expected


async def test_workers_that_were_swept_away_while_they_were_cut_off_find_their_origin(server: Server) -> None:
    async def origin(worker: str) -> int:
        return (await engine.heartbeat(WorkerInfo(worker, id=worker), [], lease=LEASE)).origin

    async with docket_on(server) as docket:
        engine = docket.engine
        before = [await origin("ann"), await origin("bob")]
        assert (await engine.sweep(silent_for=timedelta())).workers == 2
        assert [await origin("ann"), await origin("bob")] == before


async def test_a_docket_without_workers_leaves_no_origin_behind(server: Server) -> None:
    async with docket_on(server) as docket:
        async with at_work(docket, "ann", "bob"):
            pass
        with server.client() as client:
            assert [key for key in client.keys("*") if b"origin" in key] == []
