"""What is known of a run that is running."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from dovetail.model import Run, WorkerInfo
from dovetail.why import words
from dovetail.why.answers import Cause, CauseCode
from dovetail.why.facts import Facts


def running(facts: Facts, run: Run) -> Iterator[Cause]:
    # A worker is known to a run by its name, which several may share; then they all count as one.
    own = [worker for worker in facts.workers if worker.name == run.worker]
    lapsed = run.lease_until if run.lease_until is not None and run.lease_until <= facts.at else None
    if lapsed is not None:
        yield _lapsed(facts, run, lapsed)
    yield _at_work(facts, run, own, is_lapsed=lapsed is not None)
    if run.stopping:
        yield Cause(CauseCode.STOPPING, "It was asked to stop. It goes on until its own code heeds that.")
    if any(run.key in worker.deaf for worker in own):
        yield Cause(
            CauseCode.UNHEEDING,
            "It was cancelled and goes on: its code swallows the cancellation, or is a plain function, which nobody can"
            " interrupt. Others have its slot meanwhile; in its queue's concurrency it counts. It ends by itself, or"
            " with its worker.",
            {"worker": run.worker},
        )
    yield from blockages(facts, own)


def _lapsed(facts: Facts, run: Run, until: datetime) -> Cause:
    # Its own may have died a moment ago; if not, it has been heard of since.
    has_taker = any(each.name != run.worker or (each.last_seen or until) > until for each in facts.takers(run))
    then = (
        "A live worker takes it over when it next looks"
        if has_taker
        else "It starts again once there is a live worker for its queue"
    )
    return Cause(
        CauseCode.LEASE_LAPSED,
        f"Its worker {run.worker!r} has not renewed its lease, which ended {words.ago(until, facts.at)}. {then}.",
        {"worker": run.worker, "lease_until": until},
    )


def _at_work(facts: Facts, run: Run, own: list[WorkerInfo], *, is_lapsed: bool) -> Cause:
    since = run.started or facts.at
    heard = max((worker.last_seen for worker in own if worker.last_seen is not None), default=None)
    length, clock_time = words.span(facts.at - since), words.clock_time(since, facts.at)
    started = f"It started {length} ago, at" if is_lapsed else f"It has been running for {length}, since"
    parts = [f"{started} {clock_time}, on worker {run.worker!r}, attempt {run.attempt}."]
    if run.progress is not None and run.progress.updated is not None:
        message = f" ({run.progress.message})" if run.progress.message else ""
        told = words.span(facts.at - run.progress.updated)
        parts.append(f"It said {told} ago that it is at {run.progress.current} of {run.progress.total}{message}.")
    if heard is not None:
        parts.append(f"Its worker was heard of {words.span(facts.at - heard)} ago.")
    return Cause(
        CauseCode.RUNNING,
        " ".join(parts),
        {
            "worker": run.worker,
            "started": run.started,
            "attempt": run.attempt,
            "progress": run.progress if run.progress and run.progress.updated else None,
            "lease_until": run.lease_until,
            "worker_seen": heard,
        },
    )


def blockages(facts: Facts, workers: list[WorkerInfo]) -> Iterator[Cause]:
    """Event loops that do not turn: whatever is on them stands still."""
    for worker in workers:
        if worker.blocked is None:
            continue
        blocked = worker.blocked
        by = f" by the run {blocked.key!r}" if blocked.key is not None else ""
        yield Cause(
            CauseCode.LOOP_BLOCKED,
            f"The event loop of worker {worker.name!r} has been blocked{by} for {words.span(facts.at - blocked.since)},"
            f" at {blocked.where}.",
            {"worker": worker.name, "where": blocked.where, "since": blocked.since, "by": blocked.key},
        )
