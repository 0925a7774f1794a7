"""The roster: which runs this worker has in hand, and what has been said about each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from dovetail.model import Claim, Verdict

logger = logging.getLogger("dovetail.worker")


class Reason(Enum):
    """Why a body is being stopped."""

    STOP = auto()  # somebody cancelled the run
    LOST = auto()  # the lease is gone, or about to be: nothing it says will count
    SHUTDOWN = auto()  # the worker stops: the run goes elsewhere


@dataclass(slots=True, eq=False)
class Tenure:
    """A claim in hand."""

    claim: Claim
    deadline: float  # on the monotonic clock: when the lease ends unless it is renewed
    reason: Reason | None = None
    task: asyncio.Task[None] | None = None

    def stop(self, reason: Reason) -> None:
        """Ask the body to stop. The first reason stands, unless the lease is lost, which overrules all."""
        if self.reason is None or reason is Reason.LOST:
            self.reason = reason
        if self.task is not None:
            self.task.cancel()


Attend = Callable[[Tenure], Coroutine[Any, Any, Verdict | None]]


class Roster:
    """Starts claims, and knows them until they are settled."""

    def __init__(self, concurrency: int, attend: Attend, settle: Callable[[Verdict], None], name: str) -> None:
        self.concurrency = concurrency
        self.has_room = asyncio.Event()
        self.has_room.set()
        self.is_idle = asyncio.Event()
        self.is_idle.set()
        self._attend = attend
        self._settle = settle
        self._name = name
        self._running: dict[str, Tenure] = {}
        self._settling: dict[str, Tenure] = {}

    @property
    def room(self) -> int:
        return self.concurrency - len(self._running)

    @property
    def running(self) -> list[Tenure]:
        return list(self._running.values())

    def in_hand(self) -> list[Tenure]:
        """Everything whose lease has to be renewed. May be asked from another thread."""
        return [*list(self._running.values()), *list(self._settling.values())]

    def start(self, claim: Claim, deadline: float) -> None:
        tenure = Tenure(claim, deadline)
        self._running[claim.id] = tenure
        self.is_idle.clear()
        if not self.room:
            self.has_room.clear()
        loop = asyncio.get_running_loop()
        tenure.task = loop.create_task(self._see_through(tenure), name=f"{self._name} - task:{claim.key}")

    async def _see_through(self, tenure: Tenure) -> None:
        """Run a claim to its verdict. Whatever happens, the slot is free afterwards."""
        claim = tenure.claim
        verdict: Verdict | None = None
        try:
            verdict = await self._attend(tenure)
        except BaseException:
            # The runner lets nothing through; this is for errors of our own, so that one run cannot stop the rest.
            logger.exception("the run %r ended without a verdict; its lease will lapse", claim.key)
        finally:
            if self._running.get(claim.id) is tenure:
                del self._running[claim.id]
            if verdict is not None:
                self._settling[claim.id] = tenure
                self._settle(verdict)
            self.has_room.set()
            self._note_idle()

    def settled(self, claim: Claim) -> None:
        """The store has heard the verdict."""
        tenure = self._settling.get(claim.id)
        if tenure is not None and tenure.claim.epoch == claim.epoch:
            del self._settling[claim.id]
        self._note_idle()

    def stop(self, run_id: str, reason: Reason) -> None:
        tenure = self._running.get(run_id)
        if tenure is not None:
            tenure.stop(reason)

    def stop_all(self, reason: Reason) -> None:
        for tenure in self.running:
            tenure.stop(reason)

    def _note_idle(self) -> None:
        if not self._running and not self._settling:
            self.is_idle.set()
