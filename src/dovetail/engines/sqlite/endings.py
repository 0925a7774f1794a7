"""What happens around the end of a run: slots, children, and the record itself."""

from __future__ import annotations

from dovetail.clock import from_microseconds
from dovetail.engines.sqlite import fairness, limits
from dovetail.engines.sqlite.session import Session, load_limits
from dovetail.model import Failure, State

HISTORY = 20
"""How many errors a run's history holds: the newest."""


def end(session: Session, seq: int, state: State, failure: Failure | None, *, doomed_by: str | None = None) -> int:
    """End a run that no worker speaks for: cancelled, dropped, poisoned, or doomed by a parent. How many dependents
    were cancelled with it."""
    text = str(failure) if failure else None
    run_id, key, held, children, expires, attempt, failures, worker = session.one(
        "end_by_store", seq, state, session.now, text, doomed_by
    )
    if failure and state is State.FAILED:
        note_error(session, seq, failures, attempt, worker, failure)
    fallen = after_end(session, seq, run_id, state, held, children, expires)
    session.tell_state(run_id, key, state, finished=from_microseconds(session.now), error=text)
    return fallen


def after_end(
    session: Session, seq: int, run_id: str, state: State, held: str | None, children: int, expires: int
) -> int:
    """What every end brings: slots set free, children released or doomed, the record dropped if it is not kept. How
    many were doomed."""
    if held:
        limits.free(session, seq, load_limits(held))
    if children:
        return settle_children(session, seq, run_id, completed=state is State.COMPLETED)
    if expires <= session.now:
        forget(session, seq)
    return 0


def settle_children(session: Session, parent: int, parent_id: str, *, completed: bool) -> int:
    """Release what waits for a run that is over, or cancel it, to any depth. How many were cancelled."""
    fallen = 0
    ended = [(parent, parent_id, completed)]
    while ended:
        parent, parent_id, completed = ended.pop()
        for seq, waits_for, after_failure, due, queue, group, weight, _ in session.all("waiting_children", parent):
            if not (completed or after_failure):
                fallen += 1
                doomed = session.one(
                    "end_by_store", seq, State.CANCELLED, session.now, doomed_text(parent_id), parent_id
                )
                session.tell_state(
                    doomed[0], doomed[1], State.CANCELLED,
                    finished=from_microseconds(session.now), error=doomed_text(parent_id),
                )  # fmt: skip
                if doomed[3]:
                    ended.append((seq, doomed[0], False))
                elif doomed[4] <= session.now:
                    forget(session, seq)
                continue
            session.run("meet", parent, seq)
            if waits_for > 1:
                session.run("parent_is_over", seq)
            else:
                _release(session, seq, due, queue, group, weight)
    return fallen


def _release(session: Session, seq: int, due: int, queue: str, group: str | None, weight: float | None) -> None:
    ready = due <= session.now
    place = fairness.place(session, queue, group, weight) if ready else 0.0
    session.run("end_waiting", seq, State.QUEUED if ready else State.SCHEDULED, place)
    session.work = True
    _tell_released(session, seq, State.QUEUED if ready else State.SCHEDULED, due)


def _tell_released(session: Session, seq: int, state: State, due: int) -> None:
    if session.tells_states:
        run_id, key, _ = session.one("named", seq)
        session.tell_state(run_id, key, state, when=from_microseconds(due))


def forget(session: Session, seq: int) -> None:
    """Drop a run's record and all that belongs to it."""
    session.run("forget_run", seq)
    session.run("forget_errors", seq)
    session.run("forget_edges", seq)


def note_error(session: Session, seq: int, failures: int, attempt: int, worker: str | None, failure: Failure) -> None:
    """Add a line to the error history, and drop the oldest beyond its bound."""
    session.run(
        "add_error", seq, failures + 1, attempt, session.now, worker,
        failure.type, failure.message, failure.traceback,
    )  # fmt: skip
    session.run("count_failure", seq)
    if failures >= HISTORY:
        session.run("trim_errors", seq, failures + 1 - HISTORY)


def doomed_text(parent_id: str) -> str:
    return f"ParentFailed: the run {parent_id}, which this one waited for, did not complete"
