"""What there is to show: two looks at a docket in, a view of it out. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from dovetail.model import Glance, Hold, HoldKind, RunGlance, State, WorkerInfo
from dovetail.schedules import QUEUE


@dataclass(frozen=True, slots=True)
class Look:
    """A docket at one moment."""

    glance: Glance
    pauses: Mapping[str, Hold]

    @classmethod
    def of(cls, glance: Glance, holds: list[Hold]) -> Look:
        pauses = {hold.queue: hold for hold in holds if hold.kind is HoldKind.PAUSE and hold.queue is not None}
        # What makes schedules tick is listed by `schedules ls`; here it only shows if somebody has paused it.
        queues = [each for each in glance.queues if each.queue != QUEUE or each.queue in pauses]
        return cls(glance.but(queues=queues), pauses)


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue: what waits and runs in it, since when the first waits, and what comes and goes in a second."""

    name: str
    queued: int = 0
    scheduled: int = 0
    running: int = 0
    oldest: timedelta | None = None
    incoming: float | None = None
    outgoing: float | None = None
    is_paused: bool = False
    why: str = ""

    @property
    def identity(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class WorkerRow:
    id: str
    name: str
    host: str
    queues: tuple[str, ...]
    running: int
    concurrency: int
    seen: timedelta
    up: timedelta | None
    is_alive: bool

    @property
    def identity(self) -> str:
        return self.id


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run: for how long it runs, or how long ago it failed."""

    id: str
    key: str
    task: str
    queue: str
    state: State
    attempt: int
    worker: str
    age: timedelta | None
    error: str

    @property
    def identity(self) -> str:
        return self.id


@dataclass(frozen=True, slots=True)
class View:
    """All that is shown."""

    at: datetime
    queued: int
    scheduled: int
    running: int
    waiting: int
    parked: int
    kept: int
    ended_per_second: float | None
    failed_per_second: float | None
    queues: list[QueueRow]
    workers: list[WorkerRow]
    runs: list[RunRow]
    failures: list[RunRow]


def view_of(look: Look, before: Look | None, silence: timedelta) -> View:
    """What a look shows; and, beside an earlier one, how much came and went since then."""
    glance = look.glance
    seconds = 0.0 if before is None else (glance.at - before.glance.at).total_seconds()
    ended, failed = _ended(glance, before.glance) if before is not None else (Counter[str](), 0)
    return View(
        glance.at,
        glance.queued,
        sum(each.scheduled for each in glance.queues),
        sum(each.running for each in glance.queues),
        glance.waiting,
        glance.parked,
        glance.kept,
        _rate(ended.total(), seconds),
        _rate(failed, seconds),
        _queues(look, before, ended, seconds),
        [_worker(each, glance.at, silence) for each in glance.workers],
        [_run(each, glance.at, each.started) for each in glance.running],
        [_run(each, glance.at, each.finished) for each in glance.failures],
    )


def _rate(count: float, seconds: float) -> float | None:
    return count / seconds if seconds > 0 else None


def _ended(now: Glance, before: Glance) -> tuple[Counter[str], int]:
    """What workers have seen to its end since then, by queue, and how much of it failed."""
    known = {each.id: each for each in before.workers}
    ended, failed = Counter[str](), 0
    for worker in now.workers:
        earlier = known.get(worker.id)
        since = dict(earlier.ended) if earlier else {}
        for queue, count in worker.ended.items():
            ended[queue] += max(count - since.get(queue, 0), 0)
        failed += max(worker.failed - (earlier.failed if earlier else 0), 0)
    return ended, failed


def _queues(look: Look, before: Look | None, ended: Counter[str], seconds: float) -> list[QueueRow]:
    live = _live(before.glance) if before is not None else {}
    rows: dict[str, QueueRow] = {}
    for each in look.glance.queues:
        # What is there now, and was not, came; and so did what has ended meanwhile.
        came = each.queued + each.scheduled + each.running - live.get(each.queue, 0) + ended[each.queue]
        rows[each.queue] = QueueRow(
            each.queue, each.queued, each.scheduled, each.running,
            None if each.oldest_due is None else look.glance.at - each.oldest_due,
            _rate(max(came, 0), seconds), _rate(ended[each.queue], seconds),
        )  # fmt: skip
    for name, hold in look.pauses.items():
        why = ", ".join(each for each in (hold.reason, hold.owner and f"by {hold.owner}") if each)
        rows[name] = replace(rows.get(name, QueueRow(name)), is_paused=True, why=why)
    for name in live.keys() - rows.keys():
        # It ran empty between the two looks.
        rows[name] = QueueRow(name, incoming=_rate(max(ended[name] - live[name], 0), seconds),
                              outgoing=_rate(ended[name], seconds))  # fmt: skip
    return [rows[name] for name in sorted(rows)]


def _live(glance: Glance) -> dict[str, int]:
    return {each.queue: each.queued + each.scheduled + each.running for each in glance.queues}


def _worker(worker: WorkerInfo, now: datetime, silence: timedelta) -> WorkerRow:
    seen = timedelta() if worker.last_seen is None else max(now - worker.last_seen, timedelta())
    up = None if worker.started is None else max(now - worker.started, timedelta())
    return WorkerRow(
        worker.id, worker.name, worker.host, worker.queues, worker.running, worker.concurrency, seen, up,
        seen < silence,
    )  # fmt: skip


def _run(run: RunGlance, now: datetime, since: datetime | None) -> RunRow:
    age = None if since is None else max(now - since, timedelta())
    return RunRow(
        run.id, run.key, run.task, run.queue, run.state, run.attempt, run.worker or "", age, run.error or ""
    )  # fmt: skip
