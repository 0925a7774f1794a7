"""Worker processes under measurement, seen from outside."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from bench.starts import Starts, shared_starts
from bench.worker import READY

ROOT = Path(__file__).parent.parent
GLANCE = 0.002  # seconds between two looks at the starts
MEBIBYTE = 2**20


class CrewFailed(Exception):
    """A worker process ended by itself, or its tasks did not start in time."""


@dataclass(frozen=True, slots=True)
class Post:
    """Which system works on which store."""

    engine: str
    system: str
    url: str


@dataclass(frozen=True, slots=True)
class Hand:
    """One worker process."""

    process: subprocess.Popen[bytes]
    errors: IO[bytes]

    def await_ready(self) -> None:
        assert self.process.stdout
        if self.process.stdout.readline() != READY:
            self.process.wait()
            raise CrewFailed(f"a worker process did not get ready: {self.last_words()}")

    def go(self) -> None:
        assert self.process.stdin
        self.process.stdin.write(b"go\n")
        self.process.stdin.flush()

    def last_words(self) -> str:
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace").strip()[-2000:] or "it said nothing"


class Crew:
    """The worker processes of one system on one store."""

    def __init__(self, hands: list[Hand], starts: Starts) -> None:
        self._hands = hands
        self.starts = starts

    def go(self) -> None:
        for hand in self._hands:
            hand.go()

    async def until_started(self, number: int, patience: float = 30) -> None:
        await self._until(lambda: self.starts.has(number), patience)

    async def until_all_started(self, patience: float = 120) -> None:
        await self._until(lambda: self.starts.complete, patience)

    def cpu(self) -> float:
        """Seconds of processor time that the processes have used so far, all threads included."""
        return sum(_cpu(hand.process.pid) for hand in self._hands)

    def memory(self) -> float:
        """Resident memory of all processes together, in MiB; shared pages count each time."""
        return sum(psutil.Process(hand.process.pid).memory_info().rss for hand in self._hands) / MEBIBYTE

    async def _until(self, happened: Callable[[], bool], patience: float) -> None:
        deadline = time.monotonic() + patience
        while not happened():
            self._check_alive()
            if time.monotonic() > deadline:
                raise CrewFailed(f"{self._started()} of {self.starts.tasks} tasks had started after {patience:g} s")
            await asyncio.sleep(GLANCE)

    def _check_alive(self) -> None:
        for hand in self._hands:
            if hand.process.poll() is not None:
                raise CrewFailed(f"a worker process ended by itself: {hand.last_words()}")

    def _started(self) -> int:
        return sum(1 for stamp in self.starts.stamps() if stamp)


@contextmanager
def crew(post: Post, *, processes: int, concurrency: int, tasks: int) -> Iterator[Crew]:
    """Start worker processes, and kill them in the end: their store is thrown away anyway.

    They are ready on entry and wait for `go`, so that importing is not measured and two begin together.
    """
    with ExitStack() as stack:
        starts = stack.enter_context(shared_starts(tasks))
        hands = [stack.enter_context(_hand(post, concurrency, starts)) for _ in range(processes)]
        for hand in hands:
            hand.await_ready()
        yield Crew(hands, starts)


@contextmanager
def _hand(post: Post, concurrency: int, starts: Starts) -> Iterator[Hand]:
    arguments = [post.engine, post.system, post.url, concurrency, starts.descriptor, starts.tasks]
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            [sys.executable, "-m", "bench.worker", *map(str, arguments)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            pass_fds=[starts.descriptor],
        ) as process,
    ):
        try:
            yield Hand(process, errors)
        finally:
            process.kill()


def _cpu(pid: int) -> float:
    if sys.platform == "linux":
        # Another process's CPU clock, as clock_getcpuclockid(3) makes it: nanoseconds, where psutil has ticks
        # of 10 ms, which is 0.2 % of a core over five seconds.
        return time.clock_gettime((~pid << 3) | 2)
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system
