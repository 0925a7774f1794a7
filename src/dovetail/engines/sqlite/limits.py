"""Limits: how full they are, who waits for them, and whose turn is next."""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.clock import duration_to_microseconds, from_microseconds
from dovetail.engine.admission import Refusal, Usage, opens_at
from dovetail.engines.sqlite.session import Session, load_limits
from dovetail.model import Limit, State


def usage_of(session: Session, limits: Iterable[Limit]) -> dict[str, Usage]:
    """How much room each of these limits has left."""
    usage: dict[str, Usage] = {}
    for limit in set(limits):
        used = usage.setdefault(limit.key, Usage())
        if limit.window is None:
            used.running = session.one("slots_held", session.docket, limit.key)[0]
        elif len(used.starts) < limit.capacity:
            starts = session.all("recent_starts", session.docket, limit.key, limit.capacity)
            used.starts = [at for (at,) in reversed(starts)]
    return usage


def take(session: Session, seq: int, limits: Iterable[Limit]) -> None:
    """Take the room a run was admitted to."""
    for limit in limits:
        if limit.window is None:
            session.run("hold_slot", session.docket, limit.key, seq)
        else:
            until = session.now + duration_to_microseconds(limit.window)
            session.run("note_start", session.docket, limit.key, session.now, until, seq)


def park(session: Session, seq: int, refusal: Refusal) -> None:
    """Let a run wait for room, until a slot is set free or the window opens."""
    session.run("park", seq, refusal.limit.key)
    if refusal.opens is not None:
        session.run("set_opening", session.docket, refusal.limit.key, refusal.opens)


def free(session: Session, seq: int, limits: Iterable[Limit]) -> None:
    """Give back the slots of a run that is no longer running; each wakes the next in line."""
    for limit in limits:
        if limit.window is None and session.run("free_slot", session.docket, limit.key, seq).rowcount:
            wake_next(session, limit.key)


def give_back(session: Session, seq: int, started: int, limits: Iterable[Limit]) -> None:
    """Take back the starts of a claim whose body never began; each wakes the next in line. A claim that took over a
    lapsed lease has none: the body of the one before it may have begun."""
    for limit in limits:
        if limit.window is not None and session.run("forget_start", session.docket, limit.key, started, seq).rowcount:
            wake_next(session, limit.key)


def pass_turn_on(session: Session, turn: str | None) -> None:
    """A woken run that goes without having started hands its turn to the next."""
    if turn is not None:
        wake_next(session, turn)


def wake_next(session: Session, limit_key: str, at_most: int = 1) -> int:
    """Put the first of those that wait for a limit among what may be claimed."""
    waiting = session.all("first_parked", session.docket, limit_key, at_most)
    for seq, run_id, key, _, due, _ in waiting:
        session.run("wake", seq, limit_key)
        session.tell_state(run_id, key, State.QUEUED, when=from_microseconds(due))
    session.work = session.work or bool(waiting)
    return len(waiting)


def open_windows(session: Session, at_most: int) -> None:
    """Wake those whose window has opened."""
    for (limit_key,) in session.all("openings_due", session.docket, session.now, at_most):
        session.run("forget_opening", session.docket, limit_key)
        _fill(session, limit_key, at_most)


def expect_opening(session: Session, limit: Limit, used: Usage) -> None:
    """After a start under a windowed limit: note when it opens for those still parked on it."""
    opens = opens_at(limit, used)
    if opens > session.now and session.all("first_parked", session.docket, limit.key, 1):
        session.run("set_opening", session.docket, limit.key, opens)


def refill(session: Session, at_most: int) -> int:
    """Wake parked runs whose limit has room. Turns are never lost, so this finds work only after damage."""
    woken = 0
    limit_key = ""
    for _ in range(at_most):
        (limit_key,) = session.one("limits_with_parked", session.docket, limit_key)
        if limit_key is None:
            break
        woken += _fill(session, limit_key, at_most)
    return woken


def _fill(session: Session, limit_key: str, at_most: int) -> int:
    """Wake as many of those parked on a limit as it has room for; note the next opening if it has none."""
    first = session.one("first_parked", session.docket, limit_key, 1)
    if first is None:
        return 0
    limit = next((limit for limit in load_limits(first[5]) if limit.key == limit_key), None)
    if limit is None:
        return wake_next(session, limit_key)  # parked on a limit that it does not have: let it be judged anew
    used = usage_of(session, [limit])[limit_key]
    room = limit.capacity - taken(limit, used, session.now)
    if room > 0:
        return wake_next(session, limit_key, min(room, at_most))
    if limit.window is not None:
        session.run("set_opening", session.docket, limit_key, opens_at(limit, used))
    return 0


def taken(limit: Limit, used: Usage, now: int) -> int:
    """How much of a limit is in use."""
    if limit.window is None:
        return used.running
    begin = now - duration_to_microseconds(limit.window)
    return sum(at > begin for at in used.starts)


def with_room(session: Session, at_most: int) -> list[str]:
    """Limits that runs are parked on though there is room: more than those may take whose turn it is."""
    found: list[str] = []
    limit_key = ""
    for _ in range(at_most):
        (limit_key,) = session.one("limits_with_parked", session.docket, limit_key)
        if limit_key is None:
            break
        first = session.one("first_parked", session.docket, limit_key, 1)
        limit = next((limit for limit in load_limits(first[5]) if limit.key == limit_key), None)
        if limit is None:
            found.append(limit_key)
            continue
        room = limit.capacity - taken(limit, usage_of(session, [limit])[limit_key], session.now)
        if room > 0 and room > session.one("turns_given", session.docket, limit_key)[0]:
            found.append(limit_key)
    return found
