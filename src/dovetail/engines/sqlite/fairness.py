"""Fair share: the place of a run among those that are ready."""

from __future__ import annotations

from dovetail.engines.sqlite.session import Session


def place(session: Session, queue: str, group: str | None, weight: float | None) -> float:
    """The place of a run that becomes ready now. Without groups in use it is nought."""
    if group is None and not session.has_shares:
        return 0.0
    virtual_time = _stored(session, queue, "")
    if group is None:
        return virtual_time
    last = session.one("place_of", session.docket, queue, _tag(group))
    given = virtual_time if last is None else max(virtual_time, last[0] + 1 / (weight or 1.0))
    session.run("note_place", session.docket, queue, _tag(group), given)
    session.shares = True
    return given


def note_claimed(session: Session, queue: str, place: float) -> None:
    """The queue's virtual time is the place of what was claimed last."""
    if place > 0:
        session.run("note_place", session.docket, queue, "", place)


def _stored(session: Session, queue: str, tag: str) -> float:
    found = session.one("place_of", session.docket, queue, tag)
    return found[0] if found else 0.0


def _tag(group: str) -> str:
    # The empty tag is the queue's own, so a group's begins with a colon.
    return f":{group}"
