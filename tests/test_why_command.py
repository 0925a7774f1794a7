"""`dovetail why` and `dovetail check`, as a shell sees them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from dovetail import Docket
from dovetail.cli.main import app

TASKS = "tests.test_why_command:tasks"
CHANGED = "tests.test_why_command:changed"


async def send(to: str) -> None: ...


async def resend(to: int) -> None: ...


resend.__name__ = "send"
tasks = [send]
changed = [resend]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


def on(url: str, work: Callable[[Docket], Awaitable[Any]]) -> Any:
    async def opened() -> Any:
        async with Docket("tests", url) as docket:
            return await work(docket)

    return asyncio.run(opened())


def said(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--url", url, "--docket", "tests"])


def test_why_tells_every_cause(url: str) -> None:
    async def prepare(docket: Docket) -> None:
        await docket.add(send, key="k")("ann")
        await docket.pause("default", reason="maintenance")

    on(url, prepare)
    result = said(url, "why", "k")
    assert result.exit_code == 0
    assert "k (send) is queued." in result.output
    assert "paused" in result.output
    assert "maintenance" in result.output
    assert "No worker is alive." in result.output
    assert all(len(line) <= 80 and line == line.rstrip() for line in result.output.splitlines())


def test_why_as_json(url: str) -> None:
    on(url, lambda docket: docket.add(send, key="k")("ann"))
    result = said(url, "why", "k", "--json")
    answer = json.loads(result.output)
    assert (answer["key"], answer["state"]) == ("k", "queued")
    assert [cause["code"] for cause in answer["causes"]] == ["no_worker"]


def test_an_unknown_key_is_an_answer_and_an_exit_code(url: str) -> None:
    assert CliRunner().invoke(app, ["migrate", "--url", url]).exit_code == 0
    for more in ([], ["--json"]):
        result = said(url, "why", "nobody", *more)
        assert result.exit_code == 3
        assert "There is no record of a run 'nobody'" in " ".join(result.output.split())


def test_what_could_steer_a_terminal_shows_as_an_escape(url: str) -> None:
    on(url, lambda docket: docket.add(send, key="k\x1b[31m")("ann"))
    result = said(url, "why", "k\x1b[31m")
    assert "\x1b" not in result.output
    assert "k\\x1b[31m (send)" in result.output


def test_tasks_let_why_judge_strikes(url: str) -> None:
    async def prepare(docket: Docket) -> None:
        await docket.add(send, key="k")("ann")
        await docket.strike(send, "to", "==", "ann")

    on(url, prepare)
    assert "may_be_struck" in said(url, "why", "k").output
    assert "may_be_struck" not in said(url, "why", "k", "--tasks", TASKS).output
    assert "struck" in said(url, "why", "k", "--tasks", TASKS).output


def test_a_check_that_finds_nothing(url: str) -> None:
    on(url, lambda docket: docket.add(send)("ann"))
    result = said(url, "check", "--tasks", TASKS)
    assert (result.exit_code, result.stdout.strip()) == (0, "1 run checked: all would run")


def test_a_check_that_finds_something(url: str) -> None:
    async def prepare(docket: Docket) -> None:
        for n in range(7):
            await docket.add(send, key=f"k{n}")("ann")

    on(url, prepare)
    result = said(url, "check", "--tasks", CHANGED)
    assert result.exit_code == 3
    assert result.stdout.splitlines() == [
        "send",
        "  7 wrong_argument: argument 'to' of 'send': expected int, got str",
        "      k0, k1, k2, k3, k4 and 2 more",
        "7 runs checked: 7 would not run",
    ]


def test_a_check_as_json_and_of_some_runs(url: str) -> None:
    async def prepare(docket: Docket) -> None:
        for n in range(3):
            await docket.add(send, key=f"k{n}")("ann")

    on(url, prepare)
    result = said(url, "check", "--tasks", CHANGED, "--limit", "2", "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 3
    assert (report["checked"], report["is_whole"]) == (2, False)
    assert report["findings"][0]["keys"] == ["k0", "k1"]


def test_a_check_needs_tasks(url: str) -> None:
    assert said(url, "check").exit_code == 2
