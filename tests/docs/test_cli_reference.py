"""The reference of the command line names every command and every option, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from dovetail.cli.main import app
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
SHARED = {"--url", "--dsn", "--docket", "--json", "--help", "--module", "--install-completion", "--show-completion"}


def commands(group: Any, path: str = "dovetail") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


COMMANDS = dict(commands(typer.main.get_command(app)))
SHOWN = {path: command for path, command in COMMANDS.items() if not command.hidden}


SECTIONS = {found[1]: found[2] for found in re.finditer(r"^### (.+)\n((?:(?!^##).*\n?)*)", PAGE, re.MULTILINE)}


def is_elsewhere(path: str) -> bool:
    """Whether the command is of a group that has one section here, which links to the group's own page."""
    return "](" in SECTIONS.get(path.rpartition(" ")[0], "")


def options_of(command: Any) -> set[str]:
    spelled = [each for option in command.params for each in (*option.opts, *option.secondary_opts)]
    return {each for each in spelled if each.startswith("--")} - SHARED


@pytest.mark.parametrize("path", [path for path in SHOWN if not is_elsewhere(path)])
def test_every_option_is_described_and_no_other(path: str) -> None:
    assert path in SECTIONS, f"docs/reference/cli.md has no section '### {path}'"
    rows = [line for line in SECTIONS[path].splitlines() if line.startswith("| `--")]
    told = {option for row in rows for option in re.findall(r"`(--[a-z-]+)`", row.split("|")[1])}
    assert told == options_of(SHOWN[path])


def test_every_section_is_of_a_command_or_a_group() -> None:
    groups = {path.rpartition(" ")[0] for path in SHOWN} - {"dovetail"}
    assert SECTIONS.keys() - SHOWN.keys() - groups == set()


def test_other_names_of_commands_are_told() -> None:
    hidden = COMMANDS.keys() - SHOWN.keys()
    assert [path for path in hidden if f"`{path}`" not in PAGE] == []


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_says_what_it_does_and_what_its_options_are(path: str) -> None:
    command = COMMANDS[path]
    assert command.help
    assert [option.name for option in command.params if option.name != "logging_level" and not option.help] == []


def test_all_commands_print_json_but_those_that_the_page_names() -> None:
    without = {path for path, command in SHOWN.items() if not any("--json" in each.opts for each in command.params)}
    (row,) = (line for line in PAGE.splitlines() if line.startswith("| `--json`"))
    assert without == {f"dovetail {name}" for name in re.findall(r"`([a-z ]+)`", row)}
