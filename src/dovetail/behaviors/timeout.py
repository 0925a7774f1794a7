"""Timeout: a body that takes too long is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any, Self

from dovetail import checks
from dovetail.behaviors.base import Attempt, Proceed
from dovetail.behaviors.roles import Runtime

TIMEOUT = "dovetail-timeout"
"""The header in which a call says how many microseconds its body may take."""


class Timeout(Runtime["Timeout"], native=True):
    """Stop the body after `base`, and let the attempt fail with a TimeoutError.

    Covers the body, not its dependencies. It has nothing to do with the lease: a run may take as long as it likes. In
    the body, `timeout.extend()` gives more time. A plain `def` cannot be stopped from outside: it can ask a `Stopping`
    whether its time is up, and its attempt fails once the function returns. A task in a process of its own is killed.
    """

    def __init__(self, base: timedelta) -> None:
        self.base = checks.duration(base, "base", positive=True)
        self._key = ""
        self._limit: asyncio.Timeout | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._deadline: float | None = None
        self._tell: Callable[[Any], None] | None = None  # in a process of its own: to the one that counts

    def bind(self, attempt: Attempt) -> Self:
        bound = self.copy()
        bound._key = attempt.claim.key
        if attempt.claim.headers.get(TIMEOUT, "").isdecimal():
            bound.base = timedelta(microseconds=int(attempt.claim.headers[TIMEOUT]))
        return bound

    def start(self) -> None:
        """Begin to count."""
        self._deadline = time.monotonic() + self.base.total_seconds()

    def extend(self, by: timedelta | None = None) -> None:
        """Allow more time: as much as at first, unless another duration is given."""
        more = self.base if by is None else checks.duration(by, "by")
        self._deadline = time.monotonic() + (self.remaining() + more).total_seconds()
        if self._tell is not None:
            self._tell(self._deadline)
        if self._limit is not None and self._loop is not None:
            # A plain function asks from its thread; only the loop itself may move the limit.
            until = self._loop.time() + self.remaining().total_seconds()
            self._loop.call_soon_threadsafe(_reschedule, self._limit, until)

    def remaining(self) -> timedelta:
        """How much time is left."""
        if self._deadline is None:
            return self.base
        return timedelta(seconds=self._deadline - time.monotonic())

    def expired(self) -> bool:
        return self.remaining() <= timedelta()

    def pack(self) -> Any:
        # A process has to be started, and what it runs imported: the time of the body begins over there.
        if self._limit is not None:
            _reschedule(self._limit, None)

    def unpack(self, packed: Any, tell: Callable[[Any], None]) -> None:
        self._tell = tell

    def begin(self) -> None:
        self.start()
        if self._tell is not None:
            self._tell(self._deadline)  # the processes of a host have one monotonic clock

    async def heed(self, told: Any) -> None:
        self._deadline = told
        if self._limit is not None:
            _reschedule(self._limit, told)

    async def run(
        self, execution: Any, function: Callable[..., Awaitable[Any]], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """For subclasses to call: the function, stopped when its time is up."""
        return await Timeout.around(self, partial(function, *args, **kwargs))

    async def around(self, proceed: Proceed) -> Any:
        self.start()
        self._loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(self._deadline) as self._limit:  # a loop's time is monotonic time
                result = await proceed()
        except TimeoutError as error:
            if self._limit is None or not self._limit.expired():
                raise  # the body's own
            raise TimeoutError(self._message()) from error
        if self._limit.expired():
            # The body swallowed its cancellation. Its time was up all the same.
            raise TimeoutError(self._message())
        return result

    def _message(self) -> str:
        return f"Task {self._key} exceeded timeout of {self.base.total_seconds()}s"


def _reschedule(limit: asyncio.Timeout, until: float | None) -> None:
    with contextlib.suppress(RuntimeError):  # it is over already
        limit.reschedule(until)
