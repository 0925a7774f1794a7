"""The stores on which the tests of dockets, workers and behaviors run: each starts when it is first needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property

import psycopg

from dovetail.model import new_id
from tests.servers import redis
from tests.servers.postgres import PostgresServer

STORES = ("memory", "redis", "postgres")

ON_EVERY_STORE = (
    "tests/behaviors/",
    "tests/cli/",
    "tests/observe/test_counting.py",
    "tests/observe/test_metrics.py",
    "tests/observe/test_tracing.py",
    "tests/schedules/test_keeping.py",
    "tests/sync/",
    "tests/tasks/test_declaring.py",
    "tests/tasks/test_extras.py",
    "tests/test_agenda.py",
    "tests/test_deploying.py",
    "tests/test_docket.py",
    "tests/test_doctor.py",
    "tests/test_execution.py",
    "tests/test_failing.py",
    "tests/test_flow.py",
    "tests/test_middleware.py",
    "tests/test_progress.py",
    "tests/test_queues.py",
    "tests/test_retention.py",
    "tests/test_strikelist.py",
    "tests/test_striking.py",
    "tests/test_switched_over.py",
    "tests/test_why.py",
    "tests/worker/test_leftovers.py",
    "tests/worker/test_abroad.py",
    "tests/worker/test_round.py",
    "tests/worker/test_shares.py",
    "tests/worker/test_worker.py",
)
"""The tests of what users see run on every store; those of the parts within, on the one in memory."""

TABLES = ("docket", "run", "ended", "archive", "error", "edge", "slot", "start", "opening", "share", "hold", "worker")


class Stores:
    """Servers that the tests of one process share."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> Stores:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextmanager
    def place(self, kind: str) -> Iterator[str]:
        """The URL of a store in which there is nothing yet."""
        if kind == "memory":
            yield f"memory://{new_id()}"  # it goes with the last docket that has it open
        elif kind == "redis":
            yield f"{self._redis.url}?prefix={new_id()}"
        else:
            yield self._postgres.url()
            self._clear_postgres()

    @cached_property
    def _redis(self) -> redis.Server:
        return self._stack.enter_context(redis.server("valkey", appendonly="yes", appendfsync="no"))

    @cached_property
    def _postgres(self) -> PostgresServer:
        server = PostgresServer().create().start()
        self._stack.callback(server.remove)
        return server

    def _clear_postgres(self) -> None:
        with psycopg.connect(self._postgres.url(), autocommit=True) as connection:
            if connection.execute("SELECT to_regclass('dovetail.run')").fetchone() != (None,):
                connection.execute(f"TRUNCATE {', '.join(f'dovetail.{table}' for table in TABLES)}".encode())
