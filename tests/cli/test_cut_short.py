"""Commands that are cut short, by Ctrl-C or a store that is lost: they say how far they came."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from datetime import timedelta
from typing import Any

import pytest

from dovetail import Docket
from dovetail.docket import grounds
from dovetail.engine.paging import WHOLE
from dovetail.model import Failure, Settle, State
from tests.cli.commands import Answer, Commands
from tests.cli.halting import HALTED
from tests.cli.tasks_for_commands import PATH, count
from tests.faults import Faulty
from tests.waiting import soon

MANY = 1500
"""More than one step of a command deals with, on any store."""
LEASE = timedelta(minutes=1)
FAILURE = Failure("LookupError", "no such address")


async def interrupted(url: str, verb: str, answers: int, *command: str) -> Answer:
    """A command that is ended by Ctrl-C once it asks for a verb and gets no answer any more."""
    place = ("--url", url, "--docket", "tests")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.cli.halting", verb, str(answers), *command, *place,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    first = await soon(process.stderr.readline())
    assert first.decode().strip() == HALTED
    process.send_signal(signal.SIGINT)
    out, err = await soon(process.communicate())
    assert process.returncode is not None
    return Answer(process.returncode, out.decode(), err.decode())


@pytest.fixture
def losing(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets the store be lost to commands once a verb was asked so many times."""
    make = grounds.engine_for

    def lose(verb: str, answers: int) -> None:
        def engine_for(*args: Any, **kwargs: Any) -> Any:
            door = Faulty(make(*args, **kwargs))

            async def shut() -> None:
                if door.faults.calls[verb] == answers:
                    door.faults.fail(verb, 1)

            door.faults.after[verb] = shut
            return door

        monkeypatch.setattr(grounds, "engine_for", engine_for)

    return lose


async def failed(docket: Docket, runs: int) -> list[str]:
    """The keys of so many runs that failed."""
    keys = [f"run:{number}" for number in range(runs)]
    await docket.add_many([docket.call(count, key=key)(1) for key in keys])
    while claims := (await docket.engine.claim("ann", 500, lease=LEASE)).claims:
        await docket.engine.finish([Settle(each, State.FAILED, failure=FAILURE) for each in claims])
    return keys


async def test_an_interrupted_clearing_says_how_many_are_cancelled(docket: Docket, url: str) -> None:
    await docket.add_many([docket.call(count)(number) for number in range(MANY)])
    said = await interrupted(url, "clear", 1, "clear")
    left = (await docket.snapshot()).total_tasks
    assert (said.code, said.out) == (130, "")
    assert said.err == f"dovetail: cut short: {MANY - left:,} cancelled so far\n"
    assert 0 < left < MANY


async def test_a_clearing_that_loses_its_store_says_how_many_are_cancelled(
    docket: Docket, dovetail: Commands, losing: Any
) -> None:
    await docket.add_many([docket.call(count)(number) for number in range(MANY)])
    losing("clear", 1)
    said = await dovetail("clear", code=4)
    gone = MANY - (await docket.snapshot()).total_tasks
    assert said.err.splitlines() == [f"dovetail: cut short: {gone:,} cancelled so far", "dovetail: the door is shut"]
    assert 0 < gone < MANY


@pytest.mark.parametrize(
    ("command", "verb", "told"), [("retry", "revive", "put back to work"), ("discard", "discard", "discarded")]
)
async def test_what_failed_and_was_dealt_with_is_counted(
    docket: Docket, url: str, command: str, verb: str, told: str
) -> None:
    await failed(docket, 700)
    said = await interrupted(url, verb, 1, "failed", command, "--all", "--yes")
    assert (said.code, said.out) == (130, "")
    assert said.err == f"dovetail: cut short: 500 {told} so far\n"
    assert len(await docket.failed(limit=1000)) == 200


@pytest.mark.parametrize(
    ("command", "verb", "told"),
    [(("retry",), "revive", "run:0 goes again"), (("failed", "discard"), "discard", "the record of run:0 is gone")],
)
async def test_of_several_keys_those_that_were_dealt_with_are_named(
    docket: Docket, url: str, command: tuple[str, ...], verb: str, told: str
) -> None:
    keys = await failed(docket, 3)
    said = await interrupted(url, verb, 1, *command, *keys)
    assert (said.code, said.out) == (130, f"{told}\n")
    assert [run.key for run in await docket.failed()] == ["run:2", "run:1"]


async def test_keys_that_were_dealt_with_are_named_to_programs_too(
    docket: Docket, dovetail: Commands, losing: Any
) -> None:
    keys = await failed(docket, 3)
    losing("revive", 2)
    said = await dovetail("retry", *keys, "--json", code=4)
    assert said.json == {"retried": ["run:0", "run:1"], "refused": {}}


async def test_an_unknown_key_among_others_does_not_hide_what_was_done(docket: Docket, dovetail: Commands) -> None:
    await failed(docket, 1)
    said = await dovetail("retry", "run:0", "nope", "--args", "[2]", "--tasks", PATH, code=3)
    assert said.out == "run:0 goes again\n"
    assert "there is no record of a run 'nope'" in said.err


async def test_an_interrupted_check_says_how_many_were_checked(docket: Docket, url: str) -> None:
    await docket.add_many([docket.call(count)(number) for number in range(WHOLE + 100)])
    said = await interrupted(url, "find", 1, "check", "--tasks", PATH)
    assert (said.code, said.out) == (130, "")
    found = re.fullmatch(r"dovetail: cut short: ([\d,]+) runs checked so far\n", said.err)
    assert found is not None, said.err
    assert 0 < int(found[1].replace(",", "")) <= WHOLE
