"""The record of when each task first started: memory that all worker processes share, outside any store."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic_ns

SHARED_MEMORY = Path("/dev/shm")  # a file here has no disk to slow it down
STAMP = 8  # bytes


class Starts:
    """One slot per task. A note costs about a tenth of a microsecond and no system call.

    Stamps are of the system-wide monotonic clock, so those of different processes compare.
    """

    def __init__(self, descriptor: int, tasks: int) -> None:
        self.descriptor = descriptor
        self.tasks = tasks
        self._stamps = memoryview(mmap.mmap(descriptor, tasks * STAMP)).cast("q")
        self._first_open = 0

    def note(self, number: int) -> None:
        self._stamps[number] = monotonic_ns()

    def has(self, number: int) -> bool:
        return self._stamps[number] != 0

    @property
    def complete(self) -> bool:
        # Tasks start more or less in order, so looking on from the first gap makes asking often cheap.
        while self._first_open < self.tasks and self._stamps[self._first_open]:
            self._first_open += 1
        return self._first_open == self.tasks

    def stamps(self) -> list[int]:
        """When each task started, in nanoseconds, by its number; 0 for one that did not."""
        return self._stamps.tolist()


@contextmanager
def shared_starts(tasks: int) -> Iterator[Starts]:
    """Room for this many starts, in a nameless file whose descriptor a worker process inherits."""
    with tempfile.TemporaryFile(dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None) as file:
        file.truncate(tasks * STAMP)
        yield Starts(file.fileno(), tasks)
