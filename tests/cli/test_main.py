"""The command as a process: how it starts, how it ends, and what it never shows."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from dovetail import Docket
from dovetail.cli.main import app
from tests.cli.commands import Commands, run, run_apart
from tests.cli.tasks_for_commands import count

HEAVY = ("asyncio.", "dovetail.docket", "dovetail.engine", "dovetail.worker", "rich", "msgspec", "opentelemetry")


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys\nsys.argv = ['dovetail', '--help']\nfrom dovetail.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = done.stderr.split()
    assert "typer" in loaded
    assert [name for name in loaded if name.startswith(HEAVY)] == []
    assert "Commands:" in done.stdout


def test_the_shell_completes_names_of_commands_and_no_store_is_opened(folder: Path) -> None:
    words = {"COMP_WORDS": "dovetail failed re", "COMP_CWORD": "2", "_DOVETAIL_COMPLETE": "complete_bash"}
    script = Path(sys.executable).parent / "dovetail"
    done = subprocess.run(
        [script], capture_output=True, text=True, cwd=folder, env={**os.environ, **words}, timeout=120
    )
    assert done.stdout.split() == ["retry"]
    assert os.listdir(folder) == []


def test_a_module_of_the_current_directory_can_be_named(folder: Path) -> None:
    (folder / "shop.py").write_text("async def sell(what: str) -> None:\n    print('sold', what)\n\n\ntasks = [sell]\n")
    place = {"DOVETAIL_URL": f"sqlite:///{folder / 'shop.db'}", "DOVETAIL_TASKS": "shop:tasks"}
    assert run_apart("add", "sell", "--args", '{"what": "tea"}', "--key", "tea", folder=folder, **place).out == "tea\n"
    done = run_apart("run", "--once", "--queues", "default,other", folder=folder, **place)
    assert done.out == "sold tea\n"
    assert run_apart("watch", "tea", folder=folder, **place).code == 0


@pytest.mark.parametrize("scheme", ["redis", "postgresql"])
@pytest.mark.parametrize("command", [("status",), ("ls",), ("tasks", "trace"), ("migrate",), ("worker", "--once")])
def test_a_store_that_cannot_be_reached_is_one_line_without_a_password(scheme: str, command: tuple[str, ...]) -> None:
    if command[0] == "worker" and scheme == "redis":
        pytest.skip("see the tests of workers: they wait for their store")
    said = run((*command, "--url", f"{scheme}://ann:sesame@127.0.0.1:1/0"))
    assert "sesame" not in said.out + said.err
    if command != ("migrate",) or scheme != "redis":
        assert (said.code, len(said.err.splitlines())) == (4, 1)


def test_a_url_that_is_wrong_is_one_line_without_a_password() -> None:
    for url in ("nosuch://ann:sesame@host/db", "ann:sesame@host", "redis://ann:sesame@host/notanumber"):
        said = run(("status", "--url", url))
        assert (said.code, len(said.err.splitlines())) == (1, 1), url
        assert "sesame" not in said.out + said.err


@pytest.mark.parametrize(
    "written",
    [
        "host=127.0.0.1 user=ann password=sesame",
        "password='sesame street' host=127.0.0.1",
        "postgresql://ann:ses%ZZame@127.0.0.1:1/db",
        "postgresql://ann:ses@me@127.0.0.1:1/db?nosuch=1",
        "postgresql://127.0.0.1:1/db?password=open@sesame",
        "redis://127.0.0.1:1/0?password=sesame#sesame",
        "redis://ann:open?token=sesame@127.0.0.1:1/notanumber",
        "postgresql:/ann:sesame@127.0.0.1/db",
    ],
)
def test_no_password_is_shown_however_the_url_is_written(written: str) -> None:
    said = run(("status", "--url", written))
    assert (said.code in (1, 4), len(said.err.splitlines())) == (True, 1)
    assert not re.search("ses@?a?me|sesame|ses%|open|street", said.out + said.err)


def test_a_store_that_is_not_there_is_not_made_by_looking(folder: Path) -> None:
    url = f"sqlite:///{folder / 'slip.db'}"
    for command in (["status"], ["ls"], ["clear"], ["cancel", "key"], ["failed", "ls"]):
        said = run((*command, "--url", url))
        assert (said.code, said.out) == (3, "")
        assert "check --url, or run `dovetail migrate`" in said.err
    assert os.listdir(folder) == []


def test_a_docket_in_memory_is_another_process_own() -> None:
    said = run_apart("status", "--url", "memory://")
    assert said.code == 1
    assert said.err.startswith("dovetail: a memory:// docket is not supported here")
    assert "Traceback" not in said.err


def test_a_file_that_is_something_else_is_one_line(folder: Path) -> None:
    (folder / "letter.txt").write_text("Dear Sir or Madam, " * 500)
    said = run(("status", "--url", f"sqlite:///{folder / 'letter.txt'}"))
    assert (said.code, len(said.err.splitlines())) == (1, 1)


def test_a_full_disk_under_the_answer_is_one_line() -> None:
    command = f"{sys.executable} -m dovetail tasks ls > /dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (1, "dovetail: No space left on device\n")


def test_the_version_is_an_option_too() -> None:
    assert run(("--version",)).out == run(("version",)).out != ""


def commands_within(group: Any, *names: str) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        yield (*names, name)
        if hasattr(command, "commands"):
            yield from commands_within(command, *names, name)


@pytest.mark.parametrize("command", [(), *commands_within(typer.main.get_command(app))], ids=" ".join)
def test_help_fits_into_80_columns_and_cuts_nothing_off(command: tuple[str, ...]) -> None:
    told = run((*command, "--help")).out
    assert [line for line in told.splitlines() if len(line) > 80] == []
    assert "..." not in told.replace("]...", "").replace("}...", "").replace("KEYS...", "")
    assert not re.search(r"-\w+ <(?:str|int|list)", told)  # options' values are named, not their types in Python


def test_a_folder_is_said_to_be_one(folder: Path) -> None:
    said = run(("status", "--url", f"sqlite:///{folder}"))
    assert (said.code, len(said.err.splitlines())) == (4, 1)
    assert "it is a folder, name a file in it" in said.err


async def test_a_reader_that_goes_away_is_no_error(docket: Docket, url: str) -> None:
    await docket.add_many([docket.call(count, key=f"{number:0>500}")(number) for number in range(400)])
    command = f"{sys.executable} -m dovetail ls --limit 400 --url '{url}' --docket tests | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("KEY")
    assert done.stderr == ""


async def test_control_c_is_quiet(docket: Docket, url: str, dovetail: Commands) -> None:
    await dovetail("add", "trace", "-a", '["hi"]', "--key", "later", "--in", "1h")
    watching = subprocess.Popen(
        [sys.executable, "-m", "dovetail", "watch", "later", "--url", url, "--docket", "tests"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert watching.stdout is not None
    assert "scheduled" in watching.stdout.readline()
    watching.send_signal(signal.SIGINT)
    _, errors = watching.communicate(timeout=120)
    assert (watching.returncode, errors) == (130, "")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("command", [("doctor",), ("top", "--once")])
def test_what_an_encoding_does_not_have_is_escaped(command: tuple[str, ...], encoding: str, tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path / 'narrow.db'}"
    assert run_apart("tasks", "trace", "--url", place).code == 0
    assert run_apart("pause", "default", "--reason", "€ 5 \u2192 6", "--url", place).code == 0
    said = run_apart(*command, "--url", place, PYTHONIOENCODING=encoding)
    assert (said.code, said.err) == (3 if command == ("doctor",) else 0, "")
    assert r"\u20ac 5" in said.out


def test_a_plan_is_made_for_a_store_that_is_there() -> None:
    said = run(("migrate", "--plan", "--url", "redis://127.0.0.1:1/0"))
    assert (said.code, said.out) == (4, "")


def test_a_file_has_no_roles(tmp_path: Path) -> None:
    said = run(("migrate", "--roles", "--url", f"sqlite:///{tmp_path / 'file.db'}"))
    assert (said.code, said.out) == (1, "")
    assert "has no roles" in said.err
