"""Sweeping: what is past its time goes, what was left behind is put right. All in bounded steps."""

from __future__ import annotations

from datetime import timedelta

from dovetail.clock import duration_to_microseconds
from dovetail.engines.sqlite import archive, limits
from dovetail.engines.sqlite.session import Session
from dovetail.model import Swept

TABLES = ("run", "archive", "slot", "start", "opening", "share", "hold", "worker")


def sweep(session: Session, silent_for: timedelta, at_most: int) -> Swept:
    session.tidy = True
    dropped, archived, more = _clear_out(session, at_most)
    silent_since = session.now - duration_to_microseconds(silent_for)
    workers = session.run("forget_silent_workers", session.docket, silent_since).rowcount
    holds = session.run("forget_past_holds", session.docket, session.now).rowcount
    if holds:
        session.run("holds_changed", session.docket)
        session.work = True
    starts = session.run("forget_starts", session.docket, session.now, at_most).rowcount
    session.run("forget_idle_shares", session.docket)
    session.run("forget_idle_openings", session.docket)
    repaired = _free_orphans(session) + limits.refill(session, at_most)
    return Swept(dropped, workers, holds, repaired, archived, more=more or starts >= at_most)


def _clear_out(session: Session, at_most: int) -> tuple[int, int, bool]:
    """Records past their retention: how many were dropped, how many went to the archive, and whether there is more."""
    expired = [seq for (seq,) in session.all("expired", session.docket, session.now, at_most)]
    archive.drop(session, expired)
    surplus, counted_out = _surplus(session, at_most)
    archive.drop(session, surplus)
    archive.move(session, counted_out)
    ripe = [seq for (seq,) in session.all("ripe", session.docket, session.now, at_most)]
    archive.move(session, ripe)
    past = [seq for (seq,) in session.all("expired_in_archive", session.docket, session.now, at_most)]
    archive.drop(session, past)
    counts = (len(expired), len(surplus) + len(counted_out), len(ripe), len(past))
    dropped = len(expired) + len(surplus) + len(past)
    return dropped, len(counted_out) + len(ripe), any(count >= at_most for count in counts)


def _surplus(session: Session, at_most: int) -> tuple[list[int], list[int]]:
    """Runs beyond their count, at most so many: those that go for good, and those that go to the archive."""
    dropped: list[int] = []
    archived: list[int] = []
    task = state = ""
    while (room := at_most - len(dropped) - len(archived)) > 0:
        counted = session.one("next_counted", session.docket, task, state)
        if counted is None:
            break
        task, state = counted
        (most,) = session.one("most_kept", session.docket, task, state)
        for seq, is_archived in session.all("surplus", session.docket, task, state, most, room):
            (archived if is_archived else dropped).append(seq)
    return dropped, archived


def _free_orphans(session: Session) -> int:
    """Slots whose run no longer runs: there are none unless somebody altered the file by hand."""
    orphans = session.all("forget_orphaned_slots", session.docket)
    for (limit_key,) in orphans:
        limits.wake_next(session, limit_key)
    return len(orphans)


def residue(session: Session) -> dict[str, int]:
    """Rows that are left of a docket, by table."""
    counts = {
        table: session.db.execute(
            f"SELECT COUNT(*) FROM dovetail_{table} WHERE docket = ?",  # noqa: S608 - names of our own
            (session.docket,),
        ).fetchone()[0]
        for table in TABLES
    }
    for table, column in (("error", "run"), ("edge", "parent"), ("edge", "child")):
        orphans = (
            f"SELECT COUNT(*) FROM dovetail_{table} WHERE {column} NOT IN"  # noqa: S608 - names of our own
            " (SELECT seq FROM dovetail_run UNION ALL SELECT seq FROM dovetail_archive)"
        )
        counts[f"{table} without {column}"] = session.db.execute(orphans).fetchone()[0]
    return {name: count for name, count in counts.items() if count}
