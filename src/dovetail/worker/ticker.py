"""The ticker: schedules whose time has come. It needs no task's code: what they place is data."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

from dovetail.clock import Clock, from_microseconds
from dovetail.codec import Codec
from dovetail.engine import Engine
from dovetail.errors import EngineUnavailable, OutcomeUnknown, UnknownParent
from dovetail.failures import failure_of
from dovetail.model import Claim, Requeue, RunQuery, Settle, State, Verdict
from dovetail.schedules.definition import TASK, Definition
from dovetail.schedules.keeping import LIVE
from dovetail.schedules.ticking import tick
from dovetail.worker.logs import logger
from dovetail.worker.roster import Attend, Tenure
from dovetail.worker.telemetry import Telemetry, carried_on

PUT_BACK = timedelta(seconds=5)
"""How long a schedule that this worker cannot read waits for another worker, or for a newer version of this one."""

PAUSE = timedelta(seconds=1)
"""From one look at a store that is away to the next."""


class Ticker:
    """Judges the claims of schedules, and leaves all others to the runner."""

    def __init__(self, engine: Engine, codec: Codec, clock: Clock) -> None:
        self._engine = engine
        self._codec = codec
        self._clock = clock
        self.telemetry = Telemetry()

    def around(self, attend: Attend) -> Attend:
        # Not a coroutine of its own around that of every run: next to none is a schedule.
        def tick_or_attend(tenure: Tenure) -> Coroutine[Any, Any, Verdict | None]:
            return self._tick(tenure.claim) if tenure.claim.task == TASK else attend(tenure)

        return tick_or_attend

    async def _tick(self, claim: Claim) -> Verdict:
        return self.verdict(claim, await self._predecessor(claim))

    async def _predecessor(self, claim: Claim) -> str | None:
        """The run of the time before, if it is not over and its schedule lets one run at a time."""
        last_key = self._last_key(claim)
        if last_key is None:
            return None
        while True:
            try:
                found = await self._engine.find(RunQuery(keys=(last_key,), states=LIVE))
            except (EngineUnavailable, OutcomeUnknown) as error:
                logger.warning("%r cannot tell whether its last run is over, trying again: %s", claim.key, error)
                await self._clock.sleep(PAUSE)
            else:
                return next((run.id for run in found.items), None)

    def _last_key(self, claim: Claim) -> str | None:
        """The key of the run of the time before, which may be long over, if the schedule lets one run at a time."""
        try:
            schedule = Definition.read(self._codec, claim.payload)
        except Exception:
            return None  # the verdict speaks of it
        return schedule.last_key if schedule.overlap == "queue" else None

    def verdict(self, claim: Claim, predecessor: str | None = None) -> Verdict:
        """The runs that are due and the next tick, in one unit."""
        try:
            schedule = Definition.read(self._codec, claim.payload)
            ticked = tick(schedule, from_microseconds(self._clock.microseconds()), predecessor)
            following = () if ticked.following is None else (ticked.following.waiting(self._codec),)
        except Exception:
            # No schedule ends because of an error of ours, or of a time zone that is not known here.
            logger.exception("%r cannot go on here; it is put back for %s", claim.key, PUT_BACK)
            return Requeue(claim, claim.attempt, PUT_BACK)
        settle = Settle(claim, State.COMPLETED, then=(*ticked.runs, *following))
        if (span := self.telemetry.tick(claim, ticked.runs)) is None:
            return settle
        with span:
            return carried_on(settle)

    def given_up(self, claim: Claim, error: Exception) -> Verdict:
        """What is said of a claim whose end the store does not take: a run fails, a schedule tries again later."""
        if isinstance(error, UnknownParent) and claim.task == TASK:
            return self.verdict(claim)  # the run that was to be waited for is over by now, and its record gone
        if claim.task == TASK:
            return Requeue(claim, claim.attempt, PUT_BACK)
        return Settle(claim, State.FAILED, failure=failure_of(error))

    def instead_of_handing_back(self, verdict: Verdict) -> Verdict:
        """A tick takes no time, so it is never handed back, nor put off as one that may have crashed its workers: if it
        was altered meanwhile it would give way, and its time would be lost. There is no time left to look for the run
        before it, so that is named by its key: the store knows whether it is over, and `given_up` whether it is gone.
        """
        claim = verdict.claim
        is_handed_back = isinstance(verdict, Requeue) and claim.task == TASK
        return self.verdict(claim, self._last_key(claim)) if is_handed_back else verdict
