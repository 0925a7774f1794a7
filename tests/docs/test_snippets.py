"""Every program in the README and the documentation runs, and prints what it is said to print."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.docs.pages import BLOCKS, PAGES, Block

LONGEST = 120  # seconds; a page takes one or two, on a machine that has nothing else to do
"""Seconds that a program may take."""

PYTHON = [block for blocks in BLOCKS.values() for block in blocks if block.is_python]
PROGRAMS = [block for block in PYTHON if block.is_program]


def name_of(value: Block | Path) -> str:
    return value.name


def test_there_are_programs_to_run() -> None:
    assert len(PROGRAMS) > 20


@pytest.mark.parametrize("block", PYTHON, ids=name_of)
def test_a_block_of_python_compiles(block: Block) -> None:
    compile(block.body, block.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path, as pytest's own is not: the sockets that wake other processes lie in it."""
    with TemporaryDirectory(prefix="docs-") as path:
        yield Path(path)


@pytest.mark.parametrize("block", PROGRAMS, ids=name_of)
def test_a_program_runs_and_prints_what_the_page_says(
    block: Block, folder: Path, request: pytest.FixtureRequest
) -> None:
    lay_out(block, folder)
    program = folder / (block.file or "program.py")
    program.write_text(block.body, encoding="utf-8")
    with beside_a_worker(folder) if "worker" in block.words else no_worker():
        ran = subprocess.run(
            command(program),
            cwd=folder,
            env={**environment(), **database_of(block, request)},
            capture_output=True,
            text=True,
            timeout=LONGEST,
        )
    assert ran.returncode == 0, ran.stderr
    said = output_of(block)
    if said is not None:
        assert ran.stdout == said, ran.stderr


def command(program: Path) -> list[str]:
    """How a program is run: a file of tests by pytest."""
    if program.name.startswith("test_"):
        return [sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", program.name]
    return [sys.executable, program.name]


def database_of(block: Block, request: pytest.FixtureRequest) -> dict[str, str]:
    return {"DATABASE_URL": request.getfixturevalue("database_url")} if "postgres" in block.words else {}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_output_belongs_to_a_program(page: Path) -> None:
    blocks = BLOCKS[page]
    for before, block in zip([None, *blocks], blocks, strict=False):
        if "output" in block.words:
            assert before is not None, block.name
            assert before.is_program, block.name


def lay_out(block: Block, folder: Path) -> None:
    """Write the files that stand above the program on its page; a later one takes the place of an earlier."""
    for above in BLOCKS[block.page]:
        if above.line >= block.line:
            return
        if above.file is not None:
            (folder / above.file).write_text(above.body, encoding="utf-8")


def output_of(block: Block) -> str | None:
    """What the page says that the program prints, if it says so."""
    below = [each for each in BLOCKS[block.page] if each.line > block.line]
    return below[0].body if below and "output" in below[0].words else None


def environment() -> dict[str, str]:
    """The environment without settings of ours, which would change what a program does."""
    return {name: value for name, value in os.environ.items() if not name.startswith("DOVETAIL_")}


@contextmanager
def no_worker() -> Iterator[None]:
    yield


@contextmanager
def beside_a_worker(folder: Path) -> Iterator[None]:
    """A worker process in the same folder, started as the page says."""
    command = [sys.executable, "-m", "dovetail", "worker", "--tasks", "tasks:tasks", "--grace", "1"]
    with (folder / "worker.log").open("wb") as log:
        worker = subprocess.Popen(command, cwd=folder, env=environment(), stdout=log, stderr=log)
    try:
        yield
        worker.terminate()
        assert worker.wait(timeout=LONGEST) == 0, (folder / "worker.log").read_text()
    finally:
        worker.kill()
        worker.wait()
