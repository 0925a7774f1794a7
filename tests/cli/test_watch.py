"""`watch`, while the run goes on."""

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from dovetail import Docket, Execution, Progress, Worker
from dovetail.cli.watch import _next  # pyright: ignore[reportPrivateUsage]
from dovetail.model import Event
from tests.cli.commands import Commands
from tests.cli.tasks_for_commands import send
from tests.conftest import MakeWorker
from tests.waiting import PATIENCE, eventually


async def is_halfway(execution: Execution[Any]) -> bool:
    await execution.progress.sync()
    return execution.progress.message == "halfway"


async def test_a_run_is_followed_from_its_start_to_its_end(docket: Docket, dovetail: Commands, worker: Worker) -> None:
    watched = asyncio.Event()

    async def slow(progress: Progress = Progress()) -> None:
        await progress.set_total(4)
        await progress.increment(2)
        await progress.set_message("halfway")
        await watched.wait()

    execution = await docket.add(slow, key="slow")()
    working = asyncio.create_task(worker.run_until_finished())
    await eventually(lambda: is_halfway(execution))
    said = await dovetail("watch", "slow", "--timeout", "5s", code=3)
    assert "the run 'slow' is still running" in said.err
    last = said.lines[-1]
    assert "running Worker worker" in last
    assert "2/4 halfway" in last
    watching = asyncio.create_task(dovetail("watch", "slow"))
    watched.set()
    assert (await watching).lines[-1] == "slow on tests: ✓ completed"
    await working


async def test_a_run_whose_record_is_not_kept_is_followed_to_its_end(
    url: str, dovetail: Commands, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = threading.Event()

    async def next_event(events: AsyncIterator[Event]) -> Event | None:
        waits.set()
        return await _next(events)

    monkeypatch.setattr("dovetail.cli.watch._next", next_event)
    async with Docket("tests", url, execution_ttl=timedelta()) as docket:
        await docket.add(send, key="brief")("ann")
        watching = asyncio.create_task(dovetail("watch", "brief", "--json"))
        assert await asyncio.to_thread(waits.wait, PATIENCE)
        await make_worker(docket).run_until_finished()
        assert (await watching).json["state"] == "completed"
