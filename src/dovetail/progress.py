"""How far a run is, as whoever holds its execution sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Self, TypedDict

from dovetail import checks
from dovetail.model import EventKind, Progress, ProgressReport, RunQuery, Topic

if TYPE_CHECKING:
    from dovetail.docket import Docket


class ProgressEvent(TypedDict):
    """A run's progress, as `subscribe` tells it."""

    type: Literal["progress"]
    key: str
    current: int | None
    total: int
    message: str | None
    updated_at: str | None


class ExecutionProgress:
    """The progress of the run of a key, as last read; anyone may add to it while the run is running."""

    def __init__(self, docket: Docket, key: str) -> None:
        self._docket = docket
        self.key = key
        self.current: int | None = None
        self.total = 1
        self.message: str | None = None
        self.updated_at: datetime | None = None

    @classmethod
    async def create(cls, docket: Docket, key: str) -> Self:
        """The progress of a key, read at once."""
        progress = cls(docket, key)
        await progress.sync()
        return progress

    async def set_total(self, total: int) -> None:
        """How many steps there are in all."""
        await self._report(ProgressReport(self.key, total=checks.whole(total, "total", least=1)))

    async def increment(self, amount: int = 1) -> None:
        """So many steps further."""
        await self._report(ProgressReport(self.key, increment=checks.whole(amount, "amount", least=1)))

    async def set_message(self, message: str | None) -> None:
        """What is being done; None takes the last message away."""
        message = checks.message(message, "message")
        await self._report(ProgressReport(self.key, message=message, clear_message=message is None))

    async def _report(self, report: ProgressReport) -> None:
        await self._docket.engine.report([report])
        await self.sync()

    async def sync(self) -> None:
        """Read how far the run is."""
        page = await self._docket.engine.find(RunQuery.newest_of(self.key))
        self.take_in(page.items[0].progress if page.items else None)

    def take_in(self, progress: Progress | None) -> None:
        """Show what the store said."""
        self.total = 100
        self.current = self.message = self.updated_at = None
        if progress is not None:
            self.current, self.total = progress.current, progress.total
            self.message, self.updated_at = progress.message, progress.updated

    async def subscribe(self, *, ready: asyncio.Event | None = None) -> AsyncIterator[ProgressEvent]:
        """Every change of the progress, as it happens."""
        async with self._docket.engine.watch(Topic(EventKind.PROGRESS, self.key)) as events:
            if ready is not None:
                ready.set()
            async for event in events:
                if event.progress is not None:
                    yield progress_event(self.key, event.progress)


def progress_event(key: str, progress: Progress | None) -> ProgressEvent:
    if progress is None:
        return ProgressEvent(type="progress", key=key, current=None, total=100, message=None, updated_at=None)
    return ProgressEvent(
        type="progress", key=key, current=progress.current, total=progress.total, message=progress.message,
        updated_at=progress.updated and progress.updated.isoformat(),
    )  # fmt: skip
