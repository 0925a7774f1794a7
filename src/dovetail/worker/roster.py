"""The roster: which runs this worker has in hand, and what has been said about each.

Beside the runs that are at work there may be a few in reserve: claimed, and started as soon as a slot is free. They
bridge the time that a claim takes, and only when runs are so short that it matters: `Pace` says how many.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from typing import Any

from dovetail.model import Claim, Requeue, Settle, State, Verdict
from dovetail.worker.logs import logger

SUSPECT = 2
"""Crashes after which a run may be what crashes its workers: with one more it fails as poisoned."""
QUARANTINE = 60.0
"""Seconds after which a suspect that runs is no longer thought to be one."""
APART = timedelta(seconds=5)
"""How long a suspect is put off, more or less, because another one runs."""


class Reason(Enum):
    """Why a body is being stopped."""

    STOP = auto()  # somebody cancelled the run
    LOST = auto()  # the lease is gone, or about to be: nothing it says will count
    SHUTDOWN = auto()  # the worker stops: the run goes elsewhere


@dataclass(slots=True, eq=False)
class Tenure:
    """A claim in hand."""

    claim: Claim
    deadline: float  # on the monotonic clock: when the lease ends unless it is renewed
    reason: Reason | None = None
    task: asyncio.Task[None] | None = None
    cancelled: float | None = None  # since when its body has been cancelled, and goes on
    is_deaf: bool = False  # it has had its time to heed that
    has_begun: bool = False  # the task's own code was called

    def stop(self, reason: Reason) -> None:
        """Ask the body to stop, once. The first reason stands, unless the lease is lost, which overrules all."""
        if self.reason is reason or self.reason is Reason.LOST:
            return
        if self.reason is None or reason is Reason.LOST:
            self.reason = reason
        # A task that is cancelled before it began would never run, and never free its slot.
        if self.task is not None and not _is_unbegun(self.task):
            self.task.cancel()

    def unbegun(self) -> Verdict | None:
        """The verdict on a claim that was stopped before its body began."""
        if self.reason is Reason.STOP:
            return Settle(self.claim, State.CANCELLED)
        if self.reason is Reason.SHUTDOWN:
            return Requeue(self.claim, self.claim.attempt)
        return None


def _is_unbegun(task: asyncio.Task[None]) -> bool:
    coroutine = task.get_coro()
    return inspect.iscoroutine(coroutine) and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED


Attend = Callable[[Tenure], Coroutine[Any, Any, Verdict | None]]


class Roster:
    """Starts claims, and knows them until they are settled."""

    def __init__(self, concurrency: int, attend: Attend, settle: Callable[[Verdict], None], name: str) -> None:
        self.concurrency = concurrency
        self.attended = 0
        self.has_room = asyncio.Event()
        self.has_room.set()
        self.is_idle = asyncio.Event()
        self.is_idle.set()
        self.freed: Callable[[Claim], None] = lambda _: None  # told of each claim that has left `claims`, or its slot
        self._attend = attend
        self._settle = settle
        self._name = name
        self._running: dict[str, Tenure] = {}
        self._reserve: dict[str, Tenure] = {}
        self._settling: dict[str, Tenure] = {}
        self._aside: set[Tenure] = set()  # bodies that were cancelled and go on: they have no slot any more
        self._pace = Pace()
        self._suspects: dict[str, float] = {}  # those that run, and since when
        self._written = asyncio.Event()
        self.context = contextvars.copy_context()  # what every body begins with, whoever starts it

    @property
    def room(self) -> int:
        """How many more claims are wanted."""
        return self.concurrency - len(self._running) + self._pace.foresight(self.concurrency) - len(self._reserve)

    @property
    def running(self) -> list[Tenure]:
        return list(self._running.values())

    @property
    def claims(self) -> list[Claim]:
        """What is at work, in reserve or set aside: a body that goes on without a slot uses what it used before."""
        return [tenure.claim for tenure in (*self._running.values(), *self._reserve.values(), *self._aside)]

    @property
    def deaf(self) -> list[Tenure]:
        """Bodies that were cancelled and go on, with a slot or without. May be asked from another thread."""
        return [tenure for tenure in (*list(self._running.values()), *list(self._aside)) if tenure.is_deaf]

    def in_hand(self) -> list[Tenure]:
        """Everything whose lease has to be renewed. May be asked from another thread."""
        aside = [tenure for tenure in list(self._aside) if tenure.reason is not Reason.LOST]
        return [*list(self._running.values()), *aside, *list(self._reserve.values()), *list(self._settling.values())]

    def claimed(self, claims: Sequence[Claim], deadline: float, took: float) -> None:
        """Take in what a claim brought; it took so many seconds."""
        if claims:
            self._pace.claim_took(took)
            self.is_idle.clear()
        for claim in claims:
            tenure = Tenure(claim, deadline)
            if len(self._running) < self.concurrency:
                self._start(tenure)
            else:
                self._reserve[claim.id] = tenure
        if self._reserve:
            asyncio.get_running_loop().call_later(Pace.LONGEST * 2, self._release_overdue, list(self._reserve))
        if self.room <= 0:
            self.has_room.clear()

    def _release_overdue(self, run_ids: list[str]) -> None:
        """Hand back what has been in reserve for too long: runs are not as short as they seemed, and another worker may
        be free."""
        overdue = [run_id for run_id in run_ids if run_id in self._reserve]
        for run_id in overdue:
            self.stop(run_id, Reason.SHUTDOWN)
        if overdue:
            self._pace.run_took(Pace.LONGEST)

    def _start(self, tenure: Tenure) -> None:
        self._running[tenure.claim.id] = tenure
        loop = asyncio.get_running_loop()
        name = f"{self._name} - task:{tenure.claim.key}"
        tenure.task = loop.create_task(self._see_through(tenure), name=name, context=self.context.copy())

    async def _see_through(self, tenure: Tenure) -> None:
        """Run a claim to its verdict. Whatever happens, the slot is free afterwards."""
        claim = tenure.claim
        verdict: Verdict | None = None
        started = time.monotonic()
        try:
            if tenure.reason:
                verdict = tenure.unbegun()
            else:
                verdict = await (self._attend if claim.crashes < SUSPECT else self._attend_apart)(tenure)
        except BaseException:
            # The runner lets nothing through; this is for errors of our own, so that one run cannot stop the rest.
            logger.exception("the run %r ended without a verdict; its lease will lapse", claim.key)
        finally:
            self._pace.run_took(time.monotonic() - started)
            self.attended += 1
            if self._running.get(claim.id) is tenure:
                del self._running[claim.id]
            self._aside.discard(tenure)
            if verdict is not None:
                self._judged(tenure, verdict)
            self._slot_is_free(claim)

    def _slot_is_free(self, claim: Claim) -> None:
        self._start_reserve()
        self.has_room.set()
        self.freed(claim)
        self._note_idle()

    def set_aside(self, tenure: Tenure) -> bool:
        """Let others have the slot of a body that was cancelled and goes on. Its lease is renewed all the same: as long
        as it is at it, the run must not start elsewhere. There may be as many of them as there are slots."""
        if len(self._aside) >= self.concurrency or self._running.get(tenure.claim.id) is not tenure:
            return False
        self._aside.add(self._running.pop(tenure.claim.id))
        self._slot_is_free(tenure.claim)
        return True

    async def _attend_apart(self, tenure: Tenure) -> Verdict | None:
        """Run a suspect, and hand others back meanwhile: whoever brings the process down then condemns only himself."""
        now = time.monotonic()
        if any(now - since < QUARANTINE for since in self._suspects.values()):
            return Requeue(tenure.claim, tenure.claim.attempt, APART * random.uniform(0.5, 1.5))
        self._suspects[tenure.claim.id] = now
        try:
            await self._others_are_away()
            return tenure.unbegun() if tenure.reason else await self._attend(tenure)
        except asyncio.CancelledError:
            return tenure.unbegun()
        finally:
            del self._suspects[tenure.claim.id]

    async def _others_are_away(self) -> None:
        """Wait until the store knows that the other suspects of the same claim were handed back."""
        for each in list(self._reserve.values()):
            if each.claim.crashes >= SUSPECT:
                self.stop(each.claim.id, Reason.SHUTDOWN)
        with suppress(TimeoutError):
            async with asyncio.timeout(QUARANTINE):
                await asyncio.sleep(0)  # those that came along have to learn of it first
                while any(each.claim.crashes >= SUSPECT for each in self._settling.values()):
                    self._written.clear()
                    await self._written.wait()

    def _start_reserve(self) -> None:
        while self._reserve and len(self._running) < self.concurrency:
            self._start(self._reserve.pop(next(iter(self._reserve))))

    def _judged(self, tenure: Tenure, verdict: Verdict) -> None:
        self._settling[tenure.claim.id] = tenure
        self.is_idle.clear()
        self._settle(verdict if tenure.has_begun else _unbegun(verdict))

    def settled(self, claim: Claim) -> None:
        """The store has heard the verdict."""
        tenure = self._settling.get(claim.id)
        if tenure is not None and tenure.claim.epoch == claim.epoch:
            del self._settling[claim.id]
        if self._suspects:
            self._written.set()
        self._note_idle()

    def stop(self, run_id: str, reason: Reason) -> None:
        """Stop a run, or keep one that is in reserve from starting."""
        reserved = self._reserve.pop(run_id, None)
        tenure = reserved or self._running.get(run_id) or self._set_aside_under(run_id)
        if tenure is None:
            return
        tenure.stop(reason)
        verdict = tenure.unbegun() if reserved else None
        if verdict is not None:
            self._judged(tenure, verdict)
        if reserved:
            self.freed(reserved.claim)
        self._note_idle()

    def _set_aside_under(self, run_id: str) -> Tenure | None:
        return next((tenure for tenure in self._aside if tenure.claim.id == run_id), None)

    def stop_all(self, reason: Reason) -> list[asyncio.Task[None]]:
        """Stop whatever is at work, with a slot or without; the asyncio tasks that end when it has."""
        tenures = [*self._running.values(), *self._aside]
        for tenure in tenures:
            tenure.stop(reason)
        return [tenure.task for tenure in tenures if tenure.task is not None]

    def release_reserve(self) -> None:
        """Hand back what has not started: it costs no attempt."""
        for run_id in list(self._reserve):
            self.stop(run_id, Reason.SHUTDOWN)

    def _note_idle(self) -> None:
        if not self._running and not self._reserve and not self._settling:
            self.is_idle.set()


def _unbegun(verdict: Verdict) -> Verdict:
    """The verdict on a run whose body was never called, for whatever reason: it has started nothing, and no window
    counts it. One that completed all the same, as a tick does, did what was to be done."""
    has_completed = isinstance(verdict, Settle) and verdict.state is State.COMPLETED
    return verdict if has_completed else verdict.but(unbegun=True)


class Pace:
    """How long runs and claims take, of late; and so, how many runs would end while the next claim is under way."""

    LONGEST = 0.01
    """Seconds that a run may take for others to be held in reserve behind it."""
    MOST = 100

    def __init__(self) -> None:
        self._run = self.LONGEST
        self._claim = 0.0

    def run_took(self, seconds: float) -> None:
        # A long run is noticed at once, short ones have to prove themselves.
        self._run = seconds if seconds > self._run else self._run * 0.95 + seconds * 0.05

    def claim_took(self, seconds: float) -> None:
        self._claim = self._claim * 0.8 + min(seconds, self.LONGEST) * 0.2

    def foresight(self, concurrency: int) -> int:
        """How many claims to hold in reserve: none, unless runs are short."""
        if self._run >= self.LONGEST:
            return 0
        return min(int(concurrency * self._claim / max(self._run, 0.0001)), self.MOST)
