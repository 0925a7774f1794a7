"""Sync dockets and the life of a process: forks, exits, Ctrl-C."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.sync.forking import EACH

HERE = Path(__file__).parent


@pytest.fixture
def place(url: str, tmp_path: Path) -> str:
    """The store, as another process can reach it."""
    return f"sqlite:///{tmp_path / 'store.db'}" if url.startswith("memory") else url


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "default", str(HERE / f"{program}.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_both_sides_of_a_fork_use_the_docket(place: str) -> None:
    ran = run("forking", place)
    assert ran.stdout == f"[0, 0, 0] scheduled {7 * EACH}\n", ran.stderr
    assert ran.stderr == ""


@pytest.mark.parametrize("how", ["leaving", "waiting", "iterating"])
def test_a_program_that_ends_does_not_hang_and_has_nothing_to_say(place: str, how: str) -> None:
    ran = run("exiting", place, how)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "scheduled\n", "")


def test_a_program_that_fails_ends_as_it_would(place: str) -> None:
    ran = run("exiting", place, "raising")
    assert ran.returncode == 1
    assert ran.stderr.endswith("ZeroDivisionError\n")


def test_a_wait_can_be_interrupted_and_the_docket_is_as_good_as_before(place: str) -> None:
    ran = run("exiting", place, "interrupted")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "scheduled\nscheduled\n", "")
