"""The tally: what a worker has seen to its end, for those who watch it."""

from __future__ import annotations

from dovetail.model import Settle, State, Verdict

MOST_QUEUES = 100
"""Queues that are counted each for itself: the tally goes with every heartbeat."""


class Tally:
    """Counts ends by queue. It only grows, so that whoever looks twice knows the rate."""

    def __init__(self) -> None:
        self.ended: dict[str, int] = {}
        self.failed = 0

    def note(self, verdict: Verdict | None) -> None:
        if not isinstance(verdict, Settle):
            return
        queue = verdict.claim.queue
        if queue in self.ended:
            self.ended[queue] += 1
        elif len(self.ended) < MOST_QUEUES:
            self.ended[queue] = 1
        if verdict.state is State.FAILED:
            self.failed += 1
