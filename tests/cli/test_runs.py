"""`ls`, `show` and `graph`."""

import re
from datetime import UTC, datetime, timedelta

from dovetail import Cooldown, Docket, Worker
from dovetail.model import NewRun
from tests.cli.commands import Commands
from tests.cli.tasks_for_commands import PATH, count, send


async def test_an_empty_list_says_so(docket: Docket, dovetail: Commands) -> None:
    assert (await dovetail("ls")).out == "nothing found\n"


async def test_runs_are_listed_the_newest_first_and_page_by_page(docket: Docket, dovetail: Commands) -> None:
    for number in range(5):
        await docket.add(count, key=f"count:{number}")(number)
    said = await dovetail("ls", "--limit", "2")
    assert [line.split()[0] for line in said.lines] == ["KEY", "count:4", "count:3"]
    cursor = said.err.split()[-1]
    said = await dovetail("ls", "--limit", "3", "--cursor", cursor)
    assert [line.split()[0] for line in said.lines] == ["KEY", "count:2", "count:1", "count:0"]
    assert said.err == ""
    data = (await dovetail("find", "--oldest-first", "--limit", "1", "--json")).json
    assert ([run["key"] for run in data["runs"]], data["cursor"] is None) == (["count:0"], False)


async def test_what_makes_schedules_tick_is_listed_only_if_it_is_asked_for(docket: Docket, dovetail: Commands) -> None:
    await docket.add(count, key="mine")(1)
    await docket.schedules.add("nightly", count, "0 3 * * *")(1)
    said = await dovetail("ls", "--limit", "1")
    assert ([line.split()[0] for line in said.lines], said.err) == (["KEY", "mine"], "")
    for asked in (("-q", "dovetail.schedules"), ("-t", "dovetail.schedule"), ("-k", "dovetail.schedule:nightly")):
        assert (await dovetail("ls", *asked)).lines[1].startswith("dovetail.schedule:nightly")


async def test_filters_must_all_hold(docket: Docket, dovetail: Commands, worker: Worker) -> None:
    await docket.add(send, key="nobody")("nobody")
    await docket.add(send, key="ann")("ann")
    await worker.run_until_finished()
    await docket.add(count, key="counting", group="numbers")(3)

    async def keys(*filters: str) -> list[str]:
        return [run["key"] for run in (await dovetail("ls", "--json", *filters)).json["runs"]]

    assert await keys("--state", "failed") == ["nobody"]
    assert await keys("--state", "failed", "--state", "QUEUED") == ["counting", "nobody"]
    assert await keys("--queue", "mail", "--task", "send", "--since", "1h") == ["ann", "nobody"]
    assert await keys("--error", "no such") == ["nobody"]
    assert await keys("--group", "numbers") == ["counting"]
    assert await keys("--tag", "outgoing") == ["ann", "nobody"]
    assert await keys("--tag", "outgoing", "--tag", "incoming") == []
    assert await keys("--key", "ann", "--key", "nobody") == ["ann", "nobody"]
    assert await keys("--before", "1h") == []
    assert await keys("--task", "send", "--state", "queued") == []


async def test_a_run_is_shown_without_its_arguments_unless_they_are_asked_for(
    docket: Docket, dovetail: Commands, worker: Worker
) -> None:
    await docket.add(send, key="ann")("ann@example.com")
    await worker.run_until_finished()
    said = await dovetail("show", "ann")
    told = dict(line.split(maxsplit=1) for line in said.lines)
    assert (told["task"], told["state"], told["queue"], told["tags"]) == ("send", "completed", "mail", "outgoing")
    assert told["finished"].endswith("ago)") or told["finished"].endswith("(now)")
    assert told["result"] == "1 to ann@example.com at None"
    assert "arguments" not in told
    assert (
        "ann@example.com"
        in dict(line.split(maxsplit=1) for line in (await dovetail("show", "ann", "--arguments")).lines)["arguments"]
    )
    data = (await dovetail("show", "ann", "--arguments", "--tasks", PATH, "--json")).json
    assert data["arguments"]["args"] == ["ann@example.com"]
    assert "arguments" not in (await dovetail("show", "ann", "--json")).json


async def test_a_run_that_failed_is_shown_with_its_history(docket: Docket, dovetail: Commands, worker: Worker) -> None:
    await docket.add("fail", key="failing")("oh no")
    await worker.run_until_finished()
    said = await dovetail("show", "failing")
    assert [line.split(",")[0] for line in said.lines if line.startswith("  attempt")] == ["  attempt 1", "  attempt 2"]
    assert "RuntimeError: oh no" in said.out
    assert "Traceback" not in said.out
    assert "Traceback" in (await dovetail("show", "failing", "--traceback")).out
    data = (await dovetail("show", "failing", "--json")).json
    assert [each["failure"]["type"] for each in data["errors"]] == ["RuntimeError", "RuntimeError"]


