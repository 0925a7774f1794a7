"""Leftovers: whether a worker that is to end has anything left to wait for.

Work in a queue that is paused without an end, or that this worker does not take, is not waited for: that may be for
ever. Neither is a run that hangs on such work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dovetail.engine import Engine
from dovetail.model import HoldKind, RunQuery, State
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
        if not self._queues and not paused:
            return True
        (first,) = page.items
        if first.state in ACTIVE and self._is_waited_for(first.queue, paused):
            return True
        return await self._survey(paused)

    async def _survey(self, paused: set[str]) -> bool:
        """The same, of all queues: it takes longer, so it is asked last."""
        left = Counter[str]()
        for each in (await self._engine.survey()).counts:
            if each.state in ACTIVE and self._is_waited_for(each.queue, paused):
                return True
            if each.state in LIVE:
                left[each.queue] += each.count
        if left:
            named = ", ".join(f"{count} in {queue!r}" for queue, count in sorted(left.items()))
            logger.info("finished; not waited for, in queues that are paused or not taken here: %s", named)
        return False

    def _is_waited_for(self, queue: str, paused: set[str]) -> bool:
        return queue not in paused and (not self._queues or queue in self._queues)

    async def _paused(self) -> set[str]:
        """Queues that stay as they are until somebody resumes them."""
        holds = await self._engine.holds()
        return {hold.queue for hold in holds if hold.kind is HoldKind.PAUSE and hold.until is None and hold.queue}
