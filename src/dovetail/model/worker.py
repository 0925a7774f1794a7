"""Workers as the store sees them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from dovetail.model.noun import Noun


class Blockage(Noun, frozen=True):
    """What keeps a worker's event loop from turning."""

    where: str  # as "file:line in function"
    since: datetime
    key: str | None = None  # of the run whose code that is, if that is known


class WorkerInfo(Noun, frozen=True):
    """A worker that said it is there. The name is a label; two processes may share one, so the id tells them
    apart."""

    name: str
    last_seen: datetime | None = None  # set by the store
    tasks: frozenset[str] = frozenset()
    id: str = ""
    queues: tuple[str, ...] = ()  # empty: all
    concurrency: int = 0
    running: int = 0
    host: str = ""
    pid: int = 0
    started: datetime | None = None
    leaving: bool = False  # its last word: the store forgets it
    interval: timedelta | None = None  # between its heartbeats
    has_fallback: bool = False  # it also runs tasks that it does not know
    blocked: Blockage | None = None  # its event loop does not turn
    lease: timedelta | None = None  # until its runs start elsewhere, if it is silent
    grace: timedelta | None = None  # that running work has when it is stopped
    ended: Mapping[str, int] = {}  # runs that it has seen to their end since it started, by queue
    failed: int = 0  # those of them that failed
    deaf: tuple[str, ...] = ()  # keys of some runs whose bodies were cancelled and go on
    clock: datetime | None = None  # what its own clock shows as it says so
    emptied: datetime | None = None  # when it last noticed that the store had lost all that it held


class Pulse(Noun, frozen=True):
    """What a heartbeat learns."""

    lost: frozenset[str] = frozenset()  # ids of runs whose claims are void
    stopping: frozenset[str] = frozenset()  # ids of runs that were asked to stop
    holds: int = 0  # changes whenever a hold is laid or lifted
    origin: int = 0  # another one than before: the store has lost all that it held meanwhile
