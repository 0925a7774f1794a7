"""The pulse: tells the store that this worker lives, renews its leases, and hears what it has lost.

It runs in a thread of its own, over connections of its own, so that a task that blocks the event loop does not cost the
worker its leases; and from there it sees that the loop is blocked, and by what.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta

from dovetail.clock import Clock
from dovetail.engine import Engine
from dovetail.errors import DovetailError, EngineUnavailable
from dovetail.model import Blockage, WorkerInfo
from dovetail.model import Pulse as Heard
from dovetail.worker.logs import logger
from dovetail.worker.roster import Reason, Roster, Tenure
from dovetail.worker.telemetry import Telemetry

MARGIN = 0.2
"""The part of a lease that must be left: a body is stopped before its lease could lapse."""
BLOCKED_AFTER = 1.0
"""Seconds without a turn of the event loop after which somebody is blocking it."""

LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
"""Where code lies that is Python's own, or of an installed package."""


class Pulse:
    """One heartbeat after the other. `say` tells what the worker is; `heard` is called on the worker's own loop."""

    def __init__(
        self,
        engine: Engine,
        roster: Roster,
        clock: Clock,
        *,
        lease: timedelta,
        interval: Callable[[], timedelta],
        say: Callable[[], WorkerInfo],
        heard: Callable[[Heard], None],
    ) -> None:
        self._engine = engine
        self._roster = roster
        self._clock = clock
        self._lease = lease
        self._interval = interval
        self._say = say
        self._heard = heard
        self._stopping: asyncio.Event | None = None
        self._is_heard = True
        self.telemetry = Telemetry()

    async def run(self, worker_loop: asyncio.AbstractEventLoop) -> None:
        """Beat until stopped, then say goodbye. May run on another loop than the worker's."""
        self._stopping = stopping = asyncio.Event()
        async with AsyncExitStack() as opened:
            while not await self._is_opened(opened, worker_loop):
                await self._clock.rest(stopping, self._soon, first=True)
                if stopping.is_set():
                    return
            while not stopping.is_set():
                pause = min(self._interval(), self._lease / 3) if await self._beat(worker_loop) else self._soon
                await self._clock.rest(stopping, pause, first=True)
            with suppress(DovetailError):
                await self._engine.heartbeat(self._say_goodbye(), [], lease=self._lease)

    @property
    def _soon(self) -> timedelta:
        """After which what has failed is tried again."""
        return min(self._interval(), self._lease / 20)

    async def _is_opened(self, opened: AsyncExitStack, worker_loop: asyncio.AbstractEventLoop) -> bool:
        """Make the connections of its own. A store that is out of reach for a moment is no reason to end."""
        try:
            await opened.enter_async_context(self._engine)
        except EngineUnavailable as error:
            logger.warning("the pulse has no connection yet, trying again: %s", error)
            self.telemetry.disrupted()
            self._give_up_what_lapses(worker_loop, self._clock.monotonic())
            self._engine = self._engine.twin()  # one that could not be opened is not opened again
            return False
        return True

    def _say_goodbye(self) -> WorkerInfo:
        return self._say().but(leaving=True)

    async def _beat(self, worker_loop: asyncio.AbstractEventLoop) -> bool:
        tenures = self._roster.in_hand()
        sent = self._clock.monotonic()
        length = self._lease.total_seconds()
        try:
            async with asyncio.timeout(length / 2):
                pulse = await self._engine.heartbeat(
                    self._say(), [tenure.claim for tenure in tenures], lease=self._lease
                )
        except (DovetailError, TimeoutError) as error:
            self._complain(len(tenures), error)
            self.telemetry.disrupted()
            self._give_up_what_lapses(worker_loop, sent)
            return False
        self._is_heard = True
        for tenure in tenures:
            tenure.deadline = sent + length
        _on(worker_loop, lambda: self._heard(self._of_those_in_hand(pulse, tenures)))
        return True

    def _complain(self, runs: int, error: Exception) -> None:
        """Each time while leases are at stake. An idle worker says it once: its claims fail too, and say so."""
        if runs:
            logger.warning("the leases of %d runs could not be renewed, trying again: %s", runs, error)
        elif self._is_heard:
            logger.warning("the store does not hear from this worker, trying again: %s", error)
        self._is_heard = False

    def _of_those_in_hand(self, pulse: Heard, tenures: list[Tenure]) -> Heard:
        """What was said of claims that are still in hand: by now a run may be here with another claim, which is no
        business of this beat's."""
        present = {tenure.claim.id: tenure for tenure in self._roster.in_hand()}
        same = {tenure.claim.id for tenure in tenures if present.get(tenure.claim.id) is tenure}
        return pulse.but(lost=pulse.lost & same, stopping=pulse.stopping & same)

    def _give_up_what_lapses(self, worker_loop: asyncio.AbstractEventLoop, now: float) -> None:
        margin = self._lease.total_seconds() * MARGIN
        for tenure in self._roster.in_hand():
            if now > tenure.deadline - margin and tenure.reason is not Reason.LOST:
                logger.error("the run %r is stopped: its lease cannot be renewed", tenure.claim.key)
                _on(worker_loop, lambda tenure=tenure: tenure.stop(Reason.LOST))

    def stop(self) -> None:
        if self._stopping is not None:
            self._stopping.set()


