"""A docket at a glance: counts from the indexes, and a bounded number of records."""

from __future__ import annotations

from typing import Any

from dovetail.clock import from_microseconds
from dovetail.engines.sqlite.session import Session, moment_or_none
from dovetail.engines.sqlite.sight import workers_of
from dovetail.model import Glance, QueueGlance, RunGlance, State
from dovetail.model.glance import EXAMINED, KEPT, SHOWN


def glance(session: Session) -> Glance:
    docket, now = session.docket, session.now
    leases = session.all("glance_leases", docket, SHOWN)
    failures = session.all("glance_failures", docket, now, EXAMINED, SHOWN)
    return Glance(
        from_microseconds(now),
        _queues(session),
        session.one("glance_waiting", docket)[0],
        session.one("glance_parked", docket)[0],
        session.one("glance_kept", docket, now, KEPT)[0],
        workers_of(session),
        [_run(row) for row in leases],
        [_run(row) for row in failures],
    )


def _queues(session: Session) -> list[QueueGlance]:
    queued = {queue: (count, due) for queue, count, due in session.all("glance_queued", session.docket)}
    scheduled = {queue: (count, due) for queue, count, due in session.all("glance_scheduled", session.docket)}
    running = dict[str, int](session.all("glance_running", session.docket))
    found: list[QueueGlance] = []
    for name in sorted({*queued, *scheduled, *running}):
        ready, ready_since = queued.get(name, (0, None))
        later, first_due = scheduled.get(name, (0, None))
        # What has become due joins the others only when somebody claims.
        due = min((each for each in (ready_since, first_due) if each is not None and each <= session.now), default=None)
        found.append(QueueGlance(name, ready, later, running.get(name, 0), moment_or_none(due)))
    return found


def _run(row: tuple[Any, ...]) -> RunGlance:
    run_id, key, task, queue, state, attempt, worker, started, finished, lease, error = row
    return RunGlance(
        run_id, key, task, queue, State(state), attempt, worker, moment_or_none(started), moment_or_none(finished),
        moment_or_none(lease), error,
    )  # fmt: skip
