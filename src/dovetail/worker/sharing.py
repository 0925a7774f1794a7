"""Sharing: whose turn it is when a worker takes several queues, each with a weight and perhaps a concurrency.

Each queue has a tag: what it has had of late, in starts divided by its weight. The next start is for the lowest tag. A
queue that had nothing, or was at its bound, goes on from where the others are: it is not paid for the past.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from datetime import timedelta

from dovetail.model import Claimed
from dovetail.queues import Queue

STALE = 5.0
"""Seconds for which a queue that had nothing is believed to have nothing, unless there is a hint."""
SLACK = 0.001
"""Seconds by which a sleeper may wake too early."""


class Sharing:
    """Says how many runs of which queue to ask for. It does no I/O and looks at no clock."""

    def __init__(self, queues: Sequence[Queue]) -> None:
        self._queues = queues
        self._bounds = {queue.name: queue.concurrency for queue in queues if queue.concurrency is not None}
        self._weights = {queue.name: queue.weight for queue in queues}
        self._tags = dict.fromkeys(self._weights, 0.0)
        self._reached = 0.0  # the tag of the last start
        self._dry: dict[str, float] = {}  # queues that had less than was asked for, until when nothing is expected
        self._looked = -math.inf

    def begin(self, now: float, *, anew: bool) -> None:
        """A look begins. Queues that had nothing are asked again when that was long ago, or something may be new."""
        if anew or now - self._looked >= STALE:
            self._dry.clear()
            self._looked = now
        self._dry = {name: until for name, until in self._dry.items() if until - now > SLACK}

    def portions(self, room: int, held: Mapping[str, int]) -> dict[str, int]:
        """How many to ask of which queue; `held` is how many runs of each are in hand."""
        free = {name: self._free(name, held) for name in self._tags if name not in self._dry}
        open_ones = [name for name, count in free.items() if count > 0]
        for name in open_ones:
            self._tags[name] = max(self._tags[name], self._reached)
        line = [(self._tags[name], number, name) for number, name in enumerate(open_ones)]
        heapq.heapify(line)
        portions: dict[str, int] = {}
        while line and room > 0:
            tag, number, name = line[0]
            portions[name] = portions.get(name, 0) + 1
            room -= 1
            if portions[name] < free[name]:
                heapq.heapreplace(line, (tag + 1 / self._weights[name], number, name))
            else:
                heapq.heappop(line)
        return portions

    def _free(self, name: str, held: Mapping[str, int]) -> float:
        return self._bounds.get(name, math.inf) - held.get(name, 0)

    def brought(self, name: str, want: int, claimed: Claimed, now: float) -> None:
        """A queue was asked for so many, and gave these."""
        count, weight = len(claimed.claims), self._weights[name]
        if count:
            self._reached = max(self._reached, self._tags[name] + (count - 1) / weight)
            self._tags[name] += count / weight
        if count < want:
            self._dry[name] = math.inf if claimed.wait is None else now + claimed.wait.total_seconds()

    def wait(self, now: float) -> timedelta | None:
        """How long until something known becomes due in a queue that had nothing."""
        first = min(self._dry.values(), default=math.inf)
        return None if first == math.inf else timedelta(seconds=max(first - now, 0))

    def is_bounded(self, name: str) -> bool:
        """Whether the end of a run makes room in its queue that may not have been there."""
        return name in self._bounds
