"""Heartbeats, cancelling, progress, reviving and holds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from dovetail.clock import duration_to_microseconds, from_microseconds, to_microseconds
from dovetail.engines.sqlite import archive, endings, fairness, limits, scheduling
from dovetail.engines.sqlite.session import Session, moment_or_none
from dovetail.model import (
    Cancelled,
    Claim,
    Event,
    EventKind,
    Hold,
    HoldKind,
    Progress,
    ProgressReport,
    Pulse,
    Revival,
    State,
    WorkerInfo,
)


def heartbeat(session: Session, worker: WorkerInfo, claims: Sequence[Claim], lease: timedelta) -> tuple[Pulse, int]:
    """The pulse, and the latest time that any process went by."""
    until = session.now + duration_to_microseconds(lease)
    lost: list[str] = []
    stopping: list[str] = []
    for claim in claims:
        row = session.one("renew", claim.id, session.docket, claim.epoch, until)
        if row is None:
            lost.append(claim.id)
        elif row[0]:
            stopping.append(claim.id)
    if worker.leaving:
        session.run("forget_worker", session.docket, worker.id)
    else:
        session.run("see_worker", session.docket, worker.id, session.now, msgspec.json.encode(worker))
    mark, version = session.one("note_time", session.docket, session.now)
    return Pulse(frozenset(lost), frozenset(stopping), version), mark


def cancel(session: Session, keys: Sequence[str], *, running: bool = True) -> list[Cancelled]:
    return [_cancel(session, key, running=running) for key in keys]


def _cancel(session: Session, key: str, *, running: bool) -> Cancelled:
    holders = [scheduling.Holder(*row) for row in session.all("live_of_key", session.docket, key)]
    if not holders:
        over = session.one("over_of_key", session.docket, key, session.now)
        return Cancelled.OVER if over else Cancelled.UNKNOWN
    newest = holders[0]
    if newest.state == "running":
        if not running:
            return Cancelled.OVER
        session.run("ask_to_stop", newest.seq)
        if EventKind.STOP in session.tells:
            session.tell(Event(EventKind.STOP, key, newest.id))
        return Cancelled.STOPPING
    endings.end(session, newest.seq, State.CANCELLED, None)
    limits.pass_turn_on(session, newest.turn)
    return Cancelled.CANCELLED


def report(session: Session, reports: Sequence[ProgressReport]) -> list[bool]:
    return [_report(session, each) for each in reports]


def _report(session: Session, report: ProgressReport) -> bool:
    row = session.one(
        "report", session.docket, report.key, report.id, report.epoch, report.increment, report.total,
        report.message, report.clear_message, session.now,
    )  # fmt: skip
    if row is None:
        return False
    if EventKind.PROGRESS in session.tells:
        run_id, current, total, message = row
        progress = Progress(current, total, message, from_microseconds(session.now))
        session.tell(Event(EventKind.PROGRESS, report.key, run_id, progress=progress))
    return True


def revive(session: Session, revivals: Sequence[Revival]) -> list[bool]:
    return [_revive(session, each) for each in revivals]


def _revive(session: Session, revival: Revival) -> bool:
    archive.bring_back(session, revival.id)
    found = session.one("terminal", revival.id, session.docket, session.now)
    if found is None:
        return False
    seq, key, queue, group, weight = found
    if session.all("live_of_key", session.docket, key):
        return False
    _back_to_work(session, seq, revival.id, key, queue, group, weight, revival.payload)
    revived = [(seq, revival.id)]
    while revived:
        parent, parent_id = revived.pop()
        archive.bring_children_back(session, parent, parent_id)
        for child in session.all("doomed_children", parent, parent_id):
            if _revive_child(session, *child):
                revived.append((child[0], child[1]))
    return True


def _revive_child(
    session: Session, seq: int, run_id: str, key: str, queue: str, group: str | None, weight: float | None,
    after_failure: int,
) -> bool:  # fmt: skip
    """Bring back a run that a parent's end had cancelled, unless another parent still keeps it from running."""
    other = None if after_failure else session.one("parent_that_failed", seq)
    if other:
        session.run("blame", seq, other[0])
        return False
    if session.all("live_of_key", session.docket, key):
        return False
    _back_to_work(session, seq, run_id, key, queue, group, weight, None)
    return True


def _back_to_work(
    session: Session, seq: int, run_id: str, key: str, queue: str, group: str | None, weight: float | None,
    payload: bytes | None,
) -> None:  # fmt: skip
    (waits_for,) = session.one("parents_not_over", seq)
    if waits_for:
        session.run("part", seq)
    state = State.WAITING if waits_for else State.QUEUED
    place = 0.0 if waits_for else fairness.place(session, queue, group, weight)
    session.run("revive", seq, state, session.now, payload, place, waits_for)
    session.work = session.work or not waits_for
    session.tell_state(run_id, key, state, when=from_microseconds(session.now))


def hold(session: Session, holds: Sequence[Hold]) -> None:
    changed = 0
    for each in holds:
        since = to_microseconds(each.since) if each.since else session.now
        until = to_microseconds(each.until) if each.until else None
        changed += session.run(
            "lay_hold", session.docket, _identity(each), each.kind, each.queue, each.task, each.parameter,
            each.operator, each.value, each.reason, each.owner, since, until,
        ).rowcount  # fmt: skip
    _note_change(session, changed)


def lift(session: Session, holds: Sequence[Hold]) -> None:
    changed = sum(session.run("lift_hold", session.docket, _identity(each)).rowcount for each in holds)
    _note_change(session, changed)


def holds(session: Session) -> list[Hold]:
    return [_load_hold(row) for row in session.all("all_holds", session.docket, session.now)]


def _note_change(session: Session, changed: int) -> None:
    if changed:
        session.run("holds_changed", session.docket)
        session.tell(Event(EventKind.HOLDS))
        session.work = True


def _identity(hold: Hold) -> bytes:
    return msgspec.json.encode(hold.identity)


def _load_hold(row: tuple[str, str, str, str, str, bytes, str, str, int, int | None]) -> Hold:
    kind, queue, task, parameter, operator, value, reason, owner, since, until = row
    return Hold(
        HoldKind(kind), queue, task, parameter, operator, value, reason, owner,
        from_microseconds(since), moment_or_none(until),
    )  # fmt: skip
