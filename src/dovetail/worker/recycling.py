"""Recycling: a worker process that has done enough makes room for a fresh one, and takes its leaks with it."""

from __future__ import annotations

import random
import resource
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from dovetail import checks

SPREAD = 0.1
"""By how much of itself a limit may be lower than it was given, so that workers do not all go at once."""
MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """When a worker process has done enough; None where that does not matter."""

    runs: int | None = None
    age: timedelta | None = None
    memory: int | None = None  # mebibytes

    @classmethod
    def of(cls, runs: int | None, age: timedelta | None, memory: int | None) -> Limits:
        return cls(
            None if runs is None else checks.whole(runs, "max_runs", least=1),
            None if age is None else checks.duration(age, "max_age", positive=True),
            None if memory is None else checks.whole(memory, "max_memory", least=1),
        )

    def __bool__(self) -> bool:
        return self != NO_LIMITS


NO_LIMITS = Limits()


class Wear:
    """How worn a worker process is."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._began = time.monotonic()
        self._share = 1 - random.uniform(0, SPREAD)

    @property
    def counts_runs(self) -> bool:
        return self._limits.runs is not None

    def reason_to_go(self, runs: int) -> str | None:
        """What the process has had enough of, after so many runs."""
        limits, share = self._limits, self._share
        if limits.runs is not None and runs >= limits.runs * share:
            return f"it has made {runs} runs"
        age = time.monotonic() - self._began
        if limits.age is not None and age >= limits.age.total_seconds() * share:
            return f"it is {timedelta(seconds=round(age))} old"
        if limits.memory is not None and (memory := memory_used() / MEBIBYTE) >= limits.memory * share:
            return f"it uses {memory:.0f} MiB of memory"
        return None


def memory_used() -> int:
    """Bytes of memory that this process has; where the system does not say, the most that it had."""
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return pages * resource.getpagesize()
