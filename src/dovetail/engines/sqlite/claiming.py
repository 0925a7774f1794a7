"""Claiming: what lapsed, what became due, what is ready, and what limits allow."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from dovetail.clock import duration_to_microseconds, from_microseconds
from dovetail.engine.admission import Refusal, Usage, admit
from dovetail.engines.sqlite import endings, fairness, limits
from dovetail.engines.sqlite.ready import Ready, first_aged, first_ready, open_queues
from dovetail.engines.sqlite.session import Session, load_headers, load_limits
from dovetail.model import BROUGHT, Claim, Claimed, Failure, Limit, Result, State

PROMOTED = 1000
"""How many runs that became due join the ready order in one call."""
EXAMINED = 500
"""How many ready runs one call looks at beyond those it may hand out."""
OPENED = 100
"""How many windows are opened in one call."""


_NO_HEADERS: dict[str, str] = {}


Leapt = Callable[[timedelta], bool]
"""Whether the clock was set forward within such a time."""


def claim(
    session: Session,
    worker: str,
    want: int,
    queues: Sequence[str],
    lease: timedelta,
    *,
    leapt: Leapt,
    ageing: timedelta | None = None,
) -> Claimed:
    """Lease up to `want` runs. For a while after the clock leapt, no lease counts as lapsed."""
    if want <= 0:
        return Claimed([])
    until = session.now + duration_to_microseconds(lease)
    paused: dict[str, int | None] = dict(session.all("paused", session.docket, session.now))
    working = open_queues(session, "first_running_queue", queues, paused)
    claims: list[Claim] = []
    poisoned: list[str] = []
    grace = leapt(lease)
    lapsed, looked_at_all = (0, True) if grace else _take_over(session, worker, want, until, working, claims, poisoned)
    limits.open_windows(session, OPENED)
    _promote(session)
    look = partial(open_queues, session, "first_ready_queue", queues, paused)
    first = first_ready if ageing is None else partial(first_aged, ageing=duration_to_microseconds(ageing))
    looked_at_all &= _take_ready(session, worker, want, until, look, first, claims)
    if len(claims) == want:
        return Claimed(claims, None, lapsed, tuple(poisoned))
    # What this call itself has set free may lie in a queue that it was already past.
    ends = [end for queue, end in paused.items() if end is not None and (not queues or queue in queues)]
    wait = _wait(session, working, ends) if looked_at_all and not session.work else timedelta()
    if grace:
        wait = lease if wait is None else min(wait, lease)
    return Claimed(claims, wait, lapsed, tuple(poisoned))


def _take_over(
    session: Session, worker: str, want: int, until: int, queues: list[str], claims: list[Claim], poisoned: list[str]
) -> tuple[int, bool]:
    """Runs whose lease lapsed: each goes on here, unless it was asked to stop or has crashed too often. How many were
    seen to, and whether all of them were looked at."""
    bound, left = want + EXAMINED, 0
    lapsed = [row for queue in queues for row in session.all("lapsed", session.docket, queue, session.now, bound)]
    for seq, crashes, crash_limit, stop in lapsed[:bound]:
        if stop:
            endings.end(session, seq, State.CANCELLED, None)
        elif crashes + 1 >= crash_limit:
            poisoned += session.one("count_crash", seq)
            endings.end(session, seq, State.FAILED, _poisoned(crashes + 1))
        elif len(claims) < want:
            row = session.one("take_over", seq, worker, until, session.now)
            claims.append(_started(session, row, worker, redelivered=True))
        else:
            left += 1
    return min(len(lapsed), bound) - left, len(lapsed) < bound


def _poisoned(crashes: int) -> Failure:
    return Failure("Poisoned", f"the run was started {crashes} times, and each time its worker vanished without a word")


def _promote(session: Session) -> None:
    """What has become due joins the ready order."""
    for seq, queue, group, weight in session.all("became_due", session.docket, session.now, PROMOTED):
        session.run("make_ready", seq, fairness.place(session, queue, group, weight))
        if session.tells_states:
            run_id, key, due = session.one("named", seq)
            session.tell_state(run_id, key, State.QUEUED, when=from_microseconds(due))


def _take_ready(
    session: Session,
    worker: str,
    want: int,
    until: int,
    look: Callable[[], list[str]],
    first: Callable[[Session, list[str], int], list[Ready]],
    claims: list[Claim],
) -> bool:
    """Add claims until there are as many as wanted; whether everything that is ready was looked at."""
    examined = 0
    queues = look()
    while len(claims) < want:
        batch = first(session, queues, want - len(claims))
        if not batch:
            return True
        if examined > EXAMINED:
            return False
        admitted = _admitted(session, batch)
        claims += _start(session, admitted, worker, until)
        examined += len(batch)
        if len(admitted) < len(batch):
            queues = look()  # a run that was dropped may have set others free, in a queue that had nothing
    return True


def _start(session: Session, admitted: list[Ready], worker: str, until: int) -> list[Claim]:
    """Lease what was admitted, with one statement, and hand it over in claim order."""
    if not admitted:
        return []
    seqs = f"[{','.join([str(ready.seq) for ready in admitted])}]"
    rows = {row[-1]: row for row in session.all("start", seqs, worker, until, session.now)}
    for ready in admitted:
        if ready.place:
            fairness.note_claimed(session, ready.queue, ready.place)
    return [_started(session, row := rows[ready.seq], worker, redelivered=row[10] > 0) for ready in admitted]


def _admitted(session: Session, batch: list[Ready]) -> list[Ready]:
    """Those of the batch that their limits allow to start; the others are parked or dropped."""
    if not any(ready.limits for ready in batch):
        return batch
    asked = [load_limits(ready.limits) for ready in batch]
    used = limits.usage_of(session, [limit for each in asked for limit in each])
    refusals = admit(asked, used, session.now)
    admitted: list[Ready] = []
    for ready, wanted, refusal in zip(batch, asked, refusals, strict=True):
        if refusal is None:
            limits.take(session, ready.seq, wanted)
            admitted.append(ready)
        else:
            _refuse(session, ready, refusal)
    _expect_openings(session, asked, refusals, used)
    return admitted


def _refuse(session: Session, ready: Ready, refusal: Refusal) -> None:
    if refusal.limit.drop:
        # Ending it passes no slot on, since it never held one; its turn, if it had one, it passes on below.
        endings.end(session, ready.seq, State.CANCELLED, refusal.limit.dropped)
    else:
        limits.park(session, ready.seq, refusal)
        session.tell_state(ready.id, _key_of(session, ready), State.SCHEDULED, when=from_microseconds(ready.due))
    if ready.turn != refusal.limit.key:
        limits.pass_turn_on(session, ready.turn)


def _key_of(session: Session, ready: Ready) -> str:
    if not session.tells_states:
        return ready.id
    return session.one("named", ready.seq)[1]


def _expect_openings(
    session: Session, asked: list[tuple[Limit, ...]], refusals: list[Refusal | None], used: dict[str, Usage]
) -> None:
    started = {limit.key: limit for each, no in zip(asked, refusals, strict=True) if no is None for limit in each}
    for limit in started.values():
        if limit.window is not None:
            limits.expect_opening(session, limit, used[limit.key])


def _started(session: Session, row: tuple[Any, ...], worker: str, *, redelivered: bool) -> Claim:
    run_id, epoch, key, task, payload, attempt, due, queue, priority, group, crashes, headers, wants_results, seq = row
    if session.tells_states:
        session.tell_state(run_id, key, State.RUNNING, worker=worker, started=from_microseconds(session.now))
    return Claim(
        run_id, epoch, key, task, payload, attempt, from_microseconds(due), queue, priority, group,
        redelivered, crashes, load_headers(headers) if headers else _NO_HEADERS,
        _results(session, seq) if wants_results else (),
    )  # fmt: skip


def _results(session: Session, seq: int) -> tuple[Result, ...]:
    """What the parents of a run have returned. A record that somebody altered stops no claim: none is brought, and
    whoever looks for it is told."""
    try:
        return tuple(Result(*row) for row in session.all("results_of_parents", seq, session.now, BROUGHT))
    except sqlite3.OperationalError:
        return ()


def _wait(session: Session, queues: list[str], ends: list[int]) -> timedelta | None:
    """How long until something known becomes due: a future run, a window that opens, a lease that lapses, a pause that
    ends."""
    moments: list[int | None] = [*ends]
    moments += [session.one("next_due", session.docket)[0], session.one("next_opening", session.docket)[0]]
    moments += [session.one("next_lapse", session.docket, queue, session.now)[0] for queue in queues]
    known = [moment for moment in moments if moment is not None]
    return timedelta(microseconds=max(min(known) - session.now, 0)) if known else None
