"""Finishing: the end of a claim, as one unit with all it brings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from dovetail.clock import from_microseconds
from dovetail.engines.sqlite import endings, limits, scheduling
from dovetail.engines.sqlite.session import Session, load_limits
from dovetail.model import Claim, Finished, Requeue, Settle, State, Verdict

WORTH_IT = 4
"""How many runs must end alike for one statement to be faster than several."""

_encode = msgspec.json.encode


def finish(session: Session, verdicts: Sequence[Verdict]) -> list[Finished]:
    done = _settle_plain(session, _plain(verdicts)) if len(verdicts) >= WORTH_IT else frozenset[str]()
    return [Finished.DONE if verdict.claim.id in done else _finish(session, verdict) for verdict in verdicts]


def _plain(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Those that can be settled before the others, all at once: each is the only word on its run."""
    spoken_of = Counter(verdict.claim.id for verdict in verdicts)
    return [verdict for verdict in verdicts if _is_plain(verdict) and spoken_of[verdict.claim.id] == 1]


def _is_plain(verdict: Verdict) -> bool:
    """Whether a verdict says that the run completed, and nothing more."""
    return (
        isinstance(verdict, Settle)
        and verdict.state is State.COMPLETED
        and verdict.result is None
        and verdict.failure is None
        and not verdict.then
    )


def _settle_plain(session: Session, verdicts: list[Verdict]) -> frozenset[str]:
    """Settle with one statement all that end alike; the ids of those that were still theirs to settle."""
    pairs = _encode([(verdict.claim.id, verdict.claim.epoch) for verdict in verdicts]).decode()
    rows = session.all("settle_many", pairs, session.docket, State.COMPLETED, session.now)
    for seq, run_id, key, held, children, expires, worker in rows:
        if session.tells_states:
            session.tell_state(run_id, key, State.COMPLETED, finished=from_microseconds(session.now), worker=worker)
        if held or children or expires <= session.now:
            endings.after_end(session, seq, run_id, State.COMPLETED, held, children, expires)
    return frozenset(row[1] for row in rows)


def _finish(session: Session, verdict: Verdict) -> Finished:
    return _settle(session, verdict) if isinstance(verdict, Settle) else _requeue(session, verdict)


def _settle(session: Session, verdict: Settle) -> Finished:
    claim, failure = verdict.claim, verdict.failure
    error = str(failure) if failure else None
    was_stopped = bool(verdict.then) and _was_stopped(session, claim)
    row = session.one(
        "settle", claim.id, session.docket, claim.epoch, verdict.state, session.now, verdict.result, error
    )
    if row is None:
        return _why_not(_standing(session, claim) or _archived(session, claim), verdict)
    seq, key, held, children, expires, worker, attempt, failures, started = row
    session.payload += len(verdict.result or b"")
    if failure:
        endings.note_error(session, seq, failures, attempt, worker, failure)
    if session.tells_states:
        session.tell_state(
            claim.id, key, verdict.state, finished=from_microseconds(session.now), error=error, worker=worker,
            has_result=verdict.result is not None,
        )  # fmt: skip
    if verdict.unbegun and held:
        limits.give_back(session, seq, started, load_limits(held))
    if held or children or expires <= session.now:
        endings.after_end(session, seq, claim.id, verdict.state, held, children, expires)
    if verdict.then:
        # A run that was asked to stop, and ended before it heard of it, is not followed by another of its key.
        successors = [run for run in verdict.then if not (was_stopped and run.key == key)]
        scheduling.schedule(session, successors)
    return Finished.DONE


def _was_stopped(session: Session, claim: Claim) -> bool:
    standing = _standing(session, claim)
    return standing is not None and bool(standing.stop)


def _requeue(session: Session, verdict: Requeue) -> Finished:
    claim, failure = verdict.claim, verdict.failure
    standing = _standing(session, claim)
    if standing is None or standing.state != State.RUNNING:
        return _why_not(standing or _archived(session, claim), verdict)
    if standing.stop:
        # It was asked to stop: it does not go again.
        return _settle(session, Settle(claim, State.CANCELLED, failure=failure, unbegun=verdict.unbegun))
    if verdict.crashed and standing.crashes + 1 >= standing.crash_limit:
        session.run("count_crash", standing.seq)
        return _settle(session, Settle(claim, State.FAILED, failure=verdict.poisoned))
    due = session.moment(verdict.due)
    state, place = scheduling.ready_or_scheduled(session, due, standing.queue, standing.group, standing.weight)
    seq, key, held, failures = session.one(
        "requeue", claim.id, session.docket, claim.epoch, state, due, verdict.attempt, verdict.payload,
        str(failure) if failure else None, place, int(verdict.crashed),
    )  # fmt: skip
    if held:
        limits.free(session, seq, load_limits(held))
    if held and verdict.unbegun:
        limits.give_back(session, seq, standing.started, load_limits(held))
    if session.one("other_pending", session.docket, key, seq):
        # The other has taken the key; what hung on this one is not the other's business.
        endings.settle_children(session, seq, claim.id, completed=False)
        endings.forget(session, seq)
        return Finished.YIELDED
    if failure:
        endings.note_error(session, seq, failures, claim.attempt, standing.worker, failure)
    session.work = True
    session.tell_state(claim.id, key, state, when=from_microseconds(due))
    return Finished.DONE


class Standing(NamedTuple):
    """How a run stands that a verdict speaks of."""

    state: str
    attempt: int
    queue: str
    group: str | None
    weight: float | None
    worker: str | None
    stop: int
    seq: int
    crashes: int
    crash_limit: int
    started: int


def _standing(session: Session, claim: Claim) -> Standing | None:
    """How the run of a claim stands, or None if the claim is void."""
    row = session.one("standing", claim.id, session.docket, claim.epoch)
    return Standing(*row) if row else None


def _archived(session: Session, claim: Claim) -> Standing | None:
    row = session.one("standing_in_archive", claim.id, session.docket, claim.epoch)
    return Standing(*row) if row else None


def _why_not(standing: Standing | None, verdict: Verdict) -> Finished:
    """A claim that is void, or a verdict that was accepted before. The first one that was accepted stands."""
    if standing is None:
        return Finished.FENCED
    if isinstance(verdict, Settle):
        return Finished.ALREADY if standing.state == verdict.state else Finished.FENCED
    went_again = standing.state in (State.SCHEDULED, State.QUEUED) and standing.attempt == verdict.attempt
    ended = standing.state == State.CANCELLED or (verdict.crashed and standing.state == State.FAILED)
    return Finished.ALREADY if went_again or ended else Finished.FENCED
