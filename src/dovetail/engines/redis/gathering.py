"""Gathering requests: what is asked while a call is under way goes together in the next one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Gatherer(Generic[T, R]):
    """Sends one batch at a time. Alone, a request goes at once; under load many share a round trip, and no timer
    holds any of them up. An answer that is an exception is raised where it was asked for."""

    def __init__(
        self, send: Callable[[list[T]], Awaitable[list[R | BaseException]]], weigh: Callable[[T], int], most: int
    ) -> None:
        self._send = send
        self._weigh = weigh
        self._most = most
        self._waiting: deque[tuple[T, asyncio.Future[R]]] = deque()
        self._is_busy = False
        self._sending: asyncio.Task[None] | None = None

    async def ask(self, item: T) -> R:
        if self._is_busy:
            answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
            self._waiting.append((item, answer))
            return await answer
        self._is_busy = True
        try:
            (reply,) = await self._send([item])
        finally:
            self._go_on()
        if isinstance(reply, BaseException):
            raise reply
        return reply

    def _go_on(self, _: object = None) -> None:
        """Send what waits, or rest. Called whenever a sender ends, even one that was cancelled before it began."""
        while self._waiting and self._waiting[0][1].done():
            self._waiting.popleft()  # whoever asked has gone
        self._is_busy = bool(self._waiting)
        if self._is_busy:
            self._sending = asyncio.create_task(self._send_on(), name="dovetail-redis-gatherer")
            self._sending.add_done_callback(self._go_on)

    async def _send_on(self) -> None:
        while batch := self._next_batch():
            try:
                replies = await self._send([item for item, _ in batch])
            except Exception as error:
                replies = [error] * len(batch)
            except BaseException:
                # It is this task that was to end, not those who ask: theirs goes again, which is safe for every script.
                self._waiting.extendleft(reversed(batch))
                raise
            _deliver(batch, replies)

    def _next_batch(self) -> list[tuple[T, asyncio.Future[R]]]:
        batch: list[tuple[T, asyncio.Future[R]]] = []
        weight = 0
        while self._waiting:
            weight += self._weigh(self._waiting[0][0])
            if batch and weight > self._most:
                break
            batch.append(self._waiting.popleft())
        return batch


def _deliver(batch: list[tuple[T, asyncio.Future[R]]], replies: Sequence[R | BaseException]) -> None:
    for (_, answer), reply in zip(batch, replies, strict=True):
        if answer.done():
            continue  # whoever asked has gone
        if isinstance(reply, BaseException):
            answer.set_exception(reply)
        else:
            answer.set_result(reply)
