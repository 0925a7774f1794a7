"""`add`, and `tasks`."""

from datetime import UTC, datetime, timedelta

import pytest

from dovetail import Docket, Worker
from tests.cli.commands import Commands
from tests.cli.tasks_for_commands import PATH, send


async def test_a_call_is_scheduled_with_arguments_as_the_task_wants_them(
    docket: Docket, dovetail: Commands, worker: Worker
) -> None:
    docket.register(send)
    arguments = '{"to": "ann", "when": "2030-01-31T09:00:00Z", "amount": "1.50"}'
    said = await dovetail("add", "send", "--tasks", PATH, "--args", arguments, "--key", "ann", "--tag", "by hand")
    assert said.out == "ann\n"
    execution = await docket.get_execution("ann")
    assert execution is not None
    assert (execution.run and execution.run.queue, execution.tags) == ("mail", ("by hand",))
    await worker.run_until_finished()
    assert await execution.get_result() == "1.50 to ann at 2030-01-31 09:00:00+00:00"


async def test_one_call_has_its_own_attempts_timeout_and_notes(docket: Docket, dovetail: Commands) -> None:
    options = ("--attempts", "7", "--timeout", "1h30m", "--metadata", '{"asked by": "ann"}', "--key", "patient")
    await dovetail("add", "fetch", "--tasks", PATH, *options)
    execution = await docket.get_execution("patient")
    assert execution is not None
    assert execution.metadata == {"asked by": "ann"}
    assert execution.run is not None
    assert {"7", str(90 * 60 * 1_000_000)} <= set(execution.run.headers.values())


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--attempts", "0"), 2), (("--timeout", "soon"), 2), (("--metadata", "{"), 2), (("--metadata", "[1]"), 2),
        (("--timeout", "0"), 1),
    ],
)  # fmt: skip
async def test_what_no_call_can_have_is_refused(
    docket: Docket, dovetail: Commands, options: tuple[str, ...], code: int
) -> None:
    await dovetail("add", "fetch", "--tasks", PATH, *options, code=code)


async def test_attempts_are_for_tasks_that_can_be_tried_again(docket: Docket, dovetail: Commands) -> None:
    said = await dovetail("add", "send", "-a", '["ann"]', "--tasks", PATH, "--max-attempts", "2", code=1)
    assert "declare a Retry" in said.err


async def test_a_call_is_scheduled_for_later_with_all_options(docket: Docket, dovetail: Commands) -> None:
    await dovetail("add", "trace", "-a", '["first"]', "--key", "first", "--in", "1h30m")
    said = await dovetail(
        "enqueue", "send", "--tasks", PATH, "-a", '["ann"]', "--unique-key", "second", "--after", "first", "--queue",
        "slow", "--priority", "7", "--group", "customers", "--at", "2090-01-01T00:00Z", "--json",
    )  # fmt: skip
    assert said.json["disposition"] == "scheduled"
    (run,) = (await dovetail("ls", "--key", "second", "--json")).json["runs"]
    assert (run["state"], run["queue"], run["priority"], run["group"]) == ("waiting", "slow", 7, "customers")
    assert run["due"] == "2090-01-01T00:00:00Z"
    first = await docket.get_execution("first")
    assert first is not None
    assert timedelta(minutes=89) < first.when - datetime.now(UTC) <= timedelta(minutes=90)


async def test_a_key_that_is_taken_and_a_stricken_call_are_not_scheduled(docket: Docket, dovetail: Commands) -> None:
    await dovetail("add", "trace", "-a", '["hi"]', "--key", "hi", "--in", "1h")
    assert "the key 'hi' is taken" in (await dovetail("add", "trace", "-a", '["hi"]', "--key", "hi", code=3)).err
    await dovetail("add", "trace", "-a", '["hello"]', "--key", "hi", "--replace")
    execution = await docket.get_execution("hi")
    assert execution is not None
    assert execution.args == ("hello",)
    await docket.strike("trace")
    assert "stricken" in (await dovetail("add", "trace", "-a", '["hi"]', code=3)).err
    assert "stricken" in (await dovetail("tasks", "trace", "hi", code=3)).err


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (("--args", "{to: ann}"), "--args is no JSON"),
        (("--args", "5"), "--args must be a JSON object"),
        (("--args", "{}"), "missing a required argument: 'to'; the task is called as send(to: str"),
        (("--args", '{"to": "ann", "cc": "bob"}'), "unexpected keyword argument 'cc'"),
        (("--args", '{"to": "ann", "when": "tomorrow"}'), "when: "),
        (("--in", "5 parsecs"), "'5 parsecs' is no duration"),
        (("--at", "noon"), "'noon' is no time"),
        (("--in", "5m", "--at", "09:00"), "--in and --at both say when"),
        (("--replace",), "--replace needs the --key"),
        (("--in", "99999999d"), "is after the last year"),
    ],
)
async def test_wrong_input_is_refused_and_nothing_is_scheduled(
    docket: Docket, dovetail: Commands, wrong: tuple[str, ...], told: str
) -> None:
    said = await dovetail("add", "send", "--tasks", PATH, *wrong, code=2)
    assert told in " ".join(said.err.split())
    assert (await docket.snapshot()).total_tasks == 0


async def test_an_unknown_task_is_told_with_those_that_are_near(docket: Docket, dovetail: Commands) -> None:
    said = await dovetail("add", "sned", "--tasks", PATH, code=3)
    assert said.err == "dovetail: the task 'sned' is not known here; did you mean 'send'? (--tasks module:member)\n"
    assert "No module named 'nowhere'" in (await dovetail("add", "send", "--tasks", "nowhere:tasks", code=1)).err
    assert "has no member 'none'" in (
        await dovetail("add", "send", "--tasks", "tests.cli.tasks_for_commands:none", code=1)
    ).err  # fmt: skip


async def test_the_tasks_to_try_a_set_up_with(docket: Docket, dovetail: Commands, worker: Worker) -> None:
    for command in (("trace", "hi"), ("fail", "oh no"), ("sleep", "0.01"), ("trace", "--delay", "10ms")):
        said = await dovetail("tasks", *command)
        assert said.out.startswith(f"Added {command[0]} task '"), command
        assert said.out.endswith("' to the docket 'tests'\n")
    await worker.run_until_finished()
    (failure,) = await docket.failed()
    assert "oh no" in str(failure.error)


async def test_tasks_are_listed_and_exported(dovetail: Commands) -> None:
    said = await dovetail.without_place("tasks", "ls", "--tasks", PATH)
    assert [line.split()[:2] for line in said.lines] == [
        ["TASK", "QUEUE"], ["count", "default"], ["fetch", "default"], ["send", "mail"],
    ]  # fmt: skip
    said = await dovetail.without_place("tasks", "export", "--tasks", PATH)
    count, _, send = said.json["tasks"]
    assert count["args_schema"] == {
        "type": "object",
        "properties": {"up_to": {"type": "integer"}},
        "required": ["up_to"],
        "additionalProperties": False,
    }
    assert count["defaults"]["behaviors"] == ["Progress"]
    assert (send["description"], send["is_async"], send["defaults"]["queue"]) == ("Send a mail.", True, "mail")
    assert set(send["args_schema"]["properties"]) == {"to", "when", "amount"}


async def test_a_task_to_try_a_set_up_with_is_told_as_data(docket: Docket, dovetail: Commands) -> None:
    told = (await dovetail("tasks", "trace", "hi", "--json")).json
    execution = await docket.get_execution(told["key"])
    assert execution is not None
    assert (told["task"], told["disposition"], told["id"]) == ("trace", "scheduled", execution.id)
