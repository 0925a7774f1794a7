"""The facts of the machine that a reader of figures needs."""

from __future__ import annotations

import os
import platform
import sqlite3
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median

import psutil

SYNCS = 50
_sync = getattr(os, "fdatasync", os.fsync)  # macOS has only the latter
PACKAGES = ("dovetail-tasks", "huey", "msgspec", "uvloop")


@dataclass(frozen=True, slots=True)
class Machine:
    when: str
    system: str
    cores: int
    memory: float  # GiB
    python: str
    sqlite: str
    packages: dict[str, str]
    filesystem: str
    sync: float  # milliseconds that a write of one page and its fdatasync take here, median
    busy: float  # the load average when the run began: what else is going on

    def __str__(self) -> str:
        packages = ", ".join(f"{name} {number}" for name, number in self.packages.items())
        return (
            f"{self.when}: {self.cores} cores, {self.memory:.0f} GiB, {self.system}, Python {self.python}, "
            f"SQLite {self.sqlite}, {packages}; stores on {self.filesystem}, where a page takes "
            f"{self.sync:.2f} ms to write and fdatasync; load average at the start {self.busy:.2f}"
        )


def describe(directory: Path) -> Machine:
    return Machine(
        when=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        system=f"{platform.system()} {platform.machine()}",
        cores=psutil.cpu_count() or 1,
        memory=psutil.virtual_memory().total / 2**30,
        python=platform.python_version(),
        sqlite=sqlite3.sqlite_version,
        packages={name: number for name in PACKAGES if (number := _version(name))},
        filesystem=_filesystem(directory),
        sync=_sync_time(directory),
        busy=os.getloadavg()[0],
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _filesystem(directory: Path) -> str:
    holding = [part for part in psutil.disk_partitions(all=True) if directory.is_relative_to(part.mountpoint)]
    return max(holding, key=lambda part: len(part.mountpoint)).fstype if holding else "an unknown file system"


def _sync_time(directory: Path) -> float:
    with tempfile.TemporaryFile(dir=directory) as file:
        return median(_sync_once(file.fileno()) for _ in range(SYNCS)) * 1e3


def _sync_once(descriptor: int) -> float:
    began = time.perf_counter()
    os.write(descriptor, bytes(4096))
    _sync(descriptor)
    return time.perf_counter() - began
