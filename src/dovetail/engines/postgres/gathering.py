"""Group commit: what is asked for while a transaction is under way goes together into the next. One that takes long,
since it waits for a lock of somebody, does not hold up the others."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from dovetail.errors import DovetailError, EngineUnavailable, OutcomeUnknown

A = TypeVar("A")
B = TypeVar("B")

GATHERED = 1000
"""How many items may share a transaction, unless one request alone has more."""

LANES = 4
"""How many transactions may be under way at a time."""
SLOW = 0.05
"""Seconds that somebody waits for the one under way before another is begun: it may itself wait for a lock."""

Perform = Callable[[Sequence[A]], Awaitable[list[B]]]


class Gatherer(Generic[A, B]):
    """Does a batch for each caller, and for those who come meanwhile one batch together."""

    def __init__(self, perform: Perform[A, B]) -> None:
        self._perform = perform
        self._waiting: list[tuple[Sequence[A], asyncio.Future[list[B]]]] = []
        self._since = deque[float]()  # when each of those that wait came
        self._busy = 0
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def submit(self, items: Sequence[A]) -> list[B]:
        if self._busy:
            loop = asyncio.get_running_loop()
            future: asyncio.Future[list[B]] = loop.create_future()
            self._waiting.append((items, future))
            self._since.append(loop.time())
            self._watch()
            return await future
        self._busy += 1
        try:
            return await self._perform(items)
        finally:
            self._go_on()

    def _go_on(self) -> None:
        if self._waiting:
            self._start()
        else:
            self._busy -= 1

    def _start(self) -> None:
        task = asyncio.create_task(self._work_off(), name="dovetail-gatherer")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work_off(self) -> None:
        try:
            while self._waiting:
                await self._together(self._next())
        finally:
            self._busy -= 1

    def _watch(self) -> None:
        """See that the first of those that wait does not wait for long."""
        if self._timer is None and self._since and self._busy < LANES:
            self._timer = asyncio.get_running_loop().call_at(self._since[0] + SLOW, self._open_lane)

    def _open_lane(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        if self._since and self._since[0] + SLOW <= now and self._busy < LANES:
            self._busy += 1
            self._start()
        elif self._since:
            self._watch()

    def _next(self) -> list[tuple[Sequence[A], asyncio.Future[list[B]]]]:
        count = 0
        size = 0
        for items, _ in self._waiting:
            if count and size + len(items) > GATHERED:
                break
            count += 1
            size += len(items)
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        for _ in batch:
            self._since.popleft()
        self._watch()
        return [(items, future) for items, future in batch if not future.done()]

    async def _together(self, batch: list[tuple[Sequence[A], asyncio.Future[list[B]]]]) -> None:
        try:
            answers = await self._perform([item for items, _ in batch for item in items])
        except (EngineUnavailable, OutcomeUnknown) as error:
            _fail(batch, error)
        except DovetailError as error:
            # Somebody asked for what cannot be: the others are not to suffer from it.
            if len(batch) == 1:
                _fail(batch, error)
                return
            for one in batch:
                await self._together([one])
        except BaseException as error:
            _fail(batch, error if isinstance(error, Exception) else EngineUnavailable("the docket was closed"))
            if not isinstance(error, Exception):
                raise
        else:
            start = 0
            for items, future in batch:
                if not future.done():
                    future.set_result(answers[start : start + len(items)])
                start += len(items)

    async def close(self) -> None:
        """Let what is under way come to its end."""
        if self._timer is not None:
            self._timer.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


def _fail(batch: list[tuple[Sequence[A], asyncio.Future[list[B]]]], error: BaseException) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(error)
