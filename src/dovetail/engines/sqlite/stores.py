"""The stores of a process."""

from __future__ import annotations

import os
import threading
from typing import Any

from dovetail.engines.sqlite.location import Location
from dovetail.engines.sqlite.store import Store


class Stores:
    """The stores that this process has open. A child made by fork starts with none: connections do not survive it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._open: dict[tuple[Any, ...], Store] = {}
        self._abandoned: list[Store] = []
        os.register_at_fork(before=self._pause, after_in_parent=self._go_on, after_in_child=self._abandon)

    def acquire(self, location: Location, durability: str, lane: str) -> Store:
        """The store for a place, opened if need be. Each lane has connections and a writer of its own, except where
        there can only be one."""
        if location.is_memory:
            name: tuple[Any, ...] = ("memory", location.name)
        elif location.single_process:
            name = (location.path,)
        else:
            name = (location.path, durability, lane)
        with self._lock:
            store = self._open.get(name)
            if store is None:
                store = Store(location, durability)
                store.open()
                self._open[name] = store
            store.users += 1
            return store

    def release(self, store: Store) -> None:
        if store.pid != os.getpid():
            return
        with self._lock:
            store.users -= 1
            if store.users:
                return
            self._open = {name: each for name, each in self._open.items() if each is not store}
        store.close()

    def _pause(self) -> None:
        self._lock.acquire()
        for store in self._open.values():
            store.pause()

    def _go_on(self) -> None:
        for store in self._open.values():
            store.go_on()
        self._lock.release()

    def _abandon(self) -> None:
        # The inherited handles are kept, never closed: closing them would drop the parent's locks.
        self._lock = threading.RLock()
        self._abandoned += self._open.values()
        self._open = {}


STORES = Stores()
