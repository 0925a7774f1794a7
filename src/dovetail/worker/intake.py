"""The intake: claims while there is room, then waits until there is reason to look again."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

from dovetail.clock import Clock
from dovetail.engine import Engine
from dovetail.errors import EngineUnavailable, OutcomeUnknown
from dovetail.model import Claim, Claimed
from dovetail.queues import Queue
from dovetail.schedules import QUEUE
from dovetail.worker.backoff import spread
from dovetail.worker.brake import Brake
from dovetail.worker.leftovers import Leftovers
from dovetail.worker.logs import logger
from dovetail.worker.roster import Roster
from dovetail.worker.sharing import Sharing
from dovetail.worker.telemetry import Telemetry

FALLBACK_POLL = timedelta(seconds=5)
"""How long a hint that was lost can delay a run."""
FINISH_POLL = timedelta(milliseconds=200)
"""How often a worker that waits for the docket to be empty looks whether others have finished their part."""

SCHEDULES_AT_LEAST = 1.0
"""Seconds after which a worker of some queues that always finds enough in them looks after schedules as well."""


class Intake:
    """Keeps the roster full."""

    def __init__(
        self,
        engine: Engine,
        roster: Roster,
        clock: Clock,
        *,
        worker: str,
        queues: Sequence[str],
        lease: timedelta,
        batch: int,
        reconnection_delay: timedelta,
        until_finished: bool,
        once: bool = False,
        shares: Sequence[Queue] = (),
        ageing: timedelta | None = None,
    ) -> None:
        self._engine = engine
        self._roster = roster
        self._clock = clock
        self._worker = worker
        self._scope = Scope(queues, clock)
        self._leftovers = Leftovers(engine, queues)
        self._lease = lease
        self._ageing = ageing
        self._batch = batch
        self._reconnection_delay = reconnection_delay
        self._until_finished = until_finished
        self._once = once
        self._hint = asyncio.Event()
        self._is_news = True  # a queue that had nothing may have something
        self._stopping = False
        self._sharing = Sharing((*shares, Queue(QUEUE))) if shares else None
        if self._sharing is not None:
            roster.freed = self._freed
        self.brake = Brake(clock)
        self._stopped = asyncio.Event()
        self.telemetry = Telemetry()
        self.moved = clock.monotonic()  # when a claim last came back: what health goes by
        self.tried = self.moved  # the same, or when it last failed
        self.has_claimed = False

    def hint(self) -> None:
        """Something may be there to claim."""
        self._is_news = True
        self._hint.set()

    def _freed(self, claim: Claim) -> None:
        """A queue that was at its bound is so no more."""
        if self._sharing is not None and self._sharing.is_bounded(claim.queue):
            self._hint.set()

    def stop(self) -> None:
        self._stopping = True
        self._stopped.set()
        self._hint.set()
        self._roster.has_room.set()

    async def run(self) -> None:
        while not self._stopping:
            await self._roster.has_room.wait()
            if pause := self.brake.pause:
                await self._clock.wait(self._stopped, pause)
                continue
            room = min(self._roster.room, self._batch)
            if room <= 0:
                self._roster.has_room.clear()
                continue
            self._hint.clear()
            was_idle = self._roster.is_idle.is_set()
            claimed = await (self._claim_any(room) if self._sharing is None else self._share_out(room))
            if claimed is None or len(claimed.claims) == room or self._stopping:
                continue
            if self._once and not claimed.claims and self._roster.is_idle.is_set():
                if was_idle:
                    return
                continue  # a retry may have been put down just after this was answered
            if self._until_finished and await self._is_finished():
                return
            await self._reason_to_look(claimed.wait)

    async def _claim_any(self, room: int) -> Claimed | None:
        claimed = await self._claim(room, self._scope.queues())
        self._scope.is_enough = claimed is not None and len(claimed.claims) == room
        return claimed

    async def _share_out(self, room: int) -> Claimed | None:
        """Ask queue by queue, by their shares. What one does not use goes to the others."""
        assert self._sharing is not None  # noqa: S101 - nobody else asks
        sharing, claims = self._sharing, list[Claim]()
        is_news, self._is_news = self._is_news, False
        sharing.begin(self._clock.monotonic(), anew=is_news or self._until_finished or self._once)
        while portions := sharing.portions(room - len(claims), Counter(claim.queue for claim in self._roster.claims)):
            for queue, want in portions.items():
                claimed = None if self._stopping else await self._claim(want, (queue,))
                if claimed is None:
                    return None
                sharing.brought(queue, want, claimed, self._clock.monotonic())
                claims += claimed.claims
        return Claimed(claims, sharing.wait(self._clock.monotonic()))

    async def _claim(self, room: int, queues: Sequence[str]) -> Claimed | None:
        sent = self._clock.monotonic()
        try:
            claimed = await self._engine.claim(
                self._worker, room, queues=queues, lease=self._lease, ageing=self._ageing
            )
        except (EngineUnavailable, OutcomeUnknown) as error:
            self.tried = self._clock.monotonic()
            logger.warning("cannot claim, trying again in %s: %s", self._reconnection_delay, error)
            self.telemetry.disrupted()
            await self._clock.wait(self._hint, spread(self._reconnection_delay))
            return None
        self.moved = self.tried = self._clock.monotonic()
        self.has_claimed = True
        self.telemetry.claimed(claimed, self.moved - sent)
        for task in claimed.poisoned:
            logger.error("a run of %r has crashed its workers too often, and has failed as poisoned", task)
        # The lease counts from before the request was sent, so that ours never seems longer than the store's.
        self._roster.claimed(claimed.claims, sent + self._lease.total_seconds(), self.moved - sent)
        return claimed

    async def _reason_to_look(self, wait: timedelta | None) -> None:
        ends = self._until_finished or self._once
        longest = FINISH_POLL if ends else FALLBACK_POLL * random.uniform(0.8, 1.2)
        if ends and not self._roster.is_idle.is_set():
            # What runs here may be the last: its end is a reason to look as well.
            waiting = [asyncio.ensure_future(each.wait()) for each in (self._hint, self._roster.is_idle)]
            sleeping = asyncio.ensure_future(self._clock.rest(None, longest, wait))
            await asyncio.wait([*waiting, sleeping], return_when=asyncio.FIRST_COMPLETED)
            for each in (*waiting, sleeping):
                each.cancel()
            return
        await self._clock.rest(self._hint, longest, wait)

    async def _is_finished(self) -> bool:
        """Whether nothing is left to wait for, here or elsewhere."""
        if not self._roster.is_idle.is_set():
            return False
        try:
            is_anything_due = await self._leftovers.is_anything_due()
        except (EngineUnavailable, OutcomeUnknown):
            return False
        return not is_anything_due and self._roster.is_idle.is_set()


class Scope:
    """The queues that a claim names. Schedules are looked after by every worker, whatever its queues; but a store finds
    the first of one queue sooner than of two, so one that is busy names their queue now and then."""

    def __init__(self, queues: Sequence[str], clock: Clock) -> None:
        self._own = queues
        self._all = (*queues, QUEUE) if queues else ()
        self._clock = clock
        self._looked = -SCHEDULES_AT_LEAST
        self.is_enough = False  # whether the last claim brought as much as there was room for

    def queues(self) -> Sequence[str]:
        now = self._clock.monotonic()
        if self.is_enough and now - self._looked < SCHEDULES_AT_LEAST:
            return self._own
        self._looked = now
        return self._all
