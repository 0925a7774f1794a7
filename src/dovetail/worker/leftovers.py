"""Leftovers: whether a worker that is to end has anything left to wait for.

Work in a queue that is paused without an end, or that this worker does not take, is not waited for: that may be for
ever. Neither is a run that hangs on such work, nor a schedule whose time is to come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dovetail.engine import Engine
from dovetail.model import HoldKind, RunQuery, State
from dovetail.schedules import QUEUE
from dovetail.worker.logs import logger

ACTIVE = (State.SCHEDULED, State.QUEUED, State.RUNNING)
LIVE = (*ACTIVE, State.WAITING)


class Leftovers:
    """What is left on a docket, as far as one worker is concerned."""

    def __init__(self, engine: Engine, queues: Sequence[str]) -> None:
        self._engine = engine
        self._queues = queues

    async def is_anything_due(self) -> bool:
        """Whether something is running, or will start without anybody's doing, here or elsewhere."""
        page = await self._engine.find(RunQuery(states=LIVE, limit=1))
        if not page.items:
            return False
        paused = await self._paused()
        (first,) = page.items
        if not self._queues and not paused and first.queue != QUEUE:
            return True
        if self._is_waited_for(first.queue, first.state, paused):
            return True
        return await self._survey(paused)

    async def _survey(self, paused: set[str]) -> bool:
        """The same, of all queues: it takes longer, so it is asked last."""
        left = Counter[str]()
        for each in (await self._engine.survey()).counts:
            if self._is_waited_for(each.queue, each.state, paused):
                return True
            if each.state in LIVE and each.queue != QUEUE:
                left[each.queue] += each.count
        if left:
            named = ", ".join(f"{count} in {queue!r}" for queue, count in sorted(left.items()))
            logger.info("finished; not waited for, in queues that are paused or not taken here: %s", named)
        return False

    def _is_waited_for(self, queue: str, state: State, paused: set[str]) -> bool:
        if queue == QUEUE:
            return state is State.RUNNING
        if state not in ACTIVE:
            return False
        return queue not in paused and (not self._queues or queue in self._queues)

    async def _paused(self) -> set[str]:
        """Queues that stay as they are until somebody resumes them."""
        holds = await self._engine.holds()
        return {hold.queue for hold in holds if hold.kind is HoldKind.PAUSE and hold.until is None and hold.queue}


async def is_anything_left(engine: Engine) -> bool:
    """Whether anything waits or runs, in whatever queue. A schedule that waits for its time is no work."""
    first = await engine.find(RunQuery(states=LIVE, limit=1))
    if not any(run.queue == QUEUE for run in first):
        return bool(first.items)
    counts = (await engine.survey()).counts
    return any(each.state is State.RUNNING or (each.state in LIVE and each.queue != QUEUE) for each in counts)
