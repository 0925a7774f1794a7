"""Where a run stands: what is before it, and how full its limits are."""

from __future__ import annotations

from datetime import datetime

from dovetail.model.noun import Noun
from dovetail.model.run import Limit, State
from dovetail.model.worker import WorkerInfo

COUNTED = 10_000
"""How many runs are counted before one at most: beyond it, that there are many is all there is to know."""
NAMED = 10
"""How many of those that hold a slot are named."""


class LimitUse(Noun, frozen=True):
    """A limit of a run, and how full it is."""

    limit: Limit
    taken: int  # slots held, or starts within the window; with a window counted up to the capacity
    holders: tuple[str, ...] = ()  # ids of some of the runs that hold a slot
    opens: datetime | None = None  # when a window without room has room for one more

    @property
    def is_full(self) -> bool:
        return self.taken >= self.limit.capacity if self.limit.window is None else self.opens is not None


class Standing(Noun, frozen=True):
    """What a store says of a live run at one moment, beyond its record."""

    at: datetime
    state: State
    epoch: int
    parked_on: str | None = None
    ahead: int = 0  # runs before it: in its queue, or, if it is parked, in the line of its limit; up to COUNTED
    limits: tuple[LimitUse, ...] = ()
    workers: tuple[WorkerInfo, ...] = ()  # all that are kept, those not heard of for a while too
