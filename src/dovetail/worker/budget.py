"""A budget of runs: for a worker that is to run some keys only so many times."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.model import Requeue, Settle, State, Verdict
from dovetail.worker.roster import Attend, Tenure


class Budget:
    """How many more times each of some keys may run. A key that has none left is cancelled, and not followed up."""

    def __init__(self, runs: Mapping[str, int]) -> None:
        self._left = dict(runs)

    def around(self, attend: Attend) -> Attend:
        async def spend(tenure: Tenure) -> Verdict | None:
            key = tenure.claim.key
            if key not in self._left:
                return await attend(tenure)
            if self._left[key] <= 0:
                return Settle(tenure.claim, State.CANCELLED)
            self._left[key] -= 1
            return self._last_word(await attend(tenure))

        return spend

    def _last_word(self, verdict: Verdict | None) -> Verdict | None:
        """A verdict without what would run a spent key again."""
        if isinstance(verdict, Requeue) and verdict.attempt == verdict.claim.attempt:
            self._left[verdict.claim.key] += 1  # handed back: it did not count as a run
            return verdict
        if verdict is None or self._left[verdict.claim.key] > 0:
            return verdict
        if isinstance(verdict, Requeue):
            return Settle(verdict.claim, State.CANCELLED, failure=verdict.failure)
        return verdict.but(then=tuple(run for run in verdict.then if self._left.get(run.key, 1) > 0))
