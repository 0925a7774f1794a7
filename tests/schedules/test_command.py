"""The commands for schedules."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from dovetail.cli.main import app


async def count_from(day: date) -> None: ...


tasks = [count_from]


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_URL", f"sqlite:///{tmp_path}/store.db")
    assert CliRunner().invoke(app, ["migrate"]).exit_code == 0


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["schedules", *words])


def data(*words: str) -> Any:
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def nightly(*more: str) -> Result:
    return run("add", "nightly", "sleep", "--cron", "0 3 * * *", "--tz", "Europe/Vienna", "--args", "[1.5]", *more)


def test_a_schedule_can_be_made_and_shown():
    assert nightly("--tag", "money", "--until", "2040-01-01T00:00Z").exit_code == 0
    shown = data("show", "nightly")
    assert (shown["name"], shown["task"], shown["args"], shown["tags"]) == ("nightly", "sleep", [1.5], ["money"])
    assert (shown["cron"], shown["tz"], shown["until"]) == ("0 3 * * *", "Europe/Vienna", "2040-01-01T00:00:00Z")
    told = run("show", "nightly").output
    assert "0 3 * * * (Europe/Vienna)" in told
    assert "(1.5)" in told


def test_schedules_are_listed():
    nightly()
    run("add", "often", "sleep", "--every", "1h30m", "--kwargs", '{"seconds": 1}')
    assert [(each["name"], each["every"]) for each in data("ls")] == [("nightly", None), ("often", "PT5400S")]
    table = run("ls").output
    assert all(len(line) <= 80 for line in table.splitlines())
    assert "every 1:30:00" in table


def test_where_there_are_none_the_list_says_so():
    nightly()
    run("delete", "nightly")
    assert "there are no schedules" in run("ls").output


def test_a_schedule_can_be_paused_and_resumed():
    nightly()
    assert data("pause", "nightly", "--reason", "holidays", "--owner", "ann")["paused"]["reason"] == "holidays"
    assert "paused" in run("ls").output
    assert data("resume", "nightly")["paused"] is None


def test_a_schedule_can_be_changed():
    nightly()
    changed = data("change", "nightly", "--every", "60", "--priority", "7", "--args", "[2]", "--overlap", "skip")
    assert (changed["cron"], changed["every"], changed["priority"]) == (None, "PT60S", 7)
    assert (changed["args"], changed["overlap"]) == ([2], "skip")


def test_a_schedule_can_be_triggered():
    nightly("--overlap", "skip")
    assert run("trigger", "nightly").output == "schedule:nightly\n"
    for words in ((), ("--json",)):
        again = run("trigger", "nightly", *words)
        assert (again.exit_code, again.stderr) == (
            3, "dovetail: a run of 'nightly' is there already: 'schedule:nightly'\n"
        )  # fmt: skip
    assert json.loads(again.stdout)["disposition"] == "already_scheduled"


def test_a_schedule_can_be_deleted():
    nightly()
    assert run("delete", "nightly").output == "nightly is deleted\n"
    assert data("ls") == []


@pytest.mark.parametrize("verb", ["show", "pause", "resume", "trigger", "delete"])
def test_the_answer_about_one_that_is_not_there_is_no(verb: str):
    run("add", "other", "sleep", "--every", "5", "--args", "[1]")
    result = run(verb, "nightly")
    assert result.exit_code == 3
    assert "there is no schedule 'nightly'" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("add", "a", "sleep", "--every", "0"),
        ("add", "a", "sleep", "--every", "soon"),
        ("add", "a", "sleep", "--every", "5", "--args", "{"),
        ("add", "a", "sleep", "--every", "5", "--args", '{"seconds": 1}', "--kwargs", '{"seconds": 1}'),
        ("add", "a", "sleep", "--every", "5", "--args", '{"minutes": 1}'),
        ("add", "a", "sleep", "--every", "5", "--args", '["much"]'),
        ("add", "a", "sleep", "--every", "5", "--kwargs", "[]"),
        ("add", "a", "sleep", "--every", "5", "--until", "tomorrow"),
        ("change", "a"),
    ],
)
def test_wrong_words_are_wrong_usage(words: tuple[str, ...]):
    assert run(*words).exit_code == 2


def test_arguments_are_read_as_the_task_wants_them():
    tasks = ("--tasks", "tests.schedules.test_command:tasks")
    made = data("add", "once", "count_from", "--cron", "0 3 * * *", "--args", '["2030-01-01"]', *tasks)
    assert made["args"] == ["2030-01-01"]
    assert "datetime.date(2030, 1, 1)" in run("change", "once", "--priority", "2", *tasks).output
    assert "datetime.date(2031, 1, 1)" in run("change", "once", "--kwargs", '{"day": "2031-01-01"}', *tasks).output
    wrong = run("change", "once", "--args", '["soon"]', *tasks)
    assert wrong.exit_code == 2
    assert "day" in wrong.output


def test_stored_text_cannot_move_the_cursor():
    run("add", "bad\x1b[2J", "sleep", "--every", "5", "--args", "[1]")
    assert "\x1b" not in run("ls").output
    assert "\\x1b[2J" in run("show", "bad\x1b[2J").output


def test_arguments_may_be_given_by_place_and_by_name():
    made = ("add", "mails", "send", "--every", "1d", "--tasks", "tests.cli.tasks_for_commands:tasks")
    assert run(*made, "--args", '{"to": "ann", "when": "2030-01-31T09:00:00Z"}').exit_code == 0
    changed = ("change", "mails", "--args", '["bob"]', "--kwargs", '{"amount": "1.50"}', "--tasks", made[-1])
    assert run(*changed).exit_code == 0
    assert "('bob', amount=" in run("show", "mails").output
    assert run("add", "other", "sned", "--every", "1d").exit_code == 3


def test_the_first_schedule_makes_the_store(tmp_path: Path):
    place = ("--url", f"sqlite:///{tmp_path}/new.db")
    assert run("ls", *place).exit_code == 3
    assert nightly(*place).exit_code == 0
    assert len(data("ls", *place)) == 1


def test_to_clear_a_docket_leaves_its_schedules():
    nightly()
    assert CliRunner().invoke(app, ["clear", "--yes"]).output == "Cleared 0 tasks from docket 'docket'\n"
    assert len(data("ls")) == 1


def test_a_schedule_that_waits_is_no_work_in_a_snapshot():
    nightly()
    run("trigger", "nightly")
    taken = json.loads(CliRunner().invoke(app, ["snapshot", "--stats", "--json"]).output)
    assert (taken["pending"], [each["task"] for each in taken["runs"]]) == (1, ["sleep"])
    assert [each["task"] for each in taken["stats"]] == ["sleep"]
