"""`watch`, while the run goes on."""

import asyncio
from datetime import UTC, datetime, timedelta

from dovetail import Docket, Progress, Worker
from tests.cli.commands import Commands
from tests.cli.tasks_for_commands import send
from tests.conftest import MakeWorker


async def test_a_run_is_followed_from_its_start_to_its_end(docket: Docket, dovetail: Commands, worker: Worker) -> None:
    watched = asyncio.Event()

    async def slow(progress: Progress = Progress()) -> None:
        await progress.set_total(4)
        await progress.increment(2)
        await progress.set_message("halfway")
        await watched.wait()

    await docket.add(slow, key="slow")()
    working = asyncio.create_task(worker.run_until_finished())
    said = await dovetail("watch", "slow", "--timeout", "3s", code=3)
    assert "the run 'slow' is still running" in said.err
    last = said.lines[-1]
    assert "running Worker worker" in last
    assert "2/4 halfway" in last
    watching = asyncio.create_task(dovetail("watch", "slow"))
    watched.set()
    assert (await watching).lines[-1] == "slow on tests: ✓ completed"
    await working


async def test_a_run_whose_record_is_not_kept_is_followed_to_its_end(
    url: str, dovetail: Commands, make_worker: MakeWorker
) -> None:
    async with Docket("tests", url, execution_ttl=timedelta()) as docket:
        await docket.add(send, key="brief", when=datetime.now(UTC) + timedelta(seconds=3))("ann")
        watching = asyncio.create_task(dovetail("watch", "brief", "--json"))
        await make_worker(docket).run_until_finished()
        assert (await watching).json["state"] == "completed"
