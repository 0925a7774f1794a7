"""The stores on which the tests of dockets, workers and behaviors run: each starts when it is first needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from dovetail.model import new_id
from tests.servers import redis

STORES = ("memory", "redis")

ON_EVERY_STORE = (
    "tests/behaviors/",
    "tests/test_agenda.py",
    "tests/test_docket.py",
    "tests/test_execution.py",
    "tests/test_progress.py",
    "tests/test_strikelist.py",
    "tests/test_striking.py",
    "tests/worker/test_worker.py",
)
"""The tests of what users see run on every store; those of the parts within, on the one in memory."""


class Stores:
    """Servers that the tests of one process share."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._servers: dict[str, str] = {}

    def __enter__(self) -> Stores:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextmanager
    def place(self, kind: str) -> Iterator[str]:
        """The URL of a store that no other test knows."""
        if kind == "memory":
            yield f"memory://{new_id()}"  # it goes with the last docket that has it open
        else:
            yield f"{self._redis()}?prefix={new_id()}"

    def _redis(self) -> str:
        if "redis" not in self._servers:
            self._servers["redis"] = self._stack.enter_context(redis.server("valkey")).url
        return self._servers["redis"]
