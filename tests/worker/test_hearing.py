"""Bodies that were cancelled and go on: they are told of, and others have their slots."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dovetail import Docket, Execution, ExecutionState, Queue, Timeout, Worker
from dovetail.model import Claim, State
from dovetail.observe import prometheus
from dovetail.observe.health import Examiner
from dovetail.why import CauseCode, Why
from dovetail.worker import hearing
from dovetail.worker.hearing import Hearing
from dovetail.worker.membership import LINE, Sign, membership
from dovetail.worker.recycling import Limits
from dovetail.worker.roster import Roster, Tenure
from tests.by_hand import at_work, run_of
from tests.waiting import PATIENCE, eventually, soon

MakeWorker = Callable[..., Worker]


class Deaf:
    """A body that ends when it is let go, and not before."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.release = asyncio.Event()
        self.swallowed = 0

    async def hold(self) -> str:
        self.started.set()
        while not self.release.is_set():
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.swallowed += 1
        return "at last"


class Noticed(logging.Handler):
    """Hears what the log says of bodies that go on."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.once, self.twice = asyncio.Event(), asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if "goes on" in record.getMessage():
            (self.twice if self.once.is_set() else self.once).set()


@pytest.fixture
def noticed() -> Iterator[Noticed]:
    handler = Noticed()
    logging.getLogger("dovetail.worker").addHandler(handler)
    yield handler
    logging.getLogger("dovetail.worker").removeHandler(handler)


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hearing, "PATIENCE", 0.05)
    monkeypatch.setattr(hearing, "GLANCE", 0.01)


@pytest.fixture
async def deaf() -> AsyncIterator[Deaf]:
    deaf = Deaf()
    yield deaf
    deaf.release.set()


async def greet() -> str:
    return "hello"


async def test_the_slot_of_a_cancelled_body_goes_to_others(docket: Docket, make_worker: MakeWorker, deaf: Deaf) -> None:
    execution = await docket.add(deaf.hold, key="deaf")()
    async with at_work(make_worker(concurrency=1)):
        await soon(deaf.started.wait())
        await docket.cancel("deaf")
        other = await docket.add(greet)()
        assert await soon(other.get_result()) == "hello"
        assert (await run_of(docket, key="deaf")).state is State.RUNNING
        deaf.release.set()
        assert await soon(execution.get_result()) == "at last"


async def test_the_slot_of_a_body_past_its_timeout_goes_to_others(
    docket: Docket, make_worker: MakeWorker, deaf: Deaf
) -> None:
    async def too_long(timeout: Timeout = Timeout(timedelta(milliseconds=20))) -> None:
        await deaf.hold()

    execution = await docket.add(too_long)()
    async with at_work(make_worker(concurrency=1)):
        await soon(deaf.started.wait())
        other = await docket.add(greet)()
        assert await soon(other.get_result()) == "hello"
        deaf.release.set()
        with pytest.raises(TimeoutError):
            await soon(execution.get_result())


async def test_the_slot_and_the_thread_of_a_plain_function_go_to_others(
    docket: Docket, make_worker: MakeWorker
) -> None:
    loop, started, release = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def stubborn() -> str:
        loop.call_soon_threadsafe(started.set)
        release.wait(20)
        return "at last"

    def other() -> str:
        return "hello"

    execution = await docket.add(stubborn, key="deaf")()
    try:
        async with at_work(make_worker(concurrency=1)):
            await soon(started.wait())
            await docket.cancel("deaf")
            assert await soon((await docket.add(other)()).get_result()) == "hello"
            release.set()
            assert await soon(execution.get_result()) == "at last"
    finally:
        release.set()


async def unheeding(docket: Docket, key: str) -> Why | None:
    """Why a run goes on, once it is because it does not heed its cancellation."""
    why = await docket.why(key)
    return why if CauseCode.UNHEEDING in why.codes else None


async def is_cancelled(execution: Execution[Any]) -> bool:
    await execution.sync()
    return execution.state is ExecutionState.CANCELLED


async def test_it_counts_in_the_concurrency_of_its_queue(
    docket: Docket, make_worker: MakeWorker, deaf: Deaf, noticed: Noticed
) -> None:
    await docket.add(deaf.hold, key="deaf", queue="narrow")()
    async with at_work(make_worker(concurrency=1, queues=[Queue("narrow", concurrency=1), Queue("wide")])):
        await soon(deaf.started.wait())
        await docket.cancel("deaf")
        await soon(noticed.once.wait())
        waiting = await docket.add(greet, key="waiting", queue="narrow")()
        for _ in range(5):
            assert await soon((await docket.add(greet, queue="wide")()).get_result()) == "hello"
        assert (await run_of(docket, key="waiting")).state is State.QUEUED
        deaf.release.set()
        assert await soon(waiting.get_result()) == "hello"


async def test_it_is_told_in_the_log_and_by_why(
    docket: Docket, make_worker: MakeWorker, deaf: Deaf, caplog: pytest.LogCaptureFixture
) -> None:
    await docket.add(deaf.hold, key="deaf")()
    async with at_work(make_worker()):
        await soon(deaf.started.wait())
        await docket.cancel("deaf")
        why = await eventually(lambda: unheeding(docket, "deaf"))
        (finding,) = [each for each in await docket.examine() if each.check == "workers.deaf"]
        assert "deaf on worker" in finding.found
        deaf.release.set()
    assert why.codes == (CauseCode.RUNNING, CauseCode.STOPPING, CauseCode.UNHEEDING)
    (told,) = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert "the run 'deaf' was cancelled" in told
    assert f"at {__file__}:" in told
    assert "in hold. Its slot goes to others, though it counts in its queue's concurrency" in told


async def hear(line: socket.socket) -> bytes:
    """What a supervisor is told next."""
    return await soon(asyncio.get_running_loop().sock_recv(line, 4096))


async def test_its_process_makes_room_once_its_metrics_were_fetched(
    docket: Docket, make_worker: MakeWorker, deaf: Deaf, noticed: Noticed, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    monkeypatch.setenv(LINE, str(theirs.detach()))
    monkeypatch.setattr(prometheus, "_fetches", 7)
    worker = make_worker(concurrency=2)
    with ours:
        async with at_work(worker), membership(worker, Limits()):
            await docket.add(deaf.hold, key="deaf")()
            await soon(deaf.started.wait())
            await docket.cancel("deaf")
            await soon(noticed.once.wait())
            said = b"".join([await hear(ours) for _ in range(3)])  # by then it has been looked at
            assert Sign.GOING not in said
            monkeypatch.setattr(prometheus, "_fetches", 8)
            async with asyncio.timeout(PATIENCE):
                while Sign.GOING not in said:
                    said = await hear(ours)
            deaf.release.set()


async def test_only_so_many_are_set_aside_as_there_are_slots(
    docket: Docket, make_worker: MakeWorker, deaf: Deaf, noticed: Noticed, caplog: pytest.LogCaptureFixture
) -> None:
    worker = make_worker(concurrency=1)
    async with at_work(worker):
        for key in ("first", "second"):
            deaf.started.clear()
            await docket.add(deaf.hold, key=key)()
            await soon(deaf.started.wait())
            await docket.cancel(key)
        await soon(noticed.twice.wait())
        finding = await asyncio.to_thread(Examiner(worker, timedelta(seconds=30)).examine)
        assert (finding.live, finding.ready) == (False, False)
        assert "cancelled and goes on" in finding.reason
        deaf.release.set()
    assert "It keeps its slot" in caplog.text


async def test_a_body_that_is_slow_to_clean_up_keeps_its_slot(
    docket: Docket, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hearing, "PATIENCE", 60)
    started, cleaning, cleaned = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def tidy() -> None:
        try:
            started.set()
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await cleaned.wait()

    execution = await docket.add(tidy, key="k")()
    async with at_work(make_worker()):
        await soon(started.wait())
        await docket.cancel("k")
        await soon(cleaning.wait())
        cleaned.set()
        await eventually(lambda: is_cancelled(execution))
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


async def test_one_who_cancels_within_his_own_code_is_left_in_peace() -> None:
    over, release = asyncio.Event(), asyncio.Event()

    async def attend(tenure: Tenure) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        over.set()
        await release.wait()

    roster = Roster(1, attend, lambda _: None, "docket")
    roster.claimed([Claim("id", 1, "key", "task", b"", 1, datetime.now(UTC))], 100.0, 0.0)
    await soon(over.wait())
    for moment in (0.0, 100.0, 200.0):
        Hearing(roster).look(moment)
    assert (roster.room, roster.deaf) == (0, [])
    release.set()
    await soon(roster.is_idle.wait())


async def test_a_worker_that_stops_does_not_wait_for_them(
    docket: Docket, make_worker: MakeWorker, deaf: Deaf, noticed: Noticed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail.worker.crew.FLUSH_TIME", 0.05)
    worker = make_worker(shutdown_grace=timedelta(minutes=5))
    running = asyncio.create_task(worker.run_forever())
    await docket.add(deaf.hold, key="deaf")()
    await soon(deaf.started.wait())
    await docket.cancel("deaf")
    await soon(noticed.once.wait())
    worker.stop()
    await soon(running)
    assert deaf.swallowed >= 2  # it was asked once more
