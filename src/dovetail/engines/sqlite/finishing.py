"""Finishing: the end of a claim, as one unit with all it brings."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.clock import from_microseconds
from dovetail.engines.sqlite import endings, limits, scheduling
from dovetail.engines.sqlite.session import Session, load_limits
from dovetail.model import Finished, Requeue, Settle, State, Verdict


def finish(session: Session, verdicts: Sequence[Verdict]) -> list[Finished]:
    return [
        _settle(session, verdict) if isinstance(verdict, Settle) else _requeue(session, verdict)
        for verdict in verdicts
    ]


def _settle(session: Session, verdict: Settle) -> Finished:
    claim, failure = verdict.claim, verdict.failure
    error = str(failure) if failure else None
    row = session.one(
        "settle", claim.id, session.docket, claim.epoch, verdict.state, session.now, verdict.result, error
    )
    if row is None:
        return _why_not(session, verdict)
    seq, key, held, children, expires, worker, started, attempt, failures = row
    if failure:
        endings.note_error(session, seq, failures, attempt, worker, failure)
    session.tell_state(
        claim.id, key, verdict.state, finished=from_microseconds(session.now), error=error, worker=worker
    )
    if held or children or expires <= session.now:
        endings.after_end(session, seq, claim.id, key, verdict.state, held, children, expires)
    if verdict.then:
        scheduling.schedule(session, verdict.then)
    return Finished.DONE


def _requeue(session: Session, verdict: Requeue) -> Finished:
    claim = verdict.claim
    standing = session.one("standing", claim.id, session.docket)
    if standing is None or standing[1] != "running" or standing[2] != claim.epoch:
        return _why_not(session, verdict)
    seq, _, _, key, queue, group, weight, worker, _ = standing
    due = session.moment(verdict.due)
    state, place = scheduling.ready_or_scheduled(session, due, queue, group, weight)
    failure = verdict.failure
    _, key, held, failures = session.one(
        "requeue", claim.id, session.docket, claim.epoch, state, due, verdict.attempt, verdict.payload,
        str(failure) if failure else None, place,
    )  # fmt: skip
    if held:
        limits.free(session, seq, load_limits(held))
    if key != claim.id and session.one("newer_pending", session.docket, key, seq):
        # The newer run has taken the key; what hung on this one is not the newer one's business.
        endings.settle_children(session, seq, claim.id, completed=False)
        endings.forget(session, seq)
        return Finished.YIELDED
    if failure:
        endings.note_error(session, seq, failures, claim.attempt, worker, failure)
    session.work = True
    session.tell_state(claim.id, key, state, when=from_microseconds(due))
    return Finished.DONE


def _why_not(session: Session, verdict: Verdict) -> Finished:
    """A claim that is void, or a verdict that was accepted before."""
    standing = session.one("standing", verdict.claim.id, session.docket)
    if standing is None or standing[2] != verdict.claim.epoch:
        return Finished.FENCED
    return Finished.FENCED if standing[1] == State.RUNNING else Finished.ALREADY
