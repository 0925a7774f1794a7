"""Group commit: what is asked for while a transaction is under way goes together into the next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from dovetail.errors import DovetailError, EngineUnavailable, OutcomeUnknown

A = TypeVar("A")
B = TypeVar("B")

GATHERED = 1000
"""How many items may share a transaction, unless one request alone has more."""

Perform = Callable[[Sequence[A]], Awaitable[list[B]]]


class Gatherer(Generic[A, B]):
    """Does a batch for each caller, and for those who come meanwhile one batch together."""

    def __init__(self, perform: Perform[A, B]) -> None:
        self._perform = perform
        self._waiting: list[tuple[Sequence[A], asyncio.Future[list[B]]]] = []
        self._is_busy = False
        self._task: asyncio.Task[None] | None = None

    async def submit(self, items: Sequence[A]) -> list[B]:
        if self._is_busy:
            future: asyncio.Future[list[B]] = asyncio.get_running_loop().create_future()
            self._waiting.append((items, future))
            return await future
        self._is_busy = True
        try:
            return await self._perform(items)
        finally:
            self._go_on()

    def _go_on(self) -> None:
        if self._waiting:
            self._task = asyncio.create_task(self._work_off(), name="dovetail-gatherer")
        else:
            self._is_busy = False

    async def _work_off(self) -> None:
        while self._waiting:
            await self._together(self._next())
        self._is_busy = False

    def _next(self) -> list[tuple[Sequence[A], asyncio.Future[list[B]]]]:
        count = 0
        size = 0
        for items, _ in self._waiting:
            if count and size + len(items) > GATHERED:
                break
            count += 1
            size += len(items)
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
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
        if self._task is not None:
            await asyncio.wait([self._task])


def _fail(batch: list[tuple[Sequence[A], asyncio.Future[list[B]]]], error: BaseException) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(error)
