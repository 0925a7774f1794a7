"""Runs commands as a user does: the real ones, on a real store."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from dovetail.cli.main import app, complaint
from dovetail.errors import DovetailError


@dataclass(frozen=True)
class Answer:
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


@dataclass(frozen=True)
class Commands:
    """The `dovetail` command for one docket."""

    url: str
    docket: str = "tests"

    async def __call__(self, *arguments: str, code: int = 0) -> Answer:
        """Run a command in this process, and check how it ends."""
        place = ["--url", self.url] if "--url" not in arguments else []
        return await self.without_place(*arguments, *place, "--docket", self.docket, code=code)

    async def without_place(self, *arguments: str, code: int = 0) -> Answer:
        said = await asyncio.to_thread(run, arguments)
        assert said.code == code, (arguments, said)
        return said


def run(arguments: tuple[str, ...]) -> Answer:
    """A command in this process, with 80 columns to print on."""
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, arguments)
    error = result.exception
    if isinstance(error, DovetailError | ModuleNotFoundError):
        message, code = complaint(error)
        return Answer(code, result.stdout, f"{result.stderr}dovetail: {message}\n")
    if error is not None and not isinstance(error, SystemExit):
        raise error
    return Answer(result.exit_code, result.stdout, result.stderr)


def run_apart(*arguments: str, folder: Path | None = None, **environment: str) -> Answer:
    """A command as a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "dovetail", *arguments],
        capture_output=True, text=True, cwd=folder, env={**os.environ, "COLUMNS": "80", **environment}, timeout=120,
    )  # fmt: skip
    return Answer(done.returncode, done.stdout, done.stderr)
