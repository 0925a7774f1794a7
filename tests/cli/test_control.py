"""`cancel`, `retry`, `clear`, `pause` and `resume`."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from dovetail import Docket, Worker
from tests.cli.commands import Commands
from tests.cli.tasks_for_commands import PATH, count, send


async def test_cancelling_says_what_it_met(docket: Docket, dovetail: Commands, worker: Worker) -> None:
    await docket.add(send, key="over")("ann")
    await worker.run_until_finished()
    await docket.add(send, key="waiting")("ann")
    said = await dovetail("cancel", "waiting")
    assert said.out == "waiting cancelled\n"
    said = await dovetail("cancel", "over", "nope", code=3)
    assert (said.out, len(said.err.splitlines())) == ("", 2)
    assert (await dovetail("cancel", "over", "nope", "--json", code=3)).json == {"over": "over", "nope": "unknown"}


async def test_a_running_task_is_asked_to_stop(docket: Docket, dovetail: Commands, worker: Worker) -> None:
    started = asyncio.Event()

    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    await docket.add(endless, key="endless")()
    working = asyncio.create_task(worker.run_until_finished())
    await started.wait()
    assert (await dovetail("cancel", "endless")).out == "endless is running, and was asked to stop\n"
    await working
    await dovetail("watch", "endless", code=6)


async def test_a_run_goes_again_with_other_arguments(docket: Docket, dovetail: Commands, worker: Worker) -> None:
    execution = await docket.add(send, key="wrong")("nobody")
    await worker.run_until_finished()
    said = await dovetail("retry", "wrong", "--args", '{"to": "ann", "amount": "2.50"}', "--tasks", PATH)
    assert said.out == "wrong goes again\n"
    await worker.run_until_finished()
    assert await execution.get_result() == "2.50 to ann at None"


async def test_what_cannot_go_again_is_refused_in_one_line(docket: Docket, dovetail: Commands) -> None:
    await docket.add(send, key="waiting")("ann")
    said = await dovetail("retry", "waiting", code=3)
    assert said.err == "dovetail: the run 'waiting' is queued; only one that is over can be run again\n"
    await docket.cancel("waiting")
    data = (await dovetail("retry", "nope", "waiting", "--json", code=3)).json
    assert data["retried"] == ["waiting"]
    assert "there is no record of a run 'nope'" in data["refused"]["nope"]


async def test_clearing_leaves_what_is_not_meant(docket: Docket, dovetail: Commands) -> None:
    assert (await dovetail("clear")).out == "Cleared 0 tasks from docket 'tests'\n"
    for number in range(3):
        await docket.add(send)("ann")
        await docket.add(count, when=datetime.now(UTC) + timedelta(hours=1), key=f"count:{number}")(number)
    assert (await dovetail("clear", "--queue", "mail")).out == "Cleared 3 tasks from docket 'tests'\n"
    assert (await dovetail("clear", "--task", "send", "--json")).json == {"docket": "tests", "cleared": 0}
    assert (await dovetail("clear", "--yes", "--json")).json == {"docket": "tests", "cleared": 3}
    assert (await docket.snapshot()).total_tasks == 0


async def test_a_queue_is_paused_with_a_reason_and_an_end_and_resumed(docket: Docket, dovetail: Commands) -> None:
    await docket.add(send)("ann")
    said = await dovetail("pause", "mail", "--reason", "the provider is down", "--owner", "ann", "--for", "5m")
    assert said.out.startswith("mail is paused until 20")
    assert said.err == ""
    (queue,) = await docket.queues()
    assert queue.paused is not None
    assert (queue.paused.reason, queue.paused.owner) == ("the provider is down", "ann")
    assert queue.paused.until is not None
    assert timedelta(minutes=4) < queue.paused.until - datetime.now(UTC) <= timedelta(minutes=5)
    assert (await dovetail("resume", "mail")).out == "mail goes on\n"
    assert not (await docket.queues())[0].is_paused


async def test_a_slip_in_a_queues_name_is_noticed(docket: Docket, dovetail: Commands) -> None:
    await docket.add(send)("ann")
    said = await dovetail("pause", "mial")
    assert said.err == "dovetail: the queue 'mial' holds no runs at present; did you mean 'mail'?\n"
    said = await dovetail("resume", "mail", code=3)
    assert said.err == "dovetail: the queue 'mail' was not paused; paused: 'mial'\n"


@pytest.mark.parametrize(
    "ends", [("--until", "2001-01-01"), ("--until", "soon"), ("--for", "-5m"), ("--until", "2090-01-01", "--for", "1h")]
)
async def test_an_end_that_cannot_be_is_refused(docket: Docket, dovetail: Commands, ends: tuple[str, ...]) -> None:
    code = 1 if "2001-01-01" in ends else 2
    await dovetail("pause", "mail", *ends, code=code)
    assert await docket.queues() == []


async def test_the_exit_code_of_watching_says_how_a_run_ended(
    docket: Docket, dovetail: Commands, worker: Worker
) -> None:
    await docket.add(send, key="done")("ann")
    await docket.add(send, key="failing")("nobody")
    await docket.add(send, key="cancelled", when=datetime.now(UTC) + timedelta(hours=1))("ann")
    await docket.cancel("cancelled")
    await worker.run_until_finished()
    assert (await dovetail("watch", "done")).out == "done on tests: ✓ completed\n"
    assert "LookupError: no such address" in (await dovetail("watch", "failing", code=5)).out
    assert "cancelled" in (await dovetail("watch", "cancelled", code=6)).out


async def test_pauses_are_told_as_data(docket: Docket, dovetail: Commands) -> None:
    laid = (await dovetail("pause", "mail", "--reason", "it is down", "--json")).json
    assert laid == {"queue": "mail", "reason": "it is down", "owner": None, "until": None}
    assert (await dovetail("resume", "mail", "--json")).json == {"queue": "mail", "resumed": True}
    assert (await dovetail("resume", "mail", "--json", code=3)).json == {"queue": "mail", "resumed": False}
    assert await docket.queues() == []
