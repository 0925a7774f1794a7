"""Where a run stands: who is before it, and how full its limits are."""

from __future__ import annotations

from typing import Any

from dovetail.clock import from_microseconds
from dovetail.engine.admission import Usage, opens_at
from dovetail.engines.sqlite import limits, sight
from dovetail.engines.sqlite.session import Session, load_limits
from dovetail.model import Limit, LimitUse, Standing, State
from dovetail.model.standing import COUNTED, NAMED


def standing(session: Session, run_id: str) -> Standing | None:
    row = session.one("live_place", run_id, session.docket)
    if row is None:
        return None
    state, epoch, parked_on, *place, asked = row
    wanted = load_limits(asked)
    used = limits.usage_of(session, wanted)
    return Standing(
        from_microseconds(session.now), State(state), epoch, parked_on,
        min(_ahead(session, state, parked_on, *place), COUNTED),
        tuple(_use(session, limit, used[limit.key]) for limit in wanted), tuple(sight.workers_of(session)),
    )  # fmt: skip


def _ahead(
    session: Session, state: str, parked_on: str | None, queue: str, priority: int, place: float, due: int, run_id: str
) -> int:
    here: tuple[Any, ...] = (priority, place, due, run_id)
    if parked_on is not None:
        return session.one("parked_before", session.docket, parked_on, *here, COUNTED)[0]
    if state == State.QUEUED:
        return session.one("ready_before", session.docket, queue, *here, COUNTED)[0]
    if state == State.SCHEDULED and due <= session.now:
        return session.one("due_before", session.docket, queue, priority, due, COUNTED)[0]
    return 0


def _use(session: Session, limit: Limit, used: Usage) -> LimitUse:
    taken = min(limits.taken(limit, used, session.now), limit.capacity) if limit.window else used.running
    if limit.window is None:
        rows = session.all("slot_holders", session.docket, limit.key, NAMED)
        return LimitUse(limit, taken, tuple(run_id for (run_id,) in rows))
    opens = opens_at(limit, used)
    return LimitUse(limit, taken, opens=from_microseconds(opens) if opens > session.now else None)
