"""The janitor: sweeps the store now and then, in small steps."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta

from dovetail.clock import Clock
from dovetail.engine import Engine
from dovetail.errors import DovetailError
from dovetail.worker.logs import logger

INTERVAL = timedelta(seconds=15)
BREATHER = timedelta(milliseconds=50)


class Janitor:
    """Every worker has one. They need not agree: sweeping twice is the same as sweeping once."""

    def __init__(self, engine: Engine, clock: Clock, silent_for: Callable[[], timedelta]) -> None:
        self._engine = engine
        self._clock = clock
        self._silent_for = silent_for

    async def run(self) -> None:
        while True:
            await self._clock.rest(None, INTERVAL * random.uniform(0.75, 1.25))
            try:
                while (await self._engine.sweep(silent_for=self._silent_for())).more:
                    await self._clock.sleep(BREATHER)
            except DovetailError as error:
                logger.error("the store could not be swept: %s", error)
