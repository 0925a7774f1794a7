"""Sweeping: what is past its time goes, what was left behind is put right. All in bounded steps."""

from __future__ import annotations

from datetime import timedelta

from dovetail.clock import duration_to_microseconds
from dovetail.engines.sqlite import endings, limits
from dovetail.engines.sqlite.session import Session
from dovetail.model import Swept

TABLES = ("run", "slot", "start", "opening", "share", "hold", "worker")


def sweep(session: Session, silent_for: timedelta, at_most: int) -> Swept:
    session.tidy = True
    expired = session.all("expired", session.docket, session.now, at_most)
    for (seq,) in expired:
        endings.forget(session, seq)
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
    return Swept(len(expired), workers, holds, repaired, more=len(expired) >= at_most or starts >= at_most)


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
        orphans = f"SELECT COUNT(*) FROM dovetail_{table} WHERE {column} NOT IN (SELECT seq FROM dovetail_run)"  # noqa: S608
        counts[f"{table} without {column}"] = session.db.execute(orphans).fetchone()[0]
    return {name: count for name, count in counts.items() if count}
