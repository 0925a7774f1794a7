"""Real processes on one file: started here, owned here, and gone in the end."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from dovetail import Docket
from dovetail.model import Run, RunQuery, State
from tests.system.programs import record
from tests.system.programs.record import Line
from tests.system.programs.tasks import tasks
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
LEASE = timedelta(seconds=5)
"""As short as a busy machine allows: what waits for a lease to lapse waits this long."""
LONG_LEASE = timedelta(hours=1)
"""Does not lapse in a test, however busy the machine."""


class Record:
    """Reads what the bodies noted. What was read once is kept."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: list[Line] = []
        path.touch()

    @property
    def lines(self) -> list[Line]:
        self._lines += record.read(self.path, len(self._lines))
        return self._lines

    def of(self, what: str, key: str | None = None, pid: int | None = None) -> list[Line]:
        return [
            line for line in self.lines if line.what == what and key in (None, line.key) and pid in (None, line.pid)
        ]

    def starts(self, key: str | None = None, pid: int | None = None) -> list[Line]:
        return self.of("start", key, pid)

    def ends(self, key: str | None = None, pid: int | None = None) -> list[Line]:
        return self.of("end", key, pid)

    def starts_by_run(self) -> dict[str, list[Line]]:
        found: defaultdict[str, list[Line]] = defaultdict(list)
        for line in sorted(self.starts(), key=lambda line: line.at):
            found[line.run].append(line)
        return dict(found)

    def end_of(self, start: Line) -> Line | None:
        """How the body that made this start left, if it did."""
        return next(
            (
                line
                for line in self.lines
                if line.what in ("end", "cut") and line[1:5] == start[1:5] and line.at >= start.at
            ),
            None,
        )

    def in_progress(self, pid: int) -> list[Line]:
        """Starts of a process that have not ended."""
        over = {line[1:5] for line in self.lines if line.what in ("end", "cut") and line.pid == pid}
        return [line for line in self.starts(pid=pid) if line[1:5] not in over]

    def overlaps(self) -> list[tuple[Line, Line]]:
        """Pairs of starts of one run, the second before the first had ended."""
        found: list[tuple[Line, Line]] = []
        for starts in self.starts_by_run().values():
            for earlier, later in pairwise(starts):
                end = self.end_of(earlier)
                if end is None or end.at > later.at:
                    found.append((earlier, later))
        return found

    def more_than_once(self, what: str = "start") -> list[str]:
        """Ids of runs that did so more than once."""
        return [run for run, count in Counter(line.run for line in self.of(what)).items() if count > 1]


class Process:
    """A process of ours, and what it says."""

    def __init__(self, module: str, arguments: Iterable[str], environment: dict[str, str], log: Path) -> None:
        self._log = log
        self.module = module
        self.killed_at: int | None = None
        with log.open("wb") as output:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", f"tests.system.programs.{module}", *arguments],
                cwd=ROOT,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __repr__(self) -> str:
        return f"<{self.module} {self.pid}>"

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        return self._popen.poll()

    @property
    def is_running(self) -> bool:
        return self.exit_code is None

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def send(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def kill(self) -> None:
        """No goodbye. On return the process is gone."""
        self.killed_at = time.monotonic_ns()
        self._popen.kill()
        self._popen.wait()

    def kill_with_children(self) -> None:
        """End the process and what it forked: all of the session that it leads, while it still has its number."""
        if self.is_running:
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()

    async def ended(self) -> int | None:
        """The exit code, once there is one."""
        await eventually(lambda: not self.is_running)
        return self.exit_code


class Stage:
    """One store, one record, and all processes that play on them."""

    def __init__(self, folder: Path, store: Path) -> None:
        self.folder = folder
        self.store = store
        self.url = f"sqlite:///{store}"
        self.record = Record(folder / "record")
        self.processes: list[Process] = []

    def docket(self) -> Docket:
        """The docket as this process has it."""
        docket = Docket("system", self.url)
        for task in tasks:
            docket.register(task)
        return docket

    # Processes

    def start(self, module: str, *arguments: object) -> Process:
        process = Process(
            module,
            map(str, arguments),
            {"DOVETAIL_URL": self.url, "DOVETAIL_NAME": "system", record.VARIABLE: str(self.record.path)},
            self.folder / f"{module}-{len(self.processes)}.log",
        )
        self.processes.append(process)
        return process

    def start_worker(self, *options: str, concurrency: int = 4, lease: timedelta | None = LONG_LEASE) -> Process:
        """A worker; without a lease, at its default settings."""
        given = [] if lease is None else [f"--lease={lease.total_seconds()}"]
        return self.start("worker", f"--concurrency={concurrency}", *given, *options)

    async def is_seen(self, process: Process, docket: Docket) -> bool:
        """Whether a worker process is among those that the docket hears of."""
        return process.pid in {info.pid for info in await docket.workers()}

    async def start_idle_worker(self, docket: Docket, *options: str, **settings: Any) -> Process:
        """A worker that is known to be there."""
        worker = self.start_worker(*options, **settings)
        await eventually(lambda: self.is_seen(worker, docket))
        return worker

    async def suspend(self, process: Process) -> None:
        """Stop a process as SIGSTOP does, but not while it holds the file's write lock: that would be another test."""
        for _ in range(50):
            process.send(signal.SIGSTOP)
            await eventually(lambda: "State:\tT" in Path(f"/proc/{process.pid}/status").read_text())
            if self._can_be_written():
                return
            process.send(signal.SIGCONT)
        raise AssertionError("the process held the write lock each time it was stopped")

    def _can_be_written(self) -> bool:
        with contextlib.closing(sqlite3.connect(self.store, timeout=0.2, isolation_level=None)) as db:
            try:
                db.execute("BEGIN IMMEDIATE")
                db.execute("ROLLBACK")
            except sqlite3.OperationalError:
                return False
        return True

    def clear(self) -> None:
        """Nobody is left. What they said is shown if the test fails."""
        for process in self.processes:
            process.kill_with_children()
            print(f"--- {process} exited with {process.exit_code} and said, in the end:\n{process.said[-3000:]}")

    # Gates

    @property
    def gate(self) -> str:
        return str(self.folder / "gate")

    def open_gate(self) -> None:
        Path(self.gate).touch()

    # Looking at the store from outside

    def check(self) -> None:
        """What holds after every test: nobody was upset, and the file is sound."""
        for process in self.processes:
            assert "database is locked" not in process.said
            assert "Traceback" not in process.said
        with contextlib.closing(sqlite3.connect(self.store)) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@contextlib.contextmanager
def set_stage(folder: Path, store: Path | None = None) -> Iterator[Stage]:
    """A stage in a folder, cleared and checked afterwards."""
    stage = Stage(folder, store or folder / "store.db")
    try:
        yield stage
    finally:
        stage.clear()
    stage.check()


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """Not pytest's own: the doorbell is a socket, and the path of a socket must be short."""
    with tempfile.TemporaryDirectory(prefix="dovetail-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


async def runs_of(docket: Docket, *states: State) -> list[Run]:
    return await docket.find_all(RunQuery(states=states))


async def are_over(docket: Docket) -> bool:
    """Whether nothing waits or runs any more."""
    survey = await docket.engine.survey()
    return not survey.count(State.SCHEDULED, State.QUEUED, State.WAITING, State.RUNNING)
