"""The surveyor: looks at the whole docket now and then, for those who measure how much waits on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

from dovetail.clock import Clock
from dovetail.engine import Engine
from dovetail.errors import DovetailError
from dovetail.instrumentation import is_metering
from dovetail.worker.logs import logger
from dovetail.worker.telemetry import Telemetry

SHARE = 50
"""A survey counts every run. It takes one part in so many of the time, however many there are."""
QUICK = timedelta(milliseconds=200)
"""What a survey may take for there to be one more at the end."""


class Surveyor:
    """Asks the store for nothing unless somebody records metrics."""

    def __init__(self, engine: Engine, clock: Clock, telemetry: Telemetry, interval: Callable[[], timedelta]) -> None:
        self._engine = engine
        self._clock = clock
        self._telemetry = telemetry
        self._interval = interval
        self._took = timedelta()

    async def run(self) -> None:
        while True:
            before = self._took
            if is_metering():
                self._took = await self._look()
            # One that took long just once, the first for instance, had to wait for something else.
            await self._clock.rest(None, max(self._interval(), min(self._took, before) * SHARE))

    async def look_again(self) -> None:
        """Once more before the worker ends, as nobody else may be there to say that nothing is left; unless that would
        hold it up."""
        if is_metering() and self._took < QUICK:
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._look()

    async def _look(self) -> timedelta:
        began = self._clock.monotonic()
        try:
            self._telemetry.surveyed(await self._engine.survey())
        except DovetailError as error:
            logger.warning("the docket could not be surveyed: %s", error)
        return timedelta(seconds=self._clock.monotonic() - began)
