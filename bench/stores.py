"""Empty stores for the systems to use."""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit, urlunsplit

if TYPE_CHECKING:
    from tests.servers.postgres import PostgresServer
    from tests.servers.redis import Server

_serial = itertools.count()


class Shelf(Protocol):
    """Where the stores of one measurement come from."""

    def fresh(self) -> str:
        """The URL of a store that nothing has touched yet."""
        ...

    def clear(self) -> None: ...

    def commands(self) -> int | None:
        """How many commands the store that was made last has carried out, if it counts them."""
        ...


class SqliteShelf:
    """Files in a directory, gone afterwards: the next measurement shall not share the disk with them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.resolve()
        self._paths: list[Path] = []

    def fresh(self) -> str:
        path = self._directory / f"store-{next(_serial)}.db"
        self._paths.append(path)
        return f"sqlite:///{path}"

    def commands(self) -> None:
        return None

    def clear(self) -> None:
        for path in self._paths:
            for beside in self._directory.glob(f"{path.name}*"):
                shutil.rmtree(beside) if beside.is_dir() else beside.unlink()


class RedisShelf:
    """Servers of their own, without persistence, as the tests start them: `DOVETAIL_BENCH_REDIS` says which kind."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._servers: list[Server] = []

    def fresh(self) -> str:
        from tests.servers.redis import Server  # only now: the other engines must not need the driver

        folder = self._directory / f"redis-{next(_serial)}"
        folder.mkdir()
        server = Server(os.environ.get("DOVETAIL_BENCH_REDIS", "valkey"), folder)
        self._servers.append(server.start())
        return server.url

    def commands(self) -> int:
        """Those within scripts included."""
        with self._servers[-1].client() as client:
            return client.info("stats")["total_commands_processed"]

    def clear(self) -> None:
        for server in self._servers:
            server.kill()


DURABLE = ("-c", "fsync=on", "-c", "synchronous_commit=on", "-c", "shared_buffers=256MB", "-c", "max_wal_size=4GB")
"""PostgreSQL as it is by default, but for room that no task queue should have to share with its neighbours."""


class PostgresShelf:
    """Databases of one server, which ends with the bench. The environment may name another server."""

    _server: PostgresServer | None = None

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._names: list[str] = []

    def fresh(self) -> str:
        import psycopg

        name = f"store_{next(_serial)}"
        with psycopg.connect(self._admin(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        self._names.append(name)
        return urlunsplit(urlsplit(self._admin())._replace(path=f"/{name}"))

    def _admin(self) -> str:
        named = os.environ.get("DOVETAIL_TEST_POSTGRES_URL")
        if named:
            return named
        if PostgresShelf._server is None:
            from tests.servers.postgres import PostgresServer  # only now: the other engines must not need the driver

            PostgresShelf._server = PostgresServer(None, *DURABLE, folder=self._directory).create().start()
            atexit.register(PostgresShelf._server.remove)
        return PostgresShelf._server.url()

    def clear(self) -> None:
        import psycopg

        with psycopg.connect(self._admin(), autocommit=True) as connection:
            for name in self._names:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
            connection.execute("CHECKPOINT")


SHELVES = {"postgres": PostgresShelf, "redis": RedisShelf, "sqlite": SqliteShelf}


@contextmanager
def shelf(engine: str, directory: Path) -> Iterator[Shelf]:
    """Stores for one measurement."""
    made = SHELVES[engine](directory)
    try:
        yield made
    finally:
        made.clear()


def sqlite_path(url: str) -> str:
    return url.removeprefix("sqlite:///")
