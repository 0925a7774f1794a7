"""The async docket behind a sync one: it lives in the portal's loop, and is opened there when it is first needed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Self, TypeVar, cast

from dovetail.docket import Docket
from dovetail.errors import InvalidType
from dovetail.model import NewRun, Placement
from dovetail.sync.portal import PORTALS, Guest, in_callers_thread

T = TypeVar("T")

PATIENCE = 5.0
"""Seconds that calls which are under way have to end when their docket is closed."""


class CarriedDocket(Docket):
    """A docket that opens itself, in each process anew, and closes when the calls under way have ended."""

    _pid = 0
    _is_ready = False
    _turn: asyncio.Lock
    _guests: set[Guest]
    _calls: set[asyncio.Task[Any]]
    _waits: set[asyncio.Task[Any]]

    @property
    def is_open(self) -> bool:
        return self._is_ready and self._pid == os.getpid()

    async def opened(self) -> Self:
        """The docket, open in this process."""
        if self._pid != os.getpid():
            self._leave_to_parent()
        if not self._is_ready:
            async with self._turn:
                if not self._is_ready:
                    # In a context of its own: what stays at work must not keep the first caller's.
                    await asyncio.get_running_loop().create_task(self.__aenter__(), context=Context())
                    self._guests = PORTALS.guests
                    self._guests.add(self)
                    self._is_ready = True
        return self

    async def do(self, work: Callable[[Docket], Coroutine[Any, Any, T]], *, may_wait: bool) -> T:
        """A call. One that may wait for a run, and so for ever, is cut off when the docket is closed."""
        docket = await self.opened()
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        under_way = self._waits if may_wait else self._calls
        under_way.add(task)
        try:
            return await work(docket)
        finally:
            under_way.discard(task)

    async def close(self) -> None:
        """Give up the connections. The next call opens them again."""
        if not self.is_open:
            return
        async with self._turn:
            self._is_ready = False  # a call that comes now waits for its turn, and opens it again
            for each in self._waits:
                each.cancel()
            if under_way := self._calls | self._waits:
                await asyncio.wait(under_way, timeout=PATIENCE)
            await self.__aexit__()
            self._guests.discard(self)

    def _leave_to_parent(self) -> None:
        """In a child made by fork: begin without what was inherited, since it is the parent's."""
        PORTALS.keep((self._stack, self._engine))
        self._stack = self._engine = None
        self._is_ready = False
        self._calls, self._waits = set(), set()
        self._turn = asyncio.Lock()
        self._pid = os.getpid()

    async def _put_down(self, runs: list[NewRun], connection: Any) -> list[Placement]:
        if connection is None:
            return await super()._put_down(runs, None)
        _refuse_async(connection)
        # Many a connection may only be used in the thread that made it, and none by two at a time.
        return await in_callers_thread(super()._put_down(runs, connection))


def _refuse_async(connection: Any) -> None:
    for each in type(connection).__mro__:
        if each.__module__.startswith(("asyncpg", "aiosqlite")) or each.__name__.lower().startswith("async"):
            raise InvalidType(
                f"connection is a {type(connection).__module__}.{type(connection).__name__}, which has to be awaited;"
                " give the sync Docket a connection of a sync driver, or use the Docket of dovetail"
            )
