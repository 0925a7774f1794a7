"""`dovetail top` as a user has it: in a terminal, on real stores, with keys that are pressed."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from dovetail import Docket
from dovetail.model import Failure, NewRun, RunQuery, Settle, State, WorkerInfo, new_id
from tests.cli.commands import run
from tests.cli.terminal import terminal
from tests.servers import redis
from tests.stores import Stores

LEASE = timedelta(minutes=5)


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def place(request: pytest.FixtureRequest, stores: Stores, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'store.db'}"
    else:
        with stores.place(request.param) as url:
            yield url


async def fill(url: str) -> None:
    """A worker, a queue with work, a running run and a failure."""
    async with Docket("tests", url) as docket:
        engine = docket.engine
        await engine.schedule([NewRun(new_id(), f"wait-{n}", "greet", queue="mail") for n in range(3)])
        await engine.schedule([NewRun(new_id(), "broken", "greet"), NewRun(new_id(), "slow", "greet", due=timedelta())])
        broken, slow = (await engine.claim("ann", 2, queues=["default"], lease=LEASE)).claims
        await engine.finish([Settle(broken, State.FAILED, failure=Failure("ValueError", "no such address"))])
        await engine.heartbeat(WorkerInfo("ann", id="1", host="berlin", concurrency=5, running=1), [slow], lease=LEASE)


async def states(url: str) -> dict[str, State]:
    async with Docket("tests", url) as docket:
        return {run.key: run.state for run in await docket.find_all(RunQuery())}


async def test_everything_is_seen_and_the_keys_do_what_they_say(place: str) -> None:
    await fill(place)
    with terminal("top", "--url", place, "--docket", "tests", "--interval", "200ms") as opened:
        opened.shows("no such address", "tests", "mail", "ann", "berlin", "1/5", "slow", "broken")
        opened.press("jp")  # the second queue: 'default' comes first
        opened.shows("'mail' is paused")
        opened.shows("paused in dov")
        opened.press("p")
        opened.shows("'mail' goes on")
        opened.press("r")
        opened.shows("'broken' goes again")
        opened.press("c")
        opened.shows("cancel 'slow' (greet)? y or n")
        opened.press("n")
        opened.press("cy")
        opened.shows("'slow': stopping")
        opened.press("?")
        opened.shows("per second")
        opened.press("?")
        opened.shows("select   tab pane")
        opened.press("q")
        assert opened.ends() == 0
        assert opened.settings == opened.before
        assert "\x1b[?1049l" in opened.output  # the screen from before is back
        assert "\x1b[?25h" in opened.output  # and so is the cursor
    assert (await states(place))["broken"] is State.QUEUED


async def empty(folder: Path) -> str:
    """A store with nothing in it."""
    url = f"sqlite:///{folder / 'store.db'}"
    async with Docket(url=url):
        return url


async def test_ctrl_c_ends_it_and_restores_the_terminal(tmp_path: Path) -> None:
    with terminal("top", "--url", await empty(tmp_path)) as opened:
        opened.shows("queues (0)")
        opened.process.send_signal(2)
        assert opened.ends() == 0
        assert opened.settings == opened.before
        assert "\x1b[?1049l" in opened.output
        assert "Traceback" not in opened.output


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_ends_it_and_restores_the_terminal(tmp_path: Path, by: signal.Signals) -> None:
    with terminal("top", "--url", await empty(tmp_path)) as opened:
        opened.shows("queues (0)")
        opened.process.send_signal(by)
        assert opened.ends() == 128 + by
        assert opened.settings == opened.before
        assert "\x1b[?1049l" in opened.output


async def test_a_terminal_that_is_resized_is_drawn_anew(tmp_path: Path) -> None:
    with terminal("top", "--url", await empty(tmp_path), "--interval", "1m") as opened:
        opened.shows("select   tab pane")
        opened.resize(30, 12)
        opened.process.send_signal(28)  # SIGWINCH, which the kernel sends to what the terminal belongs to
        opened.shows("tab pane   p paus…")
        opened.press("q")
        assert opened.ends() == 0


async def test_a_store_that_goes_away_and_comes_back() -> None:
    with redis.server("valkey", appendonly="yes", appendfsync="always") as server:
        await fill(server.url)
        with terminal("top", "--url", server.url, "--docket", "tests", "--interval", "200ms") as opened:
            opened.shows("no such address")
            server.kill()
            opened.shows("not reached, trying again", "no such address")  # what was seen last stays
            opened.forget()
            server.start()
            opened.shows("select   tab pane")
            opened.press("q")
            assert opened.ends() == 0


async def test_a_user_may_quit_while_the_store_is_away() -> None:
    with redis.server("valkey") as server, terminal("top", "--url", server.url, "--interval", "200ms") as opened:
        opened.shows("queues (0)")
        server.kill()
        opened.press("q")
        assert opened.ends() == 0


def printed(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dovetail", "top", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


async def test_without_a_terminal_it_is_printed_once(place: str) -> None:
    await fill(place)
    done = printed("--url", place, "--docket", "tests")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert all(word in done.stdout for word in ("mail", "ann", "slow", "no such address"))


async def test_as_json(place: str) -> None:
    await fill(place)
    told = json.loads(printed("--url", place, "--docket", "tests", "--json").stdout)
    assert (told["docket"], told["queued"], told["running"]) == ("tests", 3, 1)
    assert [row["name"] for row in told["queues"]] == ["default", "mail"]
    assert told["failures"][0]["error"] == "ValueError: no such address"


def test_a_store_that_cannot_be_reached() -> None:
    done = printed("--url", "redis://user:secret@127.0.0.1:1")
    assert done.returncode == 4
    assert "cannot be reached" in done.stderr
    assert "secret" not in done.stderr


def test_an_interval_that_makes_no_sense_is_refused() -> None:
    assert [run(("top", "--interval", wrong)).code for wrong in ("0", "2h", "often")] == [2, 2, 2]
