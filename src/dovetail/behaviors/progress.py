"""Progress: how far a run says it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from datetime import datetime
from typing import Any, Self

from dovetail import checks
from dovetail.behaviors.base import Attempt, Behavior
from dovetail.clock import from_microseconds


class Progress(Behavior):
    """Lets a task say how far it is; whoever holds its execution can follow.

        async def load(rows: list[str], progress: Progress = Progress()) -> None:
            await progress.set_total(len(rows))
            for row in rows:
                await progress.increment()

    The first report is written at once, later ones a few times a second: to report often costs little. A plain `def`
    calls the same methods, without `await`.
    """

    def __init__(self) -> None:
        self.current: int | None = None
        self.total = 100
        self.message: str | None = None
        self.updated_at: datetime | None = None
        self._attempt: Attempt | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tell: Callable[[Any], None] | None = None  # in a process of its own: to the one that reports

    def bind(self, attempt: Attempt) -> Self:
        bound = self.copy()
        bound._attempt = attempt
        bound._loop = asyncio.get_running_loop()
        bound.current = 0
        return bound

    def set_total(self, total: int) -> Awaitable[None]:
        """How many steps there are in all."""
        checks.whole(total, "total", least=1)
        saying = self._say(total=total)
        self.total = total
        return saying

    def increment(self, amount: int = 1) -> Awaitable[None]:
        """So many steps further."""
        checks.whole(amount, "amount", least=1)
        saying = self._say(increment=amount)
        self.current = (self.current or 0) + amount
        return saying

    def set_message(self, message: str | None) -> Awaitable[None]:
        """What is being done; None takes the last message away."""
        message = checks.message(message, "message")
        saying = self._say(message=message or "")
        self.message = message
        return saying

    def unpack(self, packed: Any, tell: Callable[[Any], None]) -> None:
        self._tell = tell

    async def heed(self, told: Any) -> None:
        if self._attempt is not None:
            await self._attempt.report(**told)

    def _say(self, **what: Any) -> Awaitable[None]:
        """On the loop, something to be awaited. In a plain function's thread it is said at once."""
        assert self._attempt is not None, "Progress has its say only while a worker runs the task"  # noqa: S101
        assert self._loop is not None  # noqa: S101 - it was bound
        self.updated_at = from_microseconds(self._attempt.clock.microseconds())
        if self._tell is not None:
            self._tell(what)
            return Said()
        saying = self._attempt.report(**what)
        if _is_on_a_loop():
            return saying
        asyncio.run_coroutine_threadsafe(saying, self._loop)
        return Said()


class Said(Awaitable[None]):
    """What was said already: whoever likes may await it."""

    def __await__(self) -> Generator[Any, None, None]:
        yield from ()


def _is_on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
