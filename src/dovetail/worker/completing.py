"""Transactional completion: the verdict on a run that wrote in a transaction is committed together with that."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from dovetail.engine import Transaction
from dovetail.errors import EngineUnavailable, OutcomeUnknown
from dovetail.failures import failure_of
from dovetail.injection import open_transactions
from dovetail.model import Claim, Finished, Requeue, Settle, State, Verdict
from dovetail.worker.logs import logger
from dovetail.worker.roster import Attend, Tenure
from dovetail.worker.setbacks import Setbacks
from dovetail.worker.tally import Tally
from dovetail.worker.telemetry import Telemetry

T = TypeVar("T")


def completing(attend: Attend, telemetry: Telemetry, tally: Tally) -> Attend:
    """See to the transactions of each run, and count how it ended."""
    setbacks = Setbacks()

    async def complete(tenure: Tenure) -> Verdict | None:
        opened: list[Transaction] = []
        open_transactions.set(opened)
        verdict: Verdict | None = None
        try:
            verdict = await attend(tenure)
            tally.note(verdict)
        finally:
            counts = isinstance(verdict, Settle) and verdict.state is State.COMPLETED
            if opened and not counts:
                await _landed(opened[0].abandon())
        if opened and isinstance(verdict, Settle) and counts:
            return await _conclude(opened[0], verdict, setbacks, telemetry)
        return verdict

    return complete


async def _landed(ending: Coroutine[Any, Any, T]) -> T:
    """The end of a transaction, which must land or fail as a whole: whoever stops the run now waits for it."""
    landing = asyncio.ensure_future(ending)
    while not landing.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(landing)
    return landing.result()


async def _conclude(
    transaction: Transaction, verdict: Settle, setbacks: Setbacks, telemetry: Telemetry
) -> Verdict | None:
    """None if the store has heard the verdict; otherwise what is to be said instead."""
    claim = verdict.claim
    try:
        answer = await _landed(transaction.finish(verdict))
    except (EngineUnavailable, OutcomeUnknown) as error:
        logger.warning("the transaction of the run %r may not have been committed: %s", claim.key, error)
        # If it was, the run is over, and this is refused. If not, nothing of it counts, and it goes again at no cost.
        pause = setbacks.pause(claim)
        return _failed(claim, error) if pause is None else Requeue(claim, claim.attempt, pause)
    except Exception as error:
        logger.error("the transaction of the run %r cannot be committed", claim.key, exc_info=error)
        setbacks.forget(claim)
        return _failed(claim, error)
    setbacks.forget(claim)
    telemetry.answered(claim, answer)
    if answer is Finished.FENCED:
        logger.warning("what the run %r wrote was rolled back: its lease had lapsed, and the claim is void", claim.key)
    return None


def _failed(claim: Claim, error: Exception) -> Verdict:
    return Settle(claim, State.FAILED, failure=failure_of(error))