async def test_a_run_that_was_cancelled_says_why(docket: Docket, dovetail: Commands, worker: Worker) -> None:
    async def refresh(cooldown: Cooldown = Cooldown(timedelta(hours=1))) -> None: ...

    for key in ("first", "second"):
        await docket.add(refresh, key=key)()
    await worker.run_until_finished()
    for command in (("ls",), ("show", "second"), ("find", "--error", "had no room")):
        assert "Dropped: the limit cooldown:task:refresh" in (await dovetail(*command)).out
    assert "no room under Cooldown of 'refresh'" in " ".join((await dovetail("why", "second")).out.split())


async def test_an_unknown_key_is_said_in_one_line(docket: Docket, dovetail: Commands) -> None:
    for command in ("show", "graph", "watch"):
        said = await dovetail(command, "nope", code=3)
        assert said.err == (
            "dovetail: there is no record of a run 'nope' on the docket 'tests'; see `dovetail ls`\n"
        ), command


async def test_stored_text_cannot_steer_the_terminal(docket: Docket, dovetail: Commands) -> None:
    await docket.engine.schedule([NewRun("id", "evil\x1b[2J\nkey", "task\x07")])
    await docket.pause("mail", reason="\x1b[2Jdown", owner="\x07ann")
    assert "\x1b" not in (await dovetail("status")).out
    for command in (["ls"], ["snapshot"], ["show", "evil\x1b[2J\nkey"], ["graph", "evil\x1b[2J\nkey"]):
        said = await dovetail(*command)
        assert "\x1b" not in said.out, command
        assert "\x07" not in said.out, command
        assert r"evil\x1b[2J\nkey" in said.out.replace("\n", ""), command


async def test_a_run_whose_arguments_cannot_be_read_is_shown_all_the_same(docket: Docket, dovetail: Commands) -> None:
    await docket.engine.schedule([NewRun("id", "broken", "send", b"\xff\x00 no call")])
    assert "broken" in (await dovetail("ls")).out
    said = await dovetail("show", "broken", "--arguments")
    assert "unreadable" in said.out
    assert "queued" in said.out


async def test_what_a_run_waits_for_is_named_by_key_and_state(docket: Docket, dovetail: Commands) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    await docket.add(count, when=later, key="first")(1)
    await docket.add(count, when=later, key="second")(2)
    await docket.add(count, key="last", after=["first", "second"])(3)
    told = dict(re.split("  +", line, maxsplit=1) for line in (await dovetail("show", "last")).lines)
    assert told["waits for"] == "first (scheduled), second (scheduled)"
    data = (await dovetail("show", "last", "--json")).json
    assert [(each["id"], each["key"], each["state"]) for each in data["relatives"]] == [
        (data["parents"][0], "first", "scheduled"), (data["parents"][1], "second", "scheduled"),
    ]  # fmt: skip
    await docket.cancel("second")
    told = dict(re.split("  +", line, maxsplit=1) for line in (await dovetail("show", "last")).lines)
    assert (told["waited for"], told["cancelled by"]) == ("first (scheduled), second (cancelled)", "second (cancelled)")


async def test_one_whose_record_is_gone_is_named_by_its_id(docket: Docket, dovetail: Commands) -> None:
    await docket.add(count, key="first")(1)
    await docket.add(count, key="second", after=["first"])(2)
    await docket.cancel("first")
    await docket.discard("first")
    data = (await dovetail("show", "second", "--json")).json
    assert data["relatives"] == []
    assert f"cancelled by  {data['doomed_by']} (no record)" in (await dovetail("show", "second")).out


async def test_of_many_parents_some_are_named(docket: Docket, dovetail: Commands) -> None:
    keys = [f"part:{number}" for number in range(23)]
    later = datetime.now(UTC) + timedelta(hours=1)
    for key in keys:
        await docket.add(count, when=later, key=key)(1)
    await docket.add(count, key="sum", after=keys)(2)
    (line,) = [line for line in (await dovetail("show", "sum")).lines if line.startswith("waits for")]
    assert "part:19 (scheduled), 3 more; see `dovetail graph`" in line
    assert "part:20" not in line


async def test_a_graph_shows_what_hangs_on_what(docket: Docket, dovetail: Commands) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    await docket.add(count, when=later, key="first")(1)
    await docket.add(count, key="second", after=["first"])(2)
    await docket.add(count, key="third", after=["first", "second"])(3)
    said = await dovetail("graph", "second")
    assert [line.strip("└─ ").split("  ")[0] for line in said.lines] == ["first", "second", "third", "third"]
    assert said.lines[0].startswith("first  count  scheduled")
    data = (await dovetail("graph", "third", "--json")).json
    assert len(data["edges"]) == 3
    assert {node["key"] for node in data["nodes"]} == {"first", "second", "third"}
