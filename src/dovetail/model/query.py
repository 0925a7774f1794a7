"""What can be asked of a store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Generic, TypeVar

import msgspec

from dovetail.model.noun import Noun
from dovetail.model.run import State
from dovetail.model.worker import WorkerInfo

T = TypeVar("T")


class RunQuery(Noun, frozen=True):
    """Which runs. Everything that is set must hold; results come oldest first, or newest first."""

    ids: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    states: tuple[State, ...] = ()
    queues: tuple[str, ...] = ()
    without_queues: tuple[str, ...] = ()  # it is in none of them
    tasks: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()  # it carries all of them
    key_prefix: str | None = None
    worker: str | None = None
    parent: str | None = None  # the id of a run: those that hang on it
    created_after: datetime | None = None
    created_before: datetime | None = None
    due_before: datetime | None = None
    error_contains: str | None = None
    latest: bool = False  # of each key only the newest run
    newest_first: bool = False
    limit: int = 100
    cursor: str | None = None  # from the page before

    @classmethod
    def newest_of(cls, key: str) -> RunQuery:
        """The newest run of a key."""
        return cls(keys=(key,), newest_first=True, limit=1)


class Page(msgspec.Struct, Generic[T], frozen=True):
    """Some of the answers; `cursor` asks for the next ones, None means that these were the last."""

    items: list[T]
    cursor: str | None = None

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


class Cleared(Noun, frozen=True):
    """What one step of clearing did; `cursor` asks for the next one, None means that this was the last."""

    runs: int  # those that were cancelled, without what fell with them
    cursor: str | None = None


class QueueCount(Noun, frozen=True):
    """How many runs of a queue are in a state, and since when the first of them is due."""

    queue: str
    state: State
    count: int
    oldest_due: datetime | None = None


class Survey(Noun, frozen=True):
    """The whole docket at a glance."""

    at: datetime
    counts: list[QueueCount]
    workers: list[WorkerInfo]

    def count(self, *states: State) -> int:
        return sum(each.count for each in self.counts if each.state in states)


class Swept(Noun, frozen=True):
    """What one sweep did. `more` says that it stopped at its bound."""

    runs: int = 0  # records past their retention that were dropped, those of the archive too
    workers: int = 0  # workers not heard of
    holds: int = 0  # holds past their time
    repaired: int = 0  # parked runs whose limit had room, and the like
    archived: int = 0  # records past their retention that went to the archive
    more: bool = False
