"""The health of a worker, over HTTP: whether its claim loop moves, and not merely whether the process is there.

The server has a thread of its own, so that it answers when the event loop is blocked, and says so.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Protocol

from dovetail import checks
from dovetail.observe.serving import EVERYWHERE, Page, serving

PATIENCE = timedelta(seconds=30)
"""How long a claim loop may stand still. An idle one looks every five seconds or so."""
TURN = 1.0
"""Seconds in which an event loop that is not blocked takes a turn."""


@dataclass(frozen=True, slots=True)
class Vitals:
    """How it stands with a worker that runs."""

    since_claim: timedelta  # since the store last answered a claim
    has_room: bool  # one that is full need not claim
    running: int
    is_stopping: bool
    deaf: int = 0  # bodies that were cancelled and go on
    is_helpless: bool = False  # they have all the slots


class Patient(Protocol):
    """A worker, as far as its health goes."""

    @property
    def name(self) -> str: ...

    def vitals(self) -> Vitals | None: ...


@dataclass(frozen=True, slots=True)
class Finding:
    """What there is to say of a worker's health."""

    live: bool  # whether a restart would not help
    ready: bool  # whether it takes in work
    reason: str
    worker: str | None = None
    running: int = 0
    since_claim: float | None = None  # seconds


class Examiner:
    """Finds out how a worker is, from another thread than its own."""

    def __init__(self, worker: Patient | None, patience: timedelta) -> None:
        self._worker = worker
        self._patience = patience
        try:
            self._loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:  # nobody's event loop: there is none to be blocked
            self._loop = None
        self._last_turn = time.monotonic()

    def examine(self) -> Finding:
        if self._worker is None:
            return Finding(live=True, ready=True, reason="the process is up")
        turns = self._loop_turns()
        is_live = turns or time.monotonic() - self._last_turn < self._patience.total_seconds()
        blocked = None if turns else "the event loop is blocked"
        vitals = self._worker.vitals()
        if vitals is None:
            return Finding(is_live, False, blocked or "the worker is not running", self._worker.name)
        problem = blocked or self._problem(vitals)
        is_live = is_live and not vitals.is_helpless
        since = round(vitals.since_claim.total_seconds(), 3)
        return Finding(is_live, problem is None, problem or "ok", self._worker.name, vitals.running, since)

    def _problem(self, vitals: Vitals) -> str | None:
        if vitals.is_stopping:
            return "the worker is stopping"
        if vitals.is_helpless:
            return "every slot is held by a run that was cancelled and goes on"
        if vitals.has_room and vitals.since_claim > self._patience:
            return "the claim loop stands still: the store does not answer, or the loop is stuck"
        return None

    def _loop_turns(self) -> bool:
        """Whether the event loop takes a turn when it is asked to."""
        if self._loop is None:
            return True
        turned = threading.Event()
        try:
            self._loop.call_soon_threadsafe(turned.set)
        except RuntimeError:  # it is closed
            return False
        if not turned.wait(TURN):
            return False
        self._last_turn = time.monotonic()
        return True


@contextmanager
def healthcheck_server(
    host: str = EVERYWHERE,
    port: int | None = None,
    *,
    worker: Patient | None = None,
    patience: timedelta = PATIENCE,
) -> Generator[int | None]:
    """Answers for a worker's health while the block runs; yields the port, which is chosen for you if it is 0.

    `/` and `/health` say `OK`, `/live` and `/ready` say more, as JSON; each with 200 or 503. Without a worker it
    answers for the process alone, as docket's does. Without a port nothing is served.
    """
    checks.duration(patience, "patience", positive=True)
    if port is None:
        yield None
        return
    examiner = Examiner(worker, patience)
    with serving(lambda path, accept: page_of(path, examiner), host, port, "health") as served:
        yield served


def page_of(path: str, examiner: Examiner) -> Page:
    """The answer to one request."""
    match path.rstrip("/"):
        case "/live":
            finding = examiner.examine()
            return _page(finding, finding.live)
        case "/ready":
            finding = examiner.examine()
            return _page(finding, finding.ready)
        case "" | "/health":
            finding = examiner.examine()
            return Page("OK") if finding.ready else Page(finding.reason, status=503)
        case _:
            return Page("there are /, /health, /live and /ready", status=404)


def _page(finding: Finding, is_well: bool) -> Page:
    return Page(json.dumps({"ok": is_well, **asdict(finding)}), "application/json", 200 if is_well else 503)
