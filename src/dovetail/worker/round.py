"""One round: for a worker that runs what is due and then ends."""

from __future__ import annotations

from datetime import timedelta

from dovetail.injection import current_execution
from dovetail.model import Claim, Requeue, Settle, Verdict
from dovetail.worker.roster import Attend, Tenure

NEXT_ROUND = timedelta(seconds=1)
"""How long a run that has had its turn is put off, so that the round can end."""


class Round:
    """Counts what is run, and sees to an end: a key has one run in a round, with all its attempts that are due."""

    def __init__(self) -> None:
        self.ran = 0
        self._latest: dict[str, tuple[str, int]] = {}  # by key: the run that had its turn, and which attempt of it

    def around(self, attend: Attend) -> Attend:
        async def take_turn(tenure: Tenure) -> Verdict | None:
            claim = tenure.claim
            if self._has_had_its_turn(claim):
                return Requeue(claim, claim.attempt, NEXT_ROUND)
            self._latest[claim.key] = (claim.id, claim.attempt)
            before = current_execution.get(None)
            verdict = await attend(tenure)
            # Only an attempt has an execution: what is stricken, unknown here or unreadable never becomes one.
            self.ran += current_execution.get(None) is not before
            if _is_done_for_good(verdict):
                del self._latest[claim.key]
            return verdict

        return take_turn

    def _has_had_its_turn(self, claim: Claim) -> bool:
        """A perpetual task goes on under its key, and what was snoozed or handed back has no new attempt."""
        run_id, attempt = self._latest.get(claim.key, (claim.id, 0))
        return run_id != claim.id or claim.attempt <= attempt


def _is_done_for_good(verdict: Verdict | None) -> bool:
    """Whether nothing can come again under a key: a docket may be large, and what need not be known is forgotten."""
    return isinstance(verdict, Settle) and not verdict.then and verdict.claim.key == verdict.claim.id
