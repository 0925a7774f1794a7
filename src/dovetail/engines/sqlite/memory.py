"""A docket in memory: the same store, and a Redis beside it for those who keep keys of their own."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

from dovetail.engines.sqlite.engine import SqliteEngine
from dovetail.engines.sqlite.store import Store
from dovetail.errors import MissingExtra


class MemoryEngine(SqliteEngine):
    """Keeps the runs of one docket in the memory of this process."""

    @asynccontextmanager
    async def client(self) -> AsyncGenerator[Any]:
        """A Redis within this process. Like the docket it is seen by all who name the URL, and gone with the last."""
        yield _LENT.by(self._opened())


class _Lender:
    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: WeakKeyDictionary[Store, Any] = WeakKeyDictionary()

    def by(self, store: Store) -> Any:
        with self._lock:
            if store not in self._kept:
                self._kept[store] = _new_redis()
            return self._kept[store]


_LENT = _Lender()


def _new_redis() -> Any:
    try:
        burner: Any = import_module("burner_redis")
    except ImportError as error:
        raise MissingExtra(
            "redis() on memory:// needs a Redis that runs within the process: pip install 'dovetail-tasks[memory]', or"
            " keep the docket in Redis"
        ) from error
    return burner.BurnerRedis()
