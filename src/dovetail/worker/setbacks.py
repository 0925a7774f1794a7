"""Setbacks: what may pass, and costs a run no attempt; so it is bounded."""

from __future__ import annotations

from datetime import timedelta

from dovetail.model import Claim

LONGEST = timedelta(seconds=10)
"""How long a run waits at most before it is tried again."""
MOST = 20
"""How many setbacks a run may have on one worker before it has failed."""
REMEMBERED = 10_000


class Setbacks:
    """How many setbacks runs have had here."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def forget(self, claim: Claim) -> None:
        self._counts.pop(claim.id, None)

    def pause(self, claim: Claim) -> timedelta | None:
        """How long the run waits after one more; None if that was one too many."""
        count = self._counts.pop(claim.id, 0) + 1
        if count >= MOST:
            return None
        self._counts[claim.id] = count
        if len(self._counts) > REMEMBERED:
            del self._counts[next(iter(self._counts))]
        return wait_after(count)


def wait_after(count: int) -> timedelta:
    """The first is tried again at once: a connection broke. Then it takes longer each time."""
    return min(timedelta(milliseconds=50) * (2 ** (count - 1) - 1), LONGEST)
