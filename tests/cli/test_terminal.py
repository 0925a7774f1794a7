"""Commands on a terminal: they ask, and show how far they are."""

import os
import pty
import subprocess
import sys

from dovetail import Docket
from tests.cli.tasks_for_commands import count
from tests.waiting import PATIENCE


def on_terminal(*arguments: str, answer: str = "") -> tuple[int, str]:
    """The exit code of a command, and all that a terminal of 80 columns showed of it."""
    mine, its = pty.openpty()
    os.write(mine, answer.encode())
    command = subprocess.Popen(
        [sys.executable, "-m", "dovetail", *arguments],
        stdin=its, stdout=its, stderr=its, env={**os.environ, "COLUMNS": "80", "TERM": "xterm"},
    )  # fmt: skip
    os.close(its)
    shown = b""
    try:
        while more := os.read(mine, 4096):
            shown += more
    except OSError:  # how Linux says that nobody writes any more
        pass
    finally:
        os.close(mine)
    return command.wait(PATIENCE), shown.decode()


async def test_clearing_asks_first_and_counts(docket: Docket, url: str) -> None:
    await docket.add_many([docket.call(count)(number) for number in range(1500)])
    place = ("--url", url, "--docket", "tests")
    code, shown = on_terminal("clear", *place, answer="n\n")
    assert code == 3
    assert "Cancel everything that waits?" in shown
    assert "nothing was done" in shown
    code, shown = on_terminal("clear", *place, answer="y\n")
    assert code == 0
    assert "1,000 cancelled …" in shown
    assert "Cleared 1500 tasks" in shown


async def test_a_watched_run_is_one_line(docket: Docket, url: str) -> None:
    await docket.add(count, key="k" * 200)(1)
    await docket.cancel("k" * 200)
    code, shown = on_terminal("watch", "k" * 200, "--url", url, "--docket", "tests")
    assert code == 6
    assert "cancelled" in shown
    assert shown.count("\n") == 1
