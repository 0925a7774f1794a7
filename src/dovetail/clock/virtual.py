"""A time that tests advance."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Collection, Coroutine, Generator, Sequence, Sized
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from typing import Any, NamedTuple

from dovetail.clock.times import duration_to_microseconds, from_microseconds, to_microseconds

logger = logging.getLogger("dovetail.clock")

RESTLESS = 60.0
"""Seconds of real time within which everything has to come to rest for a virtual clock to move on."""
TURNS = 50
"""Turns of an event loop that does not say whether it has anything left to do."""


class VirtualClock:
    """A clock that stands still until it is told to move.

        async with Docket(url="memory://", clock=clock) as docket:
            ...
            await clock.advance(timedelta(days=31))

    `advance` stops wherever somebody's sleep ends, and at each stop lets everything come to rest before it goes on. At
    rest means: the event loop has nothing to call, no engine is at work in a thread, and each body of a task has ended
    or sleeps on this clock. A body that awaits anything else, real time or a socket, is waited for in real time, for
    as long as `patience`; then the clock moves on without it.
    """

    def __init__(
        self, start: datetime = datetime(2030, 1, 1, tzinfo=UTC), *, patience: timedelta = timedelta(seconds=1)
    ) -> None:
        self._now = to_microseconds(start)
        self._patience = patience
        self._sleepers: dict[int, Sleeper] = {}
        self._order = itertools.count()
        self._bodies: dict[int, Body] = {}
        self._body: ContextVar[Body | None] = ContextVar("dovetail_body", default=None)
        self._under_way = 0
        self._lock = threading.Lock()
        self._waiter: asyncio.Future[None] | None = None
        self._is_moving = False

    # Telling the time

    def now(self) -> datetime:
        return from_microseconds(self._now)

    def microseconds(self) -> int:
        return self._now

    def monotonic(self) -> float:
        return self._now / 1_000_000

    def advance_to(self, mark: int) -> None:
        """Only its owner moves this clock."""

    def leapt_within(self, duration: timedelta) -> bool:
        return False

    # Waiting

    async def sleep(self, duration: timedelta) -> None:
        await self._sleep(duration, Kind.STOP)

    async def wait(self, event: asyncio.Event, at_most: timedelta | None) -> None:
        await self._first_of(event, [] if at_most is None else [self.sleep(at_most)])

    async def rest(
        self, event: asyncio.Event | None, duration: timedelta, at_most: timedelta | None = None, *, first: bool = False
    ) -> None:
        sleeps = [self._sleep(duration, Kind.FIRST if first else Kind.REST)]
        if at_most is not None:
            sleeps.append(self.sleep(at_most))
        await self._first_of(event, sleeps)

    async def _sleep(self, duration: timedelta, kind: Kind) -> None:
        woken = asyncio.get_running_loop().create_future()
        until = self._now + max(duration_to_microseconds(duration), 0)
        number = next(self._order)
        self._sleepers[number] = Sleeper(until, number, kind, woken)
        body = self._body.get()
        if body is not None:
            body.falls_asleep()
        try:
            await woken
        finally:
            self._sleepers.pop(number, None)
            if body is not None:
                body.sleeping -= 1

    async def _first_of(self, event: asyncio.Event | None, sleeps: Sequence[Coroutine[Any, Any, None]]) -> None:
        waiting = [asyncio.ensure_future(each) for each in sleeps]
        if event is not None:
            waiting.append(asyncio.ensure_future(_set(event)))
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()

    # Knowing what is under way

    def work_began(self) -> None:
        with self._lock:
            self._under_way += 1

    def work_ended(self) -> None:
        with self._lock:
            self._under_way -= 1
            waiter = None if self._under_way else self._waiter
        if waiter is not None:
            with contextlib.suppress(RuntimeError):  # that loop has been closed
                waiter.get_loop().call_soon_threadsafe(_wake, waiter)

    @contextlib.contextmanager
    def body(self, name: str) -> Generator[None]:
        """While this is entered, a task's body runs: the clock does not move on before it has ended, or sleeps."""
        body = Body(name)
        self._bodies[id(body)] = body
        token = self._body.set(body)
        try:
            yield
        finally:
            self._body.reset(token)
            del self._bodies[id(body)]
            body.moved.set()

    # Moving

    def jump(self, duration: timedelta) -> None:
        """Move the time without waking anyone: for tests that drive an engine by hand."""
        self._now += duration_to_microseconds(duration)

    async def advance(self, duration: timedelta) -> None:
        """Move the time on, and let everything happen on the way, each at its time."""
        await self.advance_until(from_microseconds(self._now + duration_to_microseconds(duration)))

    async def advance_until(self, when: datetime) -> None:
        """As `advance`, up to a moment."""
        target = to_microseconds(when)
        if target < self._now:
            raise ValueError(f"the clock stands at {self.now()} and cannot go back to {when}")
        with self._moving():
            await self._come_to_rest()
            # Once on the way the time stops for routine too: it may be what sets things going that come at their times.
            routine = {each.number for each in self._sleepers.values() if each.kind is Kind.REST}
            while (stop := self._next_stop(routine)) is not None and stop <= target:
                await self._go_to(stop)
            await self._go_to(target)

    async def settle(self) -> None:
        """Let everything happen that can happen now, without moving the time."""
        with self._moving():
            await self._come_to_rest()

    async def advance_to_next(self) -> bool:
        """Move the time to where the first sleep ends, and let everything happen there. False if nobody sleeps."""
        with self._moving():
            await self._come_to_rest()
            stop = self._next_stop()
            if stop is None:
                return False
            await self._go_to(stop)
            return True

    @contextlib.contextmanager
    def _moving(self) -> Generator[None]:
        if self._is_moving:
            raise RuntimeError(
                "the clock is being moved already; one task at a time may advance it, and no task's body"
            )
        self._is_moving = True
        try:
            yield
        finally:
            self._is_moving = False

    def _next_stop(self, routine: Collection[int] = ()) -> int | None:
        sleepers = [each for each in self._sleepers.values() if each.kind is Kind.STOP or each.number in routine]
        return min((each.until for each in sleepers if not each.woken.done()), default=None)

    async def _go_to(self, moment: int) -> None:
        """Go to a stop. Whoever renews leases does it before anyone looks for leases that have lapsed."""
        self._now = max(self._now, moment)
        for kinds in ({Kind.FIRST}, {Kind.REST, Kind.STOP}):
            due = [each for each in self._sleepers.values() if each.kind in kinds and each.until <= self._now]
            for sleeper in sorted(due, key=lambda each: (each.until, each.number)):
                _wake(sleeper.woken)
            if due:
                await self._come_to_rest()

    # Coming to rest

    async def _come_to_rest(self) -> None:
        deadline = time.monotonic() + RESTLESS
        while True:
            await self._quiet(deadline)
            awake = [body for body in self._bodies.values() if body.is_waited_for]
            if not awake:
                return
            await self._await_a_move(awake)

    async def _quiet(self, deadline: float) -> None:
        """Until the loop has nothing to call and no thread is at work."""
        # Only the loop's own queue says for certain that nothing is left to call. A loop that does not show it gets a
        # number of turns: more than any chain of callbacks of ours is long.
        ready: Sized | None = getattr(asyncio.get_running_loop(), "_ready", None)
        turns = 0
        while True:
            if self._under_way:
                await self._end_of_work(deadline)
                turns = 0
            elif ready or (ready is None and turns < TURNS):
                await asyncio.sleep(0)
                turns += 1
            else:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(self._restless())

    async def _end_of_work(self, deadline: float) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            if not self._under_way:
                return
            self._waiter = waiter
        try:
            async with asyncio.timeout(max(deadline - time.monotonic(), 0)):
                await waiter
        except TimeoutError:
            raise RuntimeError(self._restless()) from None
        finally:
            self._waiter = None

    def _restless(self) -> str:
        bodies = ", ".join(sorted(repr(body.name) for body in self._bodies.values())) or "none"
        return (
            f"at {self.now()} there was no end of work in {RESTLESS:g} s of real time (running bodies: {bodies}): a"
            " task that schedules itself for now, as Perpetual() without `every` does, leaves time no chance to move"
        )

    async def _await_a_move(self, awake: list[Body]) -> None:
        """Until one of these bodies ends or falls asleep; those that take longer than real time allows are let go."""
        for body in awake:
            body.moved.clear()
        moves = [asyncio.ensure_future(body.moved.wait()) for body in awake]
        try:
            done, _ = await asyncio.wait(
                moves, timeout=self._patience.total_seconds(), return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for move in moves:
                move.cancel()
        if done:
            return
        for body in awake:
            body.let_go = True
        names = ", ".join(repr(body.name) for body in awake)
        logger.warning(
            "the clock moves on without %s, which awaits something else than the clock: await clock.sleep() in place of"
            " asyncio.sleep(), or give the clock more patience than %s",
            names, self._patience,
        )  # fmt: skip


class Kind(Enum):
    """Whether the time stops for a sleeper."""

    STOP = auto()
    REST = auto()  # it does once, and then wakes the sleeper at the next stop
    FIRST = auto()  # it does not, but this one is woken before the others at any stop


class Sleeper(NamedTuple):
    until: int
    number: int
    kind: Kind
    woken: asyncio.Future[None]


class Body:
    """The body of a task, as a clock sees it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sleeping = 0
        self.let_go = False
        self.moved = asyncio.Event()

    @property
    def is_waited_for(self) -> bool:
        return not self.sleeping and not self.let_go

    def falls_asleep(self) -> None:
        self.sleeping += 1
        self.let_go = False
        self.moved.set()


def _wake(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)


async def _set(event: asyncio.Event) -> None:
    await event.wait()
