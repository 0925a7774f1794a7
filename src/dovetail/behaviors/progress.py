"""Progress: how far a run says it is."""

from __future__ import annotations

from datetime import datetime
from typing import Self

from dovetail import checks
from dovetail.behaviors.base import Attempt, Behavior
from dovetail.clock import from_microseconds


class Progress(Behavior):
    """Lets a task say how far it is; whoever holds its execution can follow.

        async def load(rows: list[str], progress: Progress = Progress()) -> None:
            await progress.set_total(len(rows))
            for row in rows:
                await progress.increment()

    The first report is written at once, later ones a few times a second: to report often costs little.
    """

    def __init__(self) -> None:
        self.current: int | None = None
        self.total = 100
        self.message: str | None = None
        self.updated_at: datetime | None = None
        self._attempt: Attempt | None = None

    def bind(self, attempt: Attempt) -> Self:
        bound = self.copy()
        bound._attempt = attempt
        bound.current = 0
        return bound

    async def set_total(self, total: int) -> None:
        """How many steps there are in all."""
        checks.whole(total, "total", least=1)
        await self._running().report(total=total)
        self.total = total

    async def increment(self, amount: int = 1) -> None:
        """So many steps further."""
        checks.whole(amount, "amount", least=1)
        await self._running().report(increment=amount)
        self.current = (self.current or 0) + amount

    async def set_message(self, message: str | None) -> None:
        """What is being done; None takes the last message away."""
        message = checks.message(message, "message")
        await self._running().report(message=message or "")
        self.message = message

    def _running(self) -> Attempt:
        assert self._attempt is not None, "Progress has its say only while a worker runs the task"  # noqa: S101
        self.updated_at = from_microseconds(self._attempt.clock.microseconds())
        return self._attempt
