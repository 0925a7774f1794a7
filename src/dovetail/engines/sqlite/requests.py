"""What is asked of a store, and how the answer finds its way back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from dovetail.clock import Clock
from dovetail.engines.sqlite.session import Session

T = TypeVar("T")


@dataclass(slots=True)
class Request(Generic[T]):
    """Something to be done in a transaction, and who waits for it."""

    work: Callable[[Session], T]
    docket: int
    clock: Clock
    grows: bool  # whether it needs room on the disk that finishing work does not
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[T]
    result: Any = None
    error: BaseException | None = None

    def deliver(self) -> None:
        if self.future.done():
            return  # whoever asked has gone
        if isinstance(self.error, StopIteration):
            self.future.set_exception(
                RuntimeError("StopIteration in the store").with_traceback(self.error.__traceback__)
            )
        elif self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


def deliver(batch: list[Request[Any]]) -> None:
    """Wake those who wait, with one call into each event loop."""
    loops: dict[asyncio.AbstractEventLoop, list[Request[Any]]] = {}
    for request in batch:
        loops.setdefault(request.loop, []).append(request)
    for loop, requests in loops.items():
        try:
            loop.call_soon_threadsafe(_deliver_all, requests)
        except RuntimeError:
            continue  # that loop has been closed, and nobody waits any more


def _deliver_all(requests: list[Request[Any]]) -> None:
    for request in requests:
        request.deliver()
