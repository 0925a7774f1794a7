"""Clearing: many pending runs are cancelled at once."""

from __future__ import annotations

import msgspec

from dovetail.clock import from_microseconds
from dovetail.engine.clearing import pending_of
from dovetail.engines.sqlite import archive, endings, limits, sight
from dovetail.engines.sqlite.session import Session
from dovetail.model import Cleared, RunQuery, State

_encode = msgspec.json.encode


def clear(session: Session, query: RunQuery) -> Cleared:
    asked = pending_of(query)
    if asked is None:
        return Cleared(0)
    found = sight.live(session, asked, "seq, children, turn")
    step = found[: query.limit]
    ended = sum(_cancel(session, seq) for seq, children, _ in step if children)
    ended += _cancel_all(session, [seq for seq, children, _ in step if not children])
    for _, _, turn in step:
        limits.pass_turn_on(session, turn)
    return Cleared(ended, str(step[-1][0]) if len(found) > len(step) else None)


def _cancel(session: Session, seq: int) -> int:
    """Cancel a run and what hangs on it, unless it fell with one that it hung on itself."""
    if not session.one("is_pending", seq):
        return 0
    return 1 + endings.end(session, seq, State.CANCELLED, None)


def _cancel_all(session: Session, seqs: list[int]) -> int:
    """Cancel runs that none hang on, as far as they did not fall with others."""
    ended = session.all("cancel_all", _encode(seqs).decode(), session.now)
    finished = from_microseconds(session.now)
    for _, run_id, key, _ in ended:
        session.tell_state(run_id, key, State.CANCELLED, finished=finished)
    archive.drop(session, [seq for seq, _, _, expires in ended if expires <= session.now])
    return len(ended)
