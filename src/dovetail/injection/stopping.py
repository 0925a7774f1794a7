"""Whether a run is to end: what a plain function can ask, since nobody can interrupt a thread."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary

from uncalled_for import Provider

from dovetail import checks
from dovetail.errors import UsageError
from dovetail.injection.context import current_execution


class Stopping(Provider["Stopping"]):
    """Set once the run is to end: it was cancelled, its time is up, its lease is lost, or the worker is out of grace.

        def resize(paths: list[str], stopping: Stopping = Stopping()) -> None:
            for path in paths:
                stopping.raise_if_set()
                ...

    Any thread may ask. An `async def` task is cancelled, and needs it only for the threads that it starts itself.
    """

    def __init__(self) -> None:
        self._event = threading.Event()

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Sleep for so long, or until the run is to end; whether it is."""
        if timeout is None:
            return self._event.wait()
        return self._event.wait(checks.duration(timeout, "timeout").total_seconds())

    def raise_if_set(self) -> None:
        """Leave the body if the run is to end, by an exception that means nothing but that."""
        if self._event.is_set():
            raise asyncio.CancelledError

    def set(self) -> None:
        """Ask the run to end: this is the worker's part."""
        self._event.set()

    async def __aenter__(self) -> Stopping:
        execution = current_execution.get(None)
        if execution is None:
            raise UsageError("Stopping() has a value only while a worker runs a task")
        return _asked.setdefault(execution, Stopping())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # An async body was cancelled. Threads that it started may still be at it.
        if isinstance(error, asyncio.CancelledError | TimeoutError):
            ask_to_stop()


_asked: WeakKeyDictionary[Any, Stopping] = WeakKeyDictionary()
"""By execution, of those that asked for it."""


def ask_to_stop() -> bool:
    """Tell the run at hand that it is to end; whether it can hear that."""
    stopping = _asked.get(current_execution.get(None))
    if stopping is not None:
        stopping.set()
    return stopping is not None
