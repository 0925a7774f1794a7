"""The intake: claims while there is room, then waits until there is reason to look again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from datetime import timedelta

from dovetail.clock import Clock
from dovetail.engine import Engine
from dovetail.errors import EngineUnavailable, OutcomeUnknown
from dovetail.model import Claimed, RunQuery, State
from dovetail.worker.logs import logger
from dovetail.worker.roster import Roster
from dovetail.worker.telemetry import Telemetry

FALLBACK_POLL = timedelta(seconds=5)
"""How long a hint that was lost can delay a run."""
FINISH_POLL = timedelta(milliseconds=200)
"""How often a worker that waits for the docket to be empty looks whether others have finished their part."""

LIVE = (State.SCHEDULED, State.QUEUED, State.WAITING, State.RUNNING)


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
    ) -> None:
        self._engine = engine
        self._roster = roster
        self._clock = clock
        self._worker = worker
        self._queues = queues
        self._lease = lease
        self._batch = batch
        self._reconnection_delay = reconnection_delay
        self._until_finished = until_finished
        self._once = once
        self._hint = asyncio.Event()
        self._stopping = False
        self.telemetry = Telemetry()
        self.moved = clock.monotonic()  # when a claim last came back: what health goes by

    def hint(self) -> None:
        """Something may be there to claim."""
        self._hint.set()

    def stop(self) -> None:
        self._stopping = True
        self._hint.set()
        self._roster.has_room.set()

    async def run(self) -> None:
        while not self._stopping:
            await self._roster.has_room.wait()
            room = min(self._roster.room, self._batch)
            if room <= 0:
                self._roster.has_room.clear()
                continue
            self._hint.clear()
            was_idle = self._roster.is_idle.is_set()
            claimed = await self._claim(room)
            if claimed is None or len(claimed.claims) == room or self._stopping:
                continue
            if self._once and not claimed.claims and self._roster.is_idle.is_set():
                if was_idle:
                    return
                continue  # a retry may have been put down just after this was answered
            if self._until_finished and await self._is_finished():
                return
            await self._reason_to_look(claimed.wait)

    async def _claim(self, room: int) -> Claimed | None:
        sent = self._clock.monotonic()
        try:
            claimed = await self._engine.claim(self._worker, room, queues=self._queues, lease=self._lease)
        except (EngineUnavailable, OutcomeUnknown) as error:
            logger.warning("cannot claim, trying again in %s: %s", self._reconnection_delay, error)
            self.telemetry.disrupted()
            await self._clock.wait(self._hint, self._reconnection_delay)
            return None
        self.moved = self._clock.monotonic()
        self.telemetry.claimed(claimed.claims, self.moved - sent)
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
        """Whether nothing is left on the docket, here or elsewhere."""
        if not self._roster.is_idle.is_set():
            return False
        try:
            page = await self._engine.find(RunQuery(states=LIVE, limit=1))
        except (EngineUnavailable, OutcomeUnknown):
            return False
        return not page.items and self._roster.is_idle.is_set()
