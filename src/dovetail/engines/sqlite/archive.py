"""The archive: records past their retention that are kept all the same, apart from the others."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dovetail.engines.sqlite.session import Session

DROPPING = ("forget_runs", "forget_all_archived", "forget_all_errors", "forget_all_children", "forget_all_parents")


def move(session: Session, seqs: Sequence[int]) -> None:
    """Put runs that are over into the archive. What belongs to them stays where it is, and finds them by number."""
    if not seqs:
        return
    moving = msgspec.json.encode(seqs).decode()
    session.run("mark_last")
    session.run("archive", moving)
    session.run("forget_runs", moving)


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


def drop(session: Session, seqs: Sequence[int]) -> None:
    """Drop runs that are over, wherever they lie, and all that belongs to them."""
    if not seqs:
        return
    gone = msgspec.json.encode(seqs).decode()
    for statement in DROPPING:
        session.run(statement, gone)


def discard(session: Session, ids: Sequence[str]) -> list[bool]:
    found = {run_id: _over(session, run_id) for run_id in ids}
    drop(session, [seq for seq in found.values() if seq is not None])
    return [found.pop(run_id, None) is not None for run_id in ids]  # named twice, it goes once


def _over(session: Session, run_id: str) -> int | None:
    over = session.one("terminal", run_id, session.docket, session.now)
    over = over or session.one("archived", run_id, session.docket, session.now)
    return over[0] if over else None


def archived(session: Session) -> int:
    return session.one("count_archived", session.docket)[0]
