"""Those who want to hear of events, and what tells that there may be some."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from dovetail.engines.sqlite import connection
from dovetail.engines.sqlite.location import Location
from dovetail.model import Event, EventKind, Topic


@dataclass(eq=False, slots=True)
class Watcher:
    """Somebody who wants to hear of a docket's events."""

    docket: int
    topics: frozenset[Topic]
    loop: asyncio.AbstractEventLoop
    put: Callable[[Event], None]

    @property
    def kinds(self) -> frozenset[EventKind]:
        return frozenset(topic.kind for topic in self.topics)

    def wants(self, docket: int, event: Event) -> bool:
        # Docket 0 stands for any: the file changed, and nobody knows how.
        if docket == 0:
            return event.kind in self.kinds
        is_of_all = event.key is None  # a hint without news
        return docket == self.docket and any(
            topic.kind is event.kind and (is_of_all or topic.key in (None, event.key)) for topic in self.topics
        )

    def hand_over(self, event: Event) -> None:
        try:
            self.loop.call_soon_threadsafe(self.put, event)
        except RuntimeError:
            return  # that loop has been closed


class FileChanges:
    """Whether another connection has changed the file since it was last asked."""

    def __init__(self, location: Location, durability: str) -> None:
        self._location = location
        self._durability = durability
        self.open()

    def open(self) -> None:
        self._db = connection.connect(self._location, self._durability, read_only=True)
        self._seen = self._version()

    def since_last_asked(self) -> bool:
        before, self._seen = self._seen, self._version()
        return self._seen != before

    def _version(self) -> int:
        return self._db.execute("PRAGMA data_version").fetchone()[0]

    def close(self) -> None:
        self._db.close()