def _on(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the worker's loop is closed: there is nobody left to tell
        loop.call_soon_threadsafe(call)


class PulseThread:
    """Runs a pulse in a thread with an event loop of its own, and watches the worker's loop from there."""

    def __init__(self, pulse: Pulse, roster: Roster) -> None:
        self._pulse = pulse
        self._roster = roster
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False
        self._finished = asyncio.Event()
        self._error: BaseException | None = None
        self._watchdog: Watchdog | None = None

    @property
    def blocked(self) -> Blockage | None:
        """What keeps the worker's loop from turning, if anything does."""
        return self._watchdog.blocked if self._watchdog is not None else None

    async def run(self) -> None:
        """Until stopped. What goes wrong in the thread is raised here."""
        worker_loop = asyncio.get_running_loop()
        watched = threading.get_ident()
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self._beat, worker_loop, watched), name="dovetail-pulse", daemon=True
        )
        self._thread.start()
        try:
            await self._finished.wait()
        finally:
            self.stop()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        self._stopped = True
        if self._loop is not None:
            _on(self._loop, self._pulse.stop)

    def _beat(self, worker_loop: asyncio.AbstractEventLoop, watched: int) -> None:
        try:
            asyncio.run(self._run(worker_loop, watched))
        except BaseException as error:
            self._error = error
        _on(worker_loop, self._finished.set)

    async def _run(self, worker_loop: asyncio.AbstractEventLoop, watched: int) -> None:
        self._loop = asyncio.get_running_loop()
        if self._stopped:
            return  # told to stop before the thread had begun
        self._watchdog = Watchdog(worker_loop, watched, self._roster, self._pulse.telemetry)
        watching = asyncio.create_task(self._watchdog.run(), name="dovetail-watchdog")
        try:
            await self._pulse.run(worker_loop)
        finally:
            watching.cancel()


class Watchdog:
    """Notices that the worker's event loop does not turn, and names the line that keeps it."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, thread: int, roster: Roster, telemetry: Telemetry | None = None
    ) -> None:
        self._loop = loop
        self._thread = thread
        self._roster = roster
        self.blocked: Blockage | None = None
        self._telemetry = telemetry or Telemetry()

    async def run(self) -> None:
        here = asyncio.get_running_loop()
        while True:
            turned = asyncio.Event()
            asked = time.monotonic()
            _on(self._loop, lambda turned=turned, asked=asked: self._turned(here, turned, asked))
            await asyncio.sleep(BLOCKED_AFTER)
            if not turned.is_set():
                self._report()
                await turned.wait()
                self.blocked = None
                logger.warning("the event loop turns again")

    def _turned(self, here: asyncio.AbstractEventLoop, turned: asyncio.Event, asked: float) -> None:
        self._telemetry.loop_turned(time.monotonic() - asked)
        _on(here, turned.set)

    def _report(self) -> None:
        frame = sys._current_frames().get(self._thread)  # pyright: ignore[reportPrivateUsage]
        if frame is None:
            return
        stack = traceback.extract_stack(frame)
        where = _own_line(stack)
        since = datetime.now(UTC) - timedelta(seconds=BLOCKED_AFTER)
        self.blocked = Blockage(f"{where.filename}:{where.lineno} in {where.name}", since, self._key_at_work())
        keys = ", ".join(repr(tenure.claim.key) for tenure in self._roster.running[:10])
        logger.warning(
            "the event loop is blocked at %s:%s in %s; running: %s. A blocking call belongs in a plain 'def' task,"
            " which runs in a thread. Leases are renewed meanwhile.\n%s",
            where.filename, where.lineno, where.name, keys, "".join(traceback.format_list(stack[-5:])),
        )  # fmt: skip

    def _key_at_work(self) -> str | None:
        """The key of the run whose task the loop is at, unless its body has begun a task of its own."""
        current = asyncio.current_task(self._loop)
        return next((tenure.claim.key for tenure in self._roster.running if tenure.task is current), None)


def _own_line(stack: traceback.StackSummary) -> traceback.FrameSummary:
    """The innermost line that is neither Python's own nor of an installed package; the innermost of all, if none is."""
    return next((frame for frame in reversed(stack) if not frame.filename.startswith(LIBRARIES)), stack[-1])
