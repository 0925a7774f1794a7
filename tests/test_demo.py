"""The demo: what newcomers run first has to work, and has to notice when something did not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from examples.demo import PROMISES

ROOT = Path(__file__).resolve().parents[1]
COMMAND = [sys.executable, "-m", "examples.demo"]
ENVIRONMENT = {**os.environ, "COLUMNS": "80", "PYTHONUNBUFFERED": "1"}


def test_the_demo_shows_all_it_promises_and_ends_by_itself() -> None:
    began = time.monotonic()
    ran = subprocess.run(COMMAND, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=100)
    took = time.monotonic() - began
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    assert took < 90
    for promise in PROMISES:
        assert promise in ran.stdout
    assert ran.stdout.count("✔") >= len(PROMISES)
    assert "✘" not in ran.stdout
    for word in ("Hello, Ann!", "already_scheduled", "failed, goes again", "next turn", "takes it over", "worker-2"):
        assert word in ran.stdout
    assert max(map(len, ran.stdout.splitlines())) <= 80


def test_the_demo_fails_when_its_workers_cannot_start() -> None:
    script = (
        "import asyncio, sys; from examples.demo import PROMISES, Stage, story;"
        " sys.exit(asyncio.run(Stage(PROMISES, 'nowhere:tasks').play(story)))"
    )
    command = [sys.executable, "-c", script]
    ran = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 1
    assert f"Only 0 of {len(PROMISES)} seen" in ran.stdout
    assert "nowhere" in ran.stdout


def test_an_interrupted_demo_cleans_up() -> None:
    demo = subprocess.Popen(COMMAND, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
    assert demo.stdout is not None
    shown = ""
    while "▶" not in shown:
        line = demo.stdout.readline()
        assert line, shown
        shown += line
    demo.send_signal(signal.SIGINT)
    shown += demo.communicate(timeout=120)[0]
    assert demo.returncode == 130
    assert "Interrupted" in shown
    database = shown.partition("on one SQLite file, ")[2].splitlines()[0]
    assert not Path(database).parent.exists()
