"""Draining: run everything that is pending, and what comes of it, then return."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

from dovetail import checks
from dovetail.clock import VirtualClock, from_microseconds
from dovetail.docket import PENDING, Docket
from dovetail.errors import ResultExpired, UsageError
from dovetail.failures import failed
from dovetail.model import Event, EventKind, Run, RunQuery, State, Topic
from dovetail.schedules.definition import is_key
from dovetail.worker import Worker
from dovetail.worker.leftovers import is_anything_left

LEASE = timedelta(hours=1)
"""Nobody else is there to take over, so a lease need not be short; each renewal would be a stop of the clock."""


async def drain(
    docket: Docket,
    *,
    future: bool = False,
    raise_errors: bool = False,
    at_most: int = 1000,
    worker: Worker | None = None,
) -> int:
    """Run everything that is due, and what those runs schedule for now; how many attempts that took.

    With `future` the docket's clock, which has to be a VirtualClock, is moved to whatever is due later, until nothing
    is left. With `raise_errors` the first run to fail ends it, and what the task raised is raised here. More than
    `at_most` attempts are an error: a perpetual task would otherwise go on for ever.

    A worker of its own does it, which starts no automatic tasks; or one of yours that is not running.
    """
    checks.whole(at_most, "at_most", least=1)
    if future and not isinstance(docket.clock, VirtualClock):
        raise UsageError(
            "drain(future=True) moves the clock: give the docket a VirtualClock, Docket(clock=VirtualClock())"
        )
    drainage = Drainage(docket, raise_errors=raise_errors, at_most=at_most)
    async with docket.engine.watch(Topic(EventKind.STATE)) as events, background_worker(worker or worker_of(docket)):
        await drainage.run(events, future=future)
    return drainage.attempts


class Drainage:
    """One emptying of a docket."""

    def __init__(self, docket: Docket, *, raise_errors: bool, at_most: int) -> None:
        self._docket = docket
        self._clock = docket.clock
        self._raise_errors = raise_errors
        self._at_most = at_most
        self._by_key: Counter[str] = Counter()
        self._changed = asyncio.Event()

    @property
    def attempts(self) -> int:
        return self._by_key.total()

    async def run(self, events: AsyncIterator[Event], *, future: bool) -> None:
        """Empty the docket, unless what is heard meanwhile is an error."""
        hearing = asyncio.create_task(self._hear(events), name="dovetail drain events")
        emptying = asyncio.create_task(self._empty(future=future), name="dovetail drain")
        try:
            await asyncio.wait([hearing, emptying], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (hearing, emptying):
                each.cancel()
            await asyncio.wait([hearing, emptying])
        if not hearing.cancelled():
            hearing.result()
        emptying.result()
        while (event := await _at_hand(events)) is not None:
            await self._note(event)

    async def _hear(self, events: AsyncIterator[Event]) -> None:
        async for event in events:
            await self._note(event)

    async def _note(self, event: Event) -> None:
        """Count attempts, until there are too many or one has failed that must not."""
        self._changed.set()
        if event.state is State.RUNNING and event.key is not None and not is_key(event.key):
            self._by_key[event.key] += 1
            if self.attempts > self._at_most:
                raise UsageError(self._too_many())
        if self._raise_errors and event.state is State.FAILED and event.id is not None:
            await self._raise(event.id, event.error)

    def _too_many(self) -> str:
        most = ", ".join(f"{key!r} {count} times" for key, count in self._by_key.most_common(3))
        return (
            f"the docket {self._docket.name!r} is not empty after {self._at_most} attempts; most often ran {most}. A"
            " perpetual task is never finished: move the clock with clock.advance(), use worker.run_at_most(), or allow"
            " more with at_most="
        )

    async def _raise(self, run_id: str, error: str | None) -> None:
        found = await self._docket.engine.find(RunQuery(ids=(run_id,), limit=1))
        if found.items:
            with suppress(ResultExpired):
                await self._docket.execution_of(found.items[0]).get_result()
        raise failed(error, None, None)

    async def _empty(self, *, future: bool) -> None:
        if isinstance(self._clock, VirtualClock):
            await self._clock.settle()
            while future and await self._is_anything_left():
                if not await self._clock.advance_to_next():
                    raise UsageError(await self._stuck())
        else:
            await self._until_nothing_is_due()

    async def _is_anything_left(self) -> bool:
        return await is_anything_left(self._docket.engine)

    async def _stuck(self) -> str:
        left = await self._docket.find_all(RunQuery(states=(*PENDING, State.RUNNING)))
        listed = ", ".join(f"{run.key!r} ({run.task}, {run.state})" for run in left[:10])
        return (
            f"{len(left)} runs of the docket {self._docket.name!r} never start or never end: {listed}; is a queue"
            " paused, or does a body await what the test does later?"
        )

    async def _until_nothing_is_due(self) -> None:
        """On a clock that nobody moves: look after each event. Subscribed first, so none is missed."""
        while True:
            self._changed.clear()
            now = from_microseconds(self._clock.microseconds())
            runs = await self._docket.find_all(RunQuery(states=(State.SCHEDULED, State.QUEUED, State.RUNNING)))
            if not any(_is_under_way(run) or run.due <= now for run in runs):
                # A write comes back after what earlier ones had to tell.
                await self._docket.engine.cancel([])
                return
            await self._changed.wait()


def _is_under_way(run: Run) -> bool:
    return run.state is not State.SCHEDULED or run.parked_on is not None


async def _at_hand(events: AsyncIterator[Event]) -> Event | None:
    """An event that was told already."""
    try:
        async with asyncio.timeout(0):
            return await anext(events)
    except TimeoutError:
        return None


def worker_of(docket: Docket, *, automatic: bool = False) -> Worker:
    """A worker for a test."""
    return Worker(docket, name="tests", redelivery_timeout=LEASE, schedule_automatic_tasks=automatic)


@asynccontextmanager
async def background_worker(worker: Worker) -> AsyncGenerator[Worker]:
    """A worker that runs meanwhile. What it still runs at the end is handed back."""
    running = asyncio.create_task(worker.run_forever(), name="dovetail background worker")
    try:
        yield worker
    finally:
        # Twice: on a clock that stands still, the grace that is given to running bodies would never end. One that has
        # not begun hears of no stop, and is cancelled.
        worker.stop()
        worker.stop()
        running.cancel()
        await asyncio.wait([running])
        if not running.cancelled():
            running.result()
