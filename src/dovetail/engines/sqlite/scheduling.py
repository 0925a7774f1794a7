"""Placing runs: who holds the key, what the newcomer does about it, and where it waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dovetail.clock import from_microseconds
from dovetail.engine import refusals
from dovetail.engines.sqlite import bulk, endings, fairness, limits
from dovetail.engines.sqlite.session import Session, dump_headers, dump_limits
from dovetail.model import Conflict, NewRun, Placement, Placing, State

LINGER = 10_000_000
"""How long the record of a run that completed stays once its key is used again, for those who wait on it."""


def schedule(session: Session, runs: Sequence[NewRun]) -> list[Placement]:
    if len(runs) >= bulk.WORTH_IT:
        return bulk.schedule(session, runs, _schedule)
    return [_schedule(session, run) for run in runs]


def _schedule(session: Session, run: NewRun) -> Placement:
    known = session.one("known", session.docket, run.id)
    if known:
        return Placement(Placing.PLACED, run.id, State(known[0]))
    holders = [Holder(*row) for row in session.all("live_of_key", session.docket, run.key)]
    if run.instead_of is not None and not _is_held_by(run.instead_of, holders):
        return _kept_out(run.instead_of, holders)
    return _settle_conflict(session, run, holders) if holders else _place(session, run, Placing.PLACED)


class Holder(NamedTuple):
    """A live run that holds a key."""

    seq: int
    id: str
    state: str
    turn: str | None
    queue: str
    group: str | None
    weight: float | None
    postponed_by: str | None
    children: int


def _is_held_by(run_id: str, holders: list[Holder]) -> bool:
    return bool(holders) and _latest(holders).id == run_id


def _kept_out(run_id: str, holders: list[Holder]) -> Placement:
    """The answer to a run that came too late to take the place of another."""
    if not holders:
        return Placement(Placing.KEPT, run_id, State.CANCELLED)
    return Placement(Placing.KEPT, _latest(holders).id, State(_latest(holders).state))


def _latest(holders: list[Holder]) -> Holder:
    return next((holder for holder in holders if holder.state != "running"), holders[0])


def _settle_conflict(session: Session, run: NewRun, holders: list[Holder]) -> Placement:
    pending = next((holder for holder in holders if holder.state != "running"), None)
    if run.conflict is Conflict.KEEP or (run.conflict is Conflict.KEEP_PENDING and pending):
        return _kept_out(run.id, holders)
    if pending is None:
        placing = Placing.REPLACED if run.conflict is Conflict.REPLACE else Placing.PLACED
        return _place(session, run, placing)
    if run.conflict is Conflict.POSTPONE:
        return _postpone(session, run, pending)
    return _replace(session, run, pending)


def _postpone(session: Session, run: NewRun, pending: Holder) -> Placement:
    if pending.postponed_by == run.id:
        return Placement(Placing.POSTPONED, pending.id, State(pending.state))
    due = session.moment(run.due)
    if pending.state == "waiting":
        session.run("move_due_of_waiting", pending.seq, due, run.id)
        return Placement(Placing.POSTPONED, pending.id, State.WAITING)
    state, place = ready_or_scheduled(session, due, pending.queue, pending.group, pending.weight)
    session.run("postpone", pending.seq, due, state, place, run.id)
    limits.pass_turn_on(session, pending.turn)
    session.work = True
    session.tell_state(pending.id, run.key, state, when=from_microseconds(due))
    return Placement(Placing.POSTPONED, pending.id, state)


def _replace(session: Session, run: NewRun, pending: Holder) -> Placement:
    """Put a run in the place of one that waits. What hung on that one hangs on this."""
    session.run("forget_run", pending.seq)
    session.run("forget_errors", pending.seq)
    session.run("forget_parents", pending.seq)
    limits.pass_turn_on(session, pending.turn)
    return _place(session, run, Placing.REPLACED, heir_of=pending)


def _place(session: Session, run: NewRun, placing: Placing, heir_of: Holder | None = None) -> Placement:
    due = session.moment(run.due)
    parents = sorted({_parent(session, run, reference) for reference in run.after})  # the oldest first
    unmet = [seq for seq, _, state in parents if state not in ("completed", "failed", "cancelled")]
    dead = None if run.after_failure else next((row for row in parents if row[2] in ("failed", "cancelled")), None)
    place = 0.0
    if dead:
        state = State.CANCELLED
    elif unmet:
        state = State.WAITING
    else:
        state, place = ready_or_scheduled(session, due, run.queue, run.group, run.weight)
    completed, failed, cancelled, most, archived = bulk.keeps(run.retention)
    over = session.now if dead else None
    if run.key != run.id:
        session.run("linger", session.docket, run.key, session.now + LINGER)
    inserted = session.run(
        "place",
        session.docket, run.id, None if run.key == run.id else run.key, run.task, run.queue, -run.priority,
        state, due, session.now, run.attempt, run.crash_limit, place, completed, failed, cancelled, most,
        archived, run.payload, run.group, run.weight if run.group is not None else None, dump_limits(run.limits),
        dump_headers(run.headers), 0 if dead else len(unmet), run.after_failure, run.wants_results,
        dead and dead[1], over, over and over + cancelled + (archived or 0), dead and endings.doomed_text(dead[1]),
    )  # fmt: skip
    session.payload += len(run.payload)
    seq = inserted.lastrowid or 0
    if parents:
        _hang_on(session, seq, [parent for parent, _, _ in parents], unmet)
    if heir_of and heir_of.children:
        _inherit(session, seq, run.id, heir_of, dead=bool(dead))
        if unmet and session.one("waits_for_itself", seq):
            raise refusals.circle(run.key)
    if not dead:
        session.work = session.work or state is not State.WAITING
    session.tell_state(run.id, run.key, state, when=from_microseconds(due))
    return Placement(placing, run.id, state)


def _parent(session: Session, run: NewRun, reference: str) -> tuple[int, str, str]:
    found = session.one("parent_of", session.docket, reference, session.now)
    if found is None:
        raise refusals.unknown_parent(run.key, reference)
    return found


def _hang_on(session: Session, child: int, parents: list[int], unmet: list[int]) -> None:
    for parent in parents:
        session.run("add_edge", parent, child, parent not in unmet)
        if not session.run("count_child", parent).rowcount:
            session.run("count_child_of_archived", parent)


def _inherit(session: Session, seq: int, run_id: str, heir_of: Holder, *, dead: bool) -> None:
    session.run("inherit_edges", seq, heir_of.seq)
    session.run("inherit_children", seq, heir_of.children)
    if dead:
        endings.settle_children(session, seq, run_id, completed=False)


def ready_or_scheduled(
    session: Session, due: int, queue: str, group: str | None, weight: float | None
) -> tuple[State, float]:
    """Where a run with this due time waits, and its place if it is ready."""
    if due > session.now:
        return State.SCHEDULED, 0.0
    return State.QUEUED, fairness.place(session, queue, group, weight)
