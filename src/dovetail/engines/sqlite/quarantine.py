"""Quarantine: runs whose records cannot be read are set aside, so that they stop no other.

Only somebody who altered the file by hand, or a disk that did, can bring a record to this.
"""

from __future__ import annotations

import sqlite3

from dovetail.clock import from_microseconds
from dovetail.engines.sqlite.session import Session, load_headers, load_limits

LOOKED_AT = 500
KEPT = 86_400_000_000
"""Microseconds that a record which was set aside is kept, for someone to look at."""


def quarantine(session: Session) -> int:
    """Fail what stands first in line and cannot be read; how many that were."""
    damaged = [
        seq for (seq,) in session.all("candidates", session.docket, session.now, LOOKED_AT) if _is_damaged(session, seq)
    ]
    for seq in damaged:
        session.run("set_aside", seq, session.now, session.now + KEPT)
    return len(damaged)


def _is_damaged(session: Session, seq: int) -> bool:
    try:
        row = session.one("readable", seq)
        _check(*row)
    except (sqlite3.OperationalError, ValueError, TypeError, OverflowError):
        return True
    return False


def _check(
    task: object, queue: object, priority: object, place: object, due: int, limits: str | None, headers: str | None
) -> None:
    if not (isinstance(task, str) and isinstance(queue, str)):
        raise TypeError("a name that is no text")
    if not (isinstance(priority, int) and isinstance(place, float)):
        raise TypeError("an order that is no number")
    from_microseconds(due)
    load_headers(headers)
    if any(limit.capacity < 1 for limit in load_limits(limits)):
        raise ValueError("a limit that lets nothing through")
