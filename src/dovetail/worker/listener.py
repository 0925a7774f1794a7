"""The listener: turns the engine's hints into signals for the other parts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from dovetail.clock import Clock
from dovetail.engine import Engine
from dovetail.errors import EngineUnavailable
from dovetail.model import Event, EventKind, Topic
from dovetail.worker.backoff import spread
from dovetail.worker.logs import logger


class Listener:
    """Hears of new work and of runs that are to stop. A hint that is lost costs a poll or a heartbeat, never a run."""

    def __init__(
        self, engine: Engine, clock: Clock, *, on_work: Callable[[], None], on_stop: Callable[[str], None],
        reconnection_delay: timedelta,
    ) -> None:  # fmt: skip
        self._engine = engine
        self._clock = clock
        self._on_work = on_work
        self._on_stop = on_stop
        self._reconnection_delay = reconnection_delay

    async def run(self) -> None:
        while True:
            try:
                await self._listen()
            except EngineUnavailable as error:
                logger.warning("cannot listen for hints, trying again in %s: %s", self._reconnection_delay, error)
                await self._clock.sleep(spread(self._reconnection_delay))

    async def _listen(self) -> None:
        topics = [Topic(kind) for kind in (EventKind.WORK, EventKind.STOP, EventKind.HOLDS)]
        async with self._engine.watch(*topics) as events:
            self._on_work()  # what came before anyone listened
            async for event in events:
                self._pass_on(event)

    def _pass_on(self, event: Event) -> None:
        if event.kind is EventKind.STOP and event.id is not None:
            self._on_stop(event.id)
        else:
            self._on_work()
