"""The store's memory: noticing that all it held was removed, beneath a worker that runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from dovetail.clock import Clock, from_microseconds
from dovetail.worker.logs import logger
from dovetail.worker.telemetry import Telemetry


class Memory:
    """Whether the store is still the one that it was at the last heartbeat."""

    def __init__(self, clock: Clock, on_loss: Callable[[], None]) -> None:
        self._clock = clock
        self._on_loss = on_loss
        self._origin: int | None = None
        self.lost_at: datetime | None = None
        self.telemetry = Telemetry()

    def heard(self, origin: int, runs_lost: int) -> None:
        """What a heartbeat says: another origin than before is that of a store that began anew."""
        before, self._origin = self._origin, origin
        if before in (None, origin):
            return
        self.lost_at = from_microseconds(self._clock.microseconds())
        self.telemetry.store_emptied()
        logger.error(
            "the store has lost all that it held, with %d runs that are stopped here: it was emptied (FLUSHALL,"
            " FLUSHDB), replaced, or started without what it had kept. Automatic tasks are started again. All else is"
            " gone: schedules, strikes and pauses, and what waited, have to be made anew",
            runs_lost,
        )
        self._on_loss()
