"""Processes for tasks that want one of their own: to use a processor each, to be stopped for real, or to crash."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dovetail.worker.logs import logger
from dovetail.worker.processes.child import Child, Hear, NeverBegun
from dovetail.worker.processes.letters import Raised, Returned

RUNS = 500
"""How many runs a process is used for: what a library leaks goes with it."""
TRIES = 3
FAREWELL = 2.0
"""Seconds that processes have to end in when the worker does."""


class NotStarted(Exception):
    """No process could be started. The body has not begun, and this is nothing that the run could help."""


class Processes:
    """One process for each body that runs at the moment: started when it is first needed, and used again."""

    def __init__(self, runs_each: int = RUNS) -> None:
        self._runs_each = runs_each
        self._idle: list[Child] = []
        self._others: set[Child] = set()  # at work, or about to end

    async def carry_out(self, letter: bytes, hear: Hear, *, is_urgent: Callable[[], bool]) -> Returned | Raised:
        """How the body of an order ended. Cancelled, it is gone when the exception passes on: told to end and then
        killed, or killed at once if it is urgent."""
        for _ in range(TRIES):
            child = await self._taken()
            try:
                answer = await child.carry_out(letter, hear)
            except NeverBegun as error:
                logger.warning("%s before it began to work; another one is taken", error)
            except asyncio.CancelledError:
                await child.end(is_urgent=is_urgent)
                raise
            else:
                self._put_back(child)
                return answer
        raise NotStarted(f"{TRIES} processes died before they began to work; what they said is on standard error")

    async def _taken(self) -> Child:
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:
                self._others.add(child)
                return child
        # Not to be cancelled halfway: there would be a process that nobody knows.
        starting = asyncio.ensure_future(Child.start())
        starting.add_done_callback(self._started)
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(_kill)
            raise
        except OSError as error:
            raise NotStarted(f"no process can be started: {error}") from error

    def _started(self, starting: asyncio.Future[Child]) -> None:
        if not starting.cancelled() and starting.exception() is None:
            child = starting.result()
            self._others.add(child)
            child.exited.add_done_callback(lambda _: self._others.discard(child))

    def _put_back(self, child: Child) -> None:
        if child.runs < self._runs_each and child.is_alive:
            self._others.discard(child)
            self._idle.append(child)
        else:
            child.close()

    async def close(self) -> None:
        """End them all. Nothing is at work any more, unless the worker is out of time."""
        children = [*self._idle, *self._others]
        self._idle.clear()
        await asyncio.gather(*(child.closed(within=FAREWELL) for child in children))


def _kill(starting: asyncio.Future[Child]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result().kill()
