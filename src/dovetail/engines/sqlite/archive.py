"""The archive: records past their retention that are kept all the same, apart from the others."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dovetail.engines.sqlite import endings
from dovetail.engines.sqlite.session import Session


def move(session: Session, seqs: Sequence[int]) -> None:
    """Put runs that are over into the archive. What belongs to them stays where it is, and finds them by number."""
    if not seqs:
        return
    moving = msgspec.json.encode(seqs).decode()
    session.run("mark_last")
    session.run("archive", moving)
    session.run("leave_for_archive", moving)


def bring_back(session: Session, run_id: str) -> None:
    """Take a run out of the archive, if it is there. One that does not go to work after all is moved again in time."""
    found = session.one("archived", run_id, session.docket, session.now)
    if found:
        _bring_back(session, found[0])


def bring_children_back(session: Session, parent: int, parent_id: str) -> None:
    """The same for the runs that the end of a parent had cancelled."""
    for (seq,) in session.all("archived_children", parent, parent_id):
        _bring_back(session, seq)


def _bring_back(session: Session, seq: int) -> None:
    session.run("bring_back", seq)
    session.run("forget_archived", seq)


def forget(session: Session, seq: int) -> None:
    """Drop a run that may lie in the archive, and all that belongs to it."""
    endings.forget(session, seq)
    session.run("forget_archived", seq)


def discard(session: Session, ids: Sequence[str]) -> list[bool]:
    return [_discard(session, run_id) for run_id in ids]


def _discard(session: Session, run_id: str) -> bool:
    over = session.one("terminal", run_id, session.docket, session.now)
    over = over or session.one("archived", run_id, session.docket, session.now)
    if over:
        forget(session, over[0])
    return bool(over)


def archived(session: Session) -> int:
    return session.one("count_archived", session.docket)[0]
