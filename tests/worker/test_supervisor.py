"""The supervisor, with processes that are no workers but speak as they do."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from dovetail.worker import supervisor as module
from dovetail.worker.backoff import LONGEST, pause_after
from dovetail.worker.supervisor import Supervisor, how
from tests.waiting import soon

SLOW_START = timedelta(seconds=6)
"""What a process may take to say its first word on a busy machine, and is not killed for."""
PREFACE = """
import os, signal, socket, sys, time
line = socket.socket(fileno=int(os.environ["_DOVETAIL_LINE"]))
open(sys.argv[1], "a").write(f"{os.getpid()}\\n")
def say(sign): line.send(sign)
def stay(sign=b"r", seconds=600):
    for _ in range(int(seconds / 0.02)):
        say(sign)
        time.sleep(0.02)
"""


class Cast:
    """Processes that do what a program says, and note that they were started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.notes = folder / "notes"
        self.notes.touch()

    def command(self, program: str) -> list[str]:
        path = self._folder / "program.py"
        path.write_text(PREFACE + program)
        return [sys.executable, str(path), str(self.notes)]

    @property
    def pids(self) -> list[int]:
        return [int(each) for each in self.notes.read_text().split()]

    async def started(self, count: int) -> list[int]:
        while len(self.pids) < count:  # noqa: ASYNC110 - another process writes
            await asyncio.sleep(0.01)
        return self.pids


@pytest.fixture
def cast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cast:
    monkeypatch.setattr(module, "GLANCE", 0.02)
    monkeypatch.setattr("dovetail.worker.backoff.FIRST", 0.02)
    return Cast(tmp_path)


async def test_it_ends_when_every_process_has_done_its_work(cast: Cast):
    assert await soon(Supervisor(cast.command("say(b'r')"), 3).run()) == 0
    assert len(cast.pids) == 3


async def test_it_gives_up_when_none_was_ever_ready(cast: Cast, caplog: pytest.LogCaptureFixture):
    assert await soon(Supervisor(cast.command("sys.exit(7)"), 1).run()) == 1
    assert len(cast.pids) == module.GIVE_UP_AFTER
    assert "ended with exit code 7" in caplog.text
    assert "gives up" in caplog.text


async def test_it_never_gives_up_once_one_was_ready(cast: Cast):
    supervisor = Supervisor(cast.command("say(b'r'); time.sleep(0.05); os.kill(os.getpid(), signal.SIGSEGV)"), 1)
    running = asyncio.create_task(supervisor.run())
    await soon(cast.started(module.GIVE_UP_AFTER + 2))
    supervisor.stop()
    assert await soon(running) == 0


async def test_one_that_is_silent_is_reported_and_then_killed_and_replaced(
    cast: Cast, caplog: pytest.LogCaptureFixture
):
    supervisor = Supervisor(
        cast.command("say(b'r'); time.sleep(0 if len(open(sys.argv[1]).readlines()) > 1 else 600)"), 1,
        report_after=timedelta(seconds=1), kill_after=SLOW_START,
    )  # fmt: skip
    assert await soon(supervisor.run()) == 0
    first, _ = cast.pids
    assert re.search(f"worker process {first}: for \\d+ s its event loop does not turn", caplog.text)
    assert f"worker process {first} is killed" in caplog.text
    assert f"worker process {first} was killed by SIGKILL" in caplog.text


async def test_one_whose_claim_loop_is_stuck_is_killed_and_replaced(cast: Cast, caplog: pytest.LogCaptureFixture):
    supervisor = Supervisor(
        cast.command("stay(b's') if len(open(sys.argv[1]).readlines()) == 1 else say(b'r')"), 1,
        report_after=timedelta(seconds=1), kill_after=SLOW_START,
    )  # fmt: skip
    assert await soon(supervisor.run()) == 0
    assert "its claim loop does not move" in caplog.text


async def test_one_that_cannot_reach_its_store_is_left_in_peace(cast: Cast):
    patience = SLOW_START.total_seconds()
    supervisor = Supervisor(
        cast.command(f"stay(b'w', {patience + 1})"), 1, report_after=timedelta(seconds=1), kill_after=SLOW_START
    )
    assert await soon(supervisor.run()) == 0
    assert len(cast.pids) == 1


async def test_one_that_does_not_stop_is_killed_when_its_grace_is_over(
    cast: Cast, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(module, "LAST_WORDS", 0.2)
    program = "signal.signal(signal.SIGTERM, signal.SIG_IGN); open(sys.argv[1], 'a').write('0\\n'); stay()"
    supervisor = Supervisor(cast.command(program), 1, grace=timedelta(seconds=0.2))
    running = asyncio.create_task(supervisor.run())
    await soon(cast.started(2))
    supervisor.stop()
    assert await soon(running) == 1
    assert "has not ended within" in caplog.text


async def test_one_that_is_told_to_hurry_hears_both_signals_however_busy_it_is(cast: Cast):
    """A process that has no time to look finds one signal of a kind, even if there were two."""
    program = """
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])
open(sys.argv[1], "a").write("0\\n")
while len(signal.sigpending()) < 2:
    say(b"r")
    time.sleep(0.01)
"""
    supervisor = Supervisor(cast.command(program), 1, grace=timedelta(seconds=60))
    running = asyncio.create_task(supervisor.run())
    await soon(cast.started(2))
    supervisor.stop()
    supervisor.stop()
    assert await soon(running) == 0


async def test_a_worn_one_is_replaced_while_it_still_drains(cast: Cast):
    program = "say(b'g'); stay(b'w', 600 if len(open(sys.argv[1]).readlines()) == 1 else 0)"
    supervisor = Supervisor(cast.command(program), 1)
    running = asyncio.create_task(supervisor.run())
    await soon(cast.started(2))
    assert not running.done()
    supervisor.stop()
    assert await soon(running) == 0


async def test_those_that_are_worn_at_once_are_replaced_ever_more_slowly(
    cast: Cast, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(module, "HASTY", 600.0)
    supervisor = Supervisor(cast.command("say(b'r'); say(b'g')"), 1)
    running = asyncio.create_task(supervisor.run())
    await soon(cast.started(module.LENIENCY + 3))
    supervisor.stop()
    assert await soon(running) == 0
    assert "a limit is too low" in caplog.text


async def test_a_change_of_files_starts_everything_anew(cast: Cast, caplog: pytest.LogCaptureFixture):
    saved = asyncio.Event()

    async def changes() -> AsyncIterator[str]:
        await saved.wait()
        yield "shop.py changed"

    supervisor = Supervisor(cast.command("stay()"), 2, changes=changes())
    running = asyncio.create_task(supervisor.run())
    await soon(cast.started(2))
    with caplog.at_level(logging.INFO):
        saved.set()
        await soon(cast.started(4))
    assert "shop.py changed: the workers start anew" in caplog.text
    supervisor.stop()
    assert await soon(running) == 0


async def test_a_command_that_cannot_be_started_is_tried_again_and_then_given_up(cast: Cast, tmp_path: Path):
    assert await soon(Supervisor([str(tmp_path / "nothing")], 1).run()) == 1


def test_the_pauses_grow_and_are_bounded():
    pauses = [pause_after(deaths) for deaths in range(1, 40)]
    assert pauses[0] <= 1
    assert all(pause <= LONGEST * 1.25 for pause in pauses)
    assert min(pauses[10:]) > max(pauses[:3])


@pytest.mark.parametrize(
    ("code", "said"),
    [(3, "ended with exit code 3"), (-9, "was killed by SIGKILL"), (-63, "was killed by signal 63")],
)
def test_how_a_process_ended(code: int, said: str):
    assert how(code) == said
