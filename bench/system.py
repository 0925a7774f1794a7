"""The seam of the bench: what a task system must do to be measured.

An adapter is one class in one file of `bench/systems`, made with the URL of an empty store. Its only task is
a no-op that takes a number and notes its own start. What a system has not got, it leaves out: bulk and
backlog are protocols of their own, and the cases ask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

Note = Callable[[int], None]
"""What a task calls with its number, first thing: the start that is measured."""


class System(Protocol):
    """A task system on one store, at the durability where an acknowledged task survives a power cut."""

    pace: ClassVar[float]
    """About how many tasks a second a worker starts, so that drains of all systems can last alike."""

    def __init__(self, url: str) -> None: ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *_: object) -> None: ...

    async def enqueue(self, number: int) -> None:
        """Schedule one task; it is on disk when this returns."""
        ...

    async def fill(self, numbers: Sequence[int]) -> None:
        """Schedule tasks by the quickest way there is. Nobody measures this."""
        ...

    def work(self, concurrency: int, note: Note) -> None:
        """Run tasks until killed: the whole life of a worker process. The system has not been entered."""
        ...


@runtime_checkable
class Bulk(Protocol):
    """A system that can schedule many tasks in one call."""

    async def enqueue_many(self, numbers: Sequence[int]) -> None: ...


class Backlog(Protocol):
    """A store below its worker: claims and finishes by hand."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *_: object) -> None: ...

    async def add(self, count: int, delay: timedelta) -> None: ...
    async def claim(self, want: int) -> Sequence[Any]: ...
    async def finish(self, claims: Sequence[Any]) -> None: ...


@runtime_checkable
class HasBacklog(Protocol):
    """A system that lets its store be measured alone."""

    def backlog(self) -> Backlog: ...
