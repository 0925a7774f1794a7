"""The reporter: writes what running tasks say of their progress, and does not let them flood the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from dovetail.clock import Clock
from dovetail.engine import Engine
from dovetail.errors import DovetailError
from dovetail.model import ProgressReport
from dovetail.worker.logs import logger

INTERVAL = timedelta(milliseconds=50)
"""How long reports are gathered before they are written."""

Report = Callable[[ProgressReport], Coroutine[Any, Any, None]]


class Reporter:
    """The first report of a run is written at once; those that follow are added up and written from time to time."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._pending: dict[str, ProgressReport] = {}
        self._known: set[str] = set()
        self._news = asyncio.Event()
        self._writing = asyncio.Lock()  # one at a time: what a run said last is written last, and before its end

    async def report(self, report: ProgressReport) -> None:
        run = _run(report)
        before = self._pending.get(run)
        self._pending[run] = report if before is None else _together(before, report)
        if run in self._known:
            self._news.set()
            await asyncio.sleep(0)
        else:
            self._known.add(run)
            await self._write([run])

    def has_heard_of(self, run: str) -> bool:
        return run in self._known

    async def conclude(self, run: str) -> None:
        """Write what is left to say of a run that is about to end."""
        self._known.discard(run)
        await self._write([run])

    async def run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            await self._write(list(self._pending))
            await self._clock.sleep(INTERVAL)

    async def _write(self, runs: list[str]) -> None:
        async with self._writing:
            await self._write_now(runs)

    async def _write_now(self, runs: list[str]) -> None:
        reports = [report for run in runs if (report := self._pending.pop(run, None)) is not None]
        if not reports:
            return
        try:
            await self._engine.report(reports)
        except DovetailError as error:
            # Progress is for people to look at: it is not worth failing a run for. It is tried again with the next.
            logger.warning("the progress of %d runs could not be written: %s", len(reports), error)
            for report in reports:
                self._keep(report)

    def _keep(self, report: ProgressReport) -> None:
        run = _run(report)
        if run in self._known:
            since = self._pending.get(run)
            self._pending[run] = report if since is None else _together(report, since)


def _run(report: ProgressReport) -> str:
    return report.id or report.key


def _together(first: ProgressReport, second: ProgressReport) -> ProgressReport:
    """Two reports as one."""
    speaks = second.message is not None or second.clear_message
    return second.but(
        increment=first.increment + second.increment,
        total=first.total if second.total is None else second.total,
        message=second.message if speaks else first.message,
        clear_message=second.clear_message if speaks else first.clear_message,
    )
