"""Hearing: notices bodies that were cancelled and go on, says where they are, and gives their slots to others.

Whoever cancels a body, be it a user, a timeout or a lost lease, can only ask. Code that swallows the cancellation, a
teardown that hangs and a plain function that does not look would keep their slots for ever.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from pathlib import Path
from types import CoroutineType, FrameType
from typing import Any

from dovetail.worker.logs import logger
from dovetail.worker.pulse import LIBRARIES
from dovetail.worker.roster import Roster, Tenure
from dovetail.worker.telemetry import Telemetry

PATIENCE = 10.0
"""Seconds that a body has to end in once it was cancelled."""
GLANCE = 1.0
"""Seconds from one look to the next."""

_NOBODYS = (*LIBRARIES, str(Path(__file__).parents[1]))
"""Where code lies that is not the user's."""


class Hearing:
    """Looks at the bodies that have a slot, once a second."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self.telemetry = Telemetry()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(GLANCE)
            self.look(time.monotonic())

    def look(self, now: float) -> None:
        for tenure in self._roster.running:
            if tenure.task is None or not tenure.task.cancelling():
                tenure.cancelled = None  # whoever cancelled it, within its own code perhaps, has had what he wanted
            elif tenure.cancelled is None:
                tenure.cancelled = now
            elif now - tenure.cancelled >= PATIENCE and not tenure.is_deaf:
                self._note(tenure, tenure.task, now - tenure.cancelled)

    def _note(self, tenure: Tenure, task: asyncio.Task[None], since: float) -> None:
        tenure.is_deaf = True
        self.telemetry.unheeded()
        slot = (
            "Its slot goes to others, though it counts in its queue's concurrency"
            if self._roster.set_aside(tenure)
            else "It keeps its slot: there are as many of its kind as this worker has slots, and it needs a restart"
        )
        logger.error(
            "the run %r was cancelled %s ago and goes on%s. %s. Code that is to end must let CancelledError pass; what"
            " cannot be cancelled belongs in a process of its own: @task(executor='process')",
            tenure.claim.key, timedelta(seconds=round(since)), _whereabouts(task), slot,
        )  # fmt: skip


def _whereabouts(task: asyncio.Task[Any]) -> str:
    """The line at which a body waits, if it is a coroutine's: the innermost of the user's own."""
    found: FrameType | None = None
    coroutine: Any = task.get_coro()
    while isinstance(coroutine, CoroutineType):
        frame = coroutine.cr_frame
        if frame is not None and not frame.f_code.co_filename.startswith(_NOBODYS):
            found = frame
        coroutine = coroutine.cr_await
    return "" if found is None else f", at {found.f_code.co_filename}:{found.f_lineno} in {found.f_code.co_name}"
