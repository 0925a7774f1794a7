"""The settler: hands verdicts to the engine, as many at a time as came while the last write was under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta

from dovetail.clock import Clock
from dovetail.engine import Engine
from dovetail.errors import EngineUnavailable, OutcomeUnknown
from dovetail.failures import failure_of
from dovetail.model import Claim, Finished, Settle, State, Verdict
from dovetail.worker.logs import logger
from dovetail.worker.telemetry import Telemetry

FIRST_PAUSE = timedelta(milliseconds=100)
LONGEST_PAUSE = timedelta(seconds=2)


class Settler:
    """Gathers verdicts for as long as one write is in flight, then writes them all: no timer when idle, large batches
    under load. Finishing is idempotent, so a write that failed is simply done again."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._verdicts: list[Verdict] = []
        self._something = asyncio.Event()
        self._closing = False
        self.telemetry = Telemetry()
        self.settled: Callable[[Claim], None] = lambda claim: None
        self.give_up: Callable[[Claim, Exception], Verdict] = _failed

    def put(self, verdict: Verdict) -> None:
        self._verdicts.append(verdict)
        self._something.set()

    def close(self) -> None:
        """Let `run` end once everything is written."""
        self._closing = True
        self._something.set()

    async def run(self) -> None:
        while True:
            await self._something.wait()
            self._something.clear()
            batch, self._verdicts = self._verdicts, []
            if batch:
                await self._write(batch)
            if self._closing and not self._verdicts:
                return
            if self._verdicts:
                self._something.set()

    async def _write(self, batch: list[Verdict]) -> None:
        pause = FIRST_PAUSE
        while True:
            sent = self._clock.monotonic()
            try:
                answers = await self._engine.finish(batch)
            except (EngineUnavailable, OutcomeUnknown) as error:
                logger.warning("%d outcomes could not be written, trying again: %s", len(batch), error)
                self.telemetry.disrupted()
                await self._clock.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            except Exception:
                await self._write_singly(batch)
                return
            else:
                self.telemetry.finished(batch, answers, self._clock.monotonic() - sent)
                self._note(batch, answers)
                return

    async def _write_singly(self, batch: list[Verdict]) -> None:
        """One verdict upsets the engine: find it, so that the others are not lost with it."""
        for verdict in batch:
            try:
                answers = await self._engine.finish([verdict])
            except Exception as error:
                await self._give_up(verdict.claim, error)
            else:
                self._note([verdict], answers)

    async def _give_up(self, claim: Claim, error: Exception) -> None:
        """Rather than let a run be started again and again for an end that can never be written."""
        instead = self.give_up(claim, error)
        # One that completes all the same, as a tick does without the run it was to wait for, is nothing to report.
        if not isinstance(instead, Settle) or instead.state is not State.COMPLETED:
            logger.error("the outcome of the run %r cannot be written", claim.key, exc_info=error)
        try:
            await self._engine.finish([instead])
        except Exception as again:
            logger.error("nor can it be given up, and its lease will lapse: %s", again)
        self.settled(claim)

    def _note(self, batch: Sequence[Verdict], answers: Sequence[Finished]) -> None:
        for verdict, answer in zip(batch, answers, strict=True):
            if answer is Finished.FENCED:
                logger.warning(
                    "the outcome of the run %r came too late: its lease had lapsed, and the claim is void",
                    verdict.claim.key,
                )
            self.settled(verdict.claim)


def _failed(claim: Claim, error: Exception) -> Verdict:
    return Settle(claim, State.FAILED, failure=failure_of(error))
