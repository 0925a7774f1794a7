"""`status`, `queues ls` and `snapshot`."""

from datetime import UTC, datetime, timedelta

import pytest

from dovetail import Docket, Worker
from tests.cli.commands import Commands
from tests.cli.tasks_for_commands import count, send


async def test_the_status_of_an_empty_docket_says_what_to_do(docket: Docket, dovetail: Commands) -> None:
    said = await dovetail("status")
    assert "docket 'tests'" in said.lines[0]
    assert "no worker is running; start one with `dovetail worker`" in said.out
    assert "nothing is queued" in said.out


async def test_the_status_counts_by_queue_and_state(docket: Docket, dovetail: Commands) -> None:
    await docket.add(send)("ann")
    await docket.add(send, when=datetime.now(UTC) + timedelta(hours=2))("bob")
    await docket.add(count)(3)
    await docket.pause("mail", reason="the provider is down", owner="ann")
    await docket.strike("count")
    said = await dovetail("status")
    assert "1 strike in force" in said.out
    (mail,) = [line.split() for line in said.lines if line.startswith("mail (paused)")]
    assert mail[2:4] == ["1", "1"]
    assert "mail is paused by ann" in said.out
    assert "the provider is down" in said.out
    data = (await dovetail("status", "--json")).json
    assert {queue["name"]: queue["counts"]["queued"] for queue in data["queues"]} == {"default": 1, "mail": 1}
    assert data["queues"][1]["paused"]["owner"] == "ann"
    assert data["strikes"] == 1


async def test_queues_are_listed(docket: Docket, dovetail: Commands) -> None:
    assert "nothing is queued" in (await dovetail("queues", "ls")).out
    await docket.add(send)("ann")
    assert (await dovetail("queues", "ls")).lines[1].startswith("mail")
    (queue,) = (await dovetail("queues", "ls", "--json")).json
    assert (queue["name"], queue["counts"]["queued"]) == ("mail", 1)


async def test_an_empty_snapshot(docket: Docket, dovetail: Commands) -> None:
    said = await dovetail("snapshot", "--stats")
    assert "0 workers, 0/0 running" in said.out
    assert "nothing is queued" in said.out
    assert "Statistics" not in said.out


async def test_a_snapshot_shows_the_first_of_many_and_counts_them_all(docket: Docket, dovetail: Commands) -> None:
    for number in range(4):
        await docket.add(count, key=f"count:{number}")(number)
    await docket.add(send, when=datetime.now(UTC) + timedelta(minutes=30, seconds=30), key="ann")("ann")
    said = await dovetail("snapshot", "--stats", "--limit", "3")
    assert "0/5 running" in said.out
    assert "and 2 more" in said.out
    assert [line.split()[:4] for line in said.lines if line.startswith("count  ")] == [["count", "4", "0", "4"]]
    (sent,) = [line for line in said.lines if line.startswith("send  ")]
    assert sent.rstrip().endswith("in 30 min")
    data = (await dovetail("snapshot", "--stats", "--json")).json
    assert [each["task"] for each in data["stats"]] == ["count", "send"]
    assert [run["key"] for run in data["runs"]][-1] == "ann"


async def test_workers_are_listed_with_what_they_know(docket: Docket, dovetail: Commands, worker: Worker) -> None:
    assert "no worker is running" in (await dovetail("workers", "ls")).out
    seen: list[str] = []

    async def look() -> None:
        seen.append((await dovetail("workers", "ls")).out)
        seen.append((await dovetail("workers", "for-task", "look", "--json")).out)
        seen.append((await dovetail("snapshot")).out)

    await docket.add(look, key="looking")()
    await worker.run_until_finished()
    assert "worker" in seen[0]
    assert "1/10" in seen[0] or "0/10" in seen[0]  # the worker says so with its next heartbeat
    assert '"look"' in seen[1]
    assert "1/1 running" in seen[2]
    said = await dovetail("workers", "for-task", "look", code=3)
    assert "no worker that is running knows the task 'look'" in said.err


@pytest.mark.parametrize("command", [("status",), ("queues", "ls"), ("snapshot",), ("ls",), ("workers", "ls")])
async def test_a_line_has_80_columns_at_most(docket: Docket, dovetail: Commands, command: tuple[str, ...]) -> None:
    await docket.add(send, key="k" * 300, queue="a queue of a long name, which nobody would choose")("ann")
    said = await dovetail(*command)
    table = said.out.partition("\n\n")[2] or said.out
    assert [line for line in table.splitlines() if len(line) > 80] == []
