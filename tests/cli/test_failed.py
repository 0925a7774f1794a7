"""`failed ls`, `show`, `retry` and `discard`."""

import pytest

from dovetail import Docket, Worker
from tests.cli.commands import Commands
from tests.cli.tasks_for_commands import send


@pytest.fixture
async def failures(docket: Docket, worker: Worker) -> None:
    for number in range(3):
        await docket.add(send, key=f"mail:{number}")("nobody")
    await docket.add("fail", key="other")("oh no")
    await worker.run_until_finished()


async def test_nothing_has_failed(docket: Docket, dovetail: Commands) -> None:
    assert (await dovetail("failed", "ls")).out == "nothing has failed\n"
    assert (await dovetail("failed", "ls", "--task", "send")).out == "nothing of that kind has failed\n"


@pytest.mark.usefixtures("failures")
async def test_failures_are_listed_by_what_they_have_in_common(dovetail: Commands) -> None:
    said = await dovetail("failed", "ls", "--task", "send", "--limit", "2")
    assert [line.split()[0] for line in said.lines] == ["KEY", "mail:2", "mail:1"]
    assert "LookupError: no such address" in said.lines[1]
    assert "--cursor" in said.err

    async def keys(*filters: str) -> list[str]:
        return sorted(run["key"] for run in (await dovetail("failed", "ls", "--json", *filters)).json["runs"])

    assert await keys("--queue", "mail") == ["mail:0", "mail:1", "mail:2"]
    assert await keys("--error", "oh no") == ["other"]
    assert await keys("--since", "1h", "--queue", "default") == ["other"]
    assert await keys("--before", "1h") == []
    assert "LookupError" in (await dovetail("failed", "show", "mail:0")).out


@pytest.mark.usefixtures("failures")
async def test_many_go_again_when_it_is_confirmed(docket: Docket, dovetail: Commands) -> None:
    said = await dovetail("failed", "retry", "--task", "send", code=2)
    assert said.err == "dovetail: Run again all that failed of the task 'send'? Say so with --yes; nothing was done\n"
    assert len(await docket.failed()) == 4
    assert (await dovetail("failed", "retry", "--task", "send", "--yes")).out == "3 runs go again\n"
    assert (await dovetail("failed", "retry", "--all", "-y", "--json")).json == {"retried": 1}
    assert len(await docket.failed()) == 0


@pytest.mark.usefixtures("failures")
async def test_keys_go_again_without_a_question(docket: Docket, dovetail: Commands) -> None:
    assert (await dovetail("failed", "retry", "mail:0", "mail:1")).out == "mail:0 goes again\nmail:1 goes again\n"
    assert len(await docket.failed()) == 2


@pytest.mark.parametrize("vague", [(), ("key", "--all"), ("key", "--task", "send"), ("--since", "never", "--yes")])
async def test_what_is_not_clear_is_refused(docket: Docket, dovetail: Commands, vague: tuple[str, ...]) -> None:
    await dovetail("failed", "retry", *vague, code=2)


@pytest.mark.usefixtures("failures")
async def test_records_are_dropped_when_it_is_confirmed(docket: Docket, dovetail: Commands) -> None:
    said = await dovetail("failed", "discard", "--tag", "outgoing", code=2)
    assert said.err == (
        "dovetail: Drop the records of all that failed with the tag 'outgoing'? Say so with --yes; nothing was done\n"
    )
    assert len(await docket.failed()) == 4
    assert (await dovetail("failed", "discard", "--tag", "outgoing", "--yes")).out == "3 records are gone\n"
    assert (await dovetail("failed", "discard", "--all", "-y", "--json")).json == {"discarded": 1}
    assert len(await docket.failed()) == 0


@pytest.mark.usefixtures("failures")
async def test_records_of_keys_are_dropped_and_what_cannot_be_is_said(docket: Docket, dovetail: Commands) -> None:
    await docket.add(send, key="waits")("ann")
    said = await dovetail("failed", "discard", "mail:0", "waits", "never", "mail:0", code=3)
    assert said.out == "the record of mail:0 is gone\n"
    assert "'waits' is queued; only one that is over can be discarded" in said.err
    assert "no record of a run 'never'" in said.err
    assert (await dovetail("failed", "discard", "mail:1", "--json")).json == {"discarded": ["mail:1"], "refused": {}}
    assert {execution.key for execution in await docket.failed()} == {"mail:2", "other"}


@pytest.mark.parametrize("vague", [(), ("key", "--all"), ("--before", "never", "--yes")])
async def test_what_is_not_clear_is_not_dropped(docket: Docket, dovetail: Commands, vague: tuple[str, ...]) -> None:
    await dovetail("failed", "discard", *vague, code=2)
