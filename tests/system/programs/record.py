"""The record: what really happened, kept outside the store under test.

Every line has the same length and goes out in one write to a file opened for appending, so that lines of different
processes never mix; a page of the file holds a whole number of them, so that even `kill -9` tears none.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from dovetail.injection import current_execution

VARIABLE = "DOVETAIL_SYSTEM_RECORD"
LENGTH = 256


class Line(NamedTuple):
    """One thing that happened: in which process, and when on the clock that all processes of a host share."""

    what: str
    key: str
    run: str
    epoch: int
    pid: int
    at: int  # nanoseconds of CLOCK_MONOTONIC


def note(what: str, key: str = "-", run: str = "-", epoch: int = 0) -> None:
    """Add a line to the record that the environment names."""
    line = " ".join(map(str, Line(what, key, run, epoch, os.getpid(), time.monotonic_ns())))
    padded = line.encode().ljust(LENGTH - 1) + b"\n"
    assert len(padded) == LENGTH, f"too long for the record: {line!r}"
    handle = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND)
    try:
        assert os.write(handle, padded) == LENGTH
    finally:
        os.close(handle)


def note_run(what: str) -> None:
    """Add a line about the run at hand."""
    execution = current_execution.get()
    note(what, execution.key, execution.id or "-", execution.generation)


@contextmanager
def noted() -> Iterator[None]:
    """Around a body: notes its start, and how it ended: by itself, stopped from outside, or not at all."""
    note_run("start")
    try:
        yield
    except BaseException:
        note_run("cut")
        raise
    note_run("end")


def read(path: Path, begin: int = 0) -> list[Line]:
    """The lines from the given one on."""
    with path.open("rb") as file:
        file.seek(begin * LENGTH)
        data = file.read()
    return [_parsed(data[at : at + LENGTH]) for at in range(0, len(data) - LENGTH + 1, LENGTH)]


def _parsed(line: bytes) -> Line:
    what, key, run, epoch, pid, at = line.decode().split()
    return Line(what, key, run, int(epoch), int(pid), int(at))
