"""Fault injection: a real engine behind a door that can be shut for a while."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Self

from dovetail import Docket, EngineUnavailable
from tests.waiting import PATIENCE

Happening = Callable[[], Awaitable[None]]


class Faulty:
    """Passes every verb on to a real engine, except where a test has said what is to happen instead.

    `fail("claim", 2)` makes the next two claims fail before they reach the store; with `after=True` they fail after
    the store has done its part, as when only the answer is lost. Twins share all of it.
    """

    def __init__(self, engine: Any, faults: Faults | None = None) -> None:
        self.engine = engine
        self.faults = faults or Faults()

    async def __aenter__(self) -> Self:
        self.faults.raise_if_due("open")
        await self.engine.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.engine.__aexit__(*exc)

    def twin(self) -> Faulty:
        return Faulty(self.engine.twin(), self.faults)

    def watch(self, *topics: Any) -> Any:
        self.faults.calls["watch"] += 1
        self.faults.raise_if_due("watch")
        return self.engine.watch(*topics)

    def __getattr__(self, verb: str) -> Any:
        passed_on = getattr(self.engine, verb)

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self.faults.through(verb, lambda: passed_on(*args, **kwargs))

        return call


class Faults:
    """What is to go wrong, and what has been asked for so far."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()  # begun
        self.ended: Counter[str] = Counter()  # answered, or failed
        self.left: Counter[str] = Counter()
        self.errors: dict[str, BaseException] = {}
        self.late: set[str] = set()
        self.before: dict[str, Happening] = {}
        self.after: dict[str, Happening] = {}
        self._waiting: list[tuple[str, int, asyncio.AbstractEventLoop, asyncio.Event]] = []

    def fail(self, verb: str, times: int, error: BaseException | None = None, *, after: bool = False) -> None:
        self.left[verb] = times
        self.errors[verb] = error or EngineUnavailable("the door is shut")
        self.late = (self.late | {verb}) if after else (self.late - {verb})

    def raise_if_due(self, verb: str) -> None:
        if self.left[verb] > 0:
            self.left[verb] -= 1
            raise self.errors[verb]

    async def through(self, verb: str, do: Callable[[], Awaitable[Any]]) -> Any:
        self.calls[verb] += 1
        try:
            if verb not in self.late:
                self.raise_if_due(verb)
            if verb in self.before:
                await self.before[verb]()
            answer = await do()
            if verb in self.late:
                self.raise_if_due(verb)
            if verb in self.after:
                await self.after[verb]()
            return answer
        finally:
            self._note_end(verb)

    def _note_end(self, verb: str) -> None:
        self.ended[verb] += 1
        for wanted, count, loop, event in self._waiting:
            if wanted == verb and self.ended[verb] >= count and not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    async def called(self, verb: str, times: int = 1) -> None:
        """Wait until a verb has been called so many times more."""
        await self.reached(verb, self.ended[verb] + times)

    async def reached(self, verb: str, count: int) -> None:
        """Wait until a verb has been called so many times in all."""
        event = asyncio.Event()
        self._waiting.append((verb, count, asyncio.get_running_loop(), event))
        if self.ended[verb] >= count:
            return
        async with asyncio.timeout(PATIENCE):
            await event.wait()


def behind_a_door(docket: Docket) -> Faults:
    """Put an open docket's engine behind a door, and say how to shut it."""
    door = Faulty(docket.engine)
    docket._engine = door  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    docket.strike_list._engine = door  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    return door.faults
