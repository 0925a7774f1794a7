"""Placing many runs at once: those that nothing can stand in the way of go in with one statement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Any

import msgspec

from dovetail.clock import duration_to_microseconds, from_microseconds
from dovetail.engines.sqlite import fairness
from dovetail.engines.sqlite.session import SQL, Session
from dovetail.model import NewRun, Placement, Placing, Retention, State

WORTH_IT = 8
"""How many runs must come together for this to be faster than one by one."""
ROWS = 100
"""How many runs go into one statement. SQLite before 3.32 knows 999 parameters; each run takes three."""
COMMON = 14
"""How many parameters the runs of one statement share."""

_encode = msgspec.json.encode

Place = Callable[[Session, NewRun], Placement]
Shape = tuple[Any, ...]


def schedule(session: Session, runs: Sequence[NewRun], place: Place) -> list[Placement]:
    """Place the runs in their order: plain ones in bulk, each of the others by `place`."""
    placements: list[Placement] = []
    for shape, alike in groupby(runs, _shape):
        if shape is None:
            placements += [place(session, run) for run in alike]
        else:
            group = list(alike)
            for start in range(0, len(group), ROWS):
                some = group[start : start + ROWS]
                # A run that is called by its id has its key to itself, unless someone used that id as a key.
                if session.one("any_key_held", session.docket, _encode([run.key for run in some]).decode()):
                    placements += [place(session, run) for run in some]
                else:
                    placements += _place_alike(session, shape, some)
    return placements


def _shape(run: NewRun) -> Shape | None:
    """What runs must have in common to share a statement; None for one that has to be placed by itself."""
    if run.key != run.id or run.after or run.limits or run.headers or run.group is not None or run.instead_of:
        return None
    return run.task, run.queue, run.priority, run.attempt, run.crash_limit, run.retention


def _place_alike(session: Session, shape: Shape, runs: list[NewRun]) -> list[Placement]:
    dues = [session.moment(run.due) for run in runs]
    ready = [due <= session.now for due in dues]
    if all(ready) or not any(ready):
        return _insert(session, shape, runs, dues, State.QUEUED if ready[0] else State.SCHEDULED)
    placed: dict[str, Placement] = {}
    for state in (State.QUEUED, State.SCHEDULED):
        chosen = [n for n, is_ready in enumerate(ready) if is_ready is (state is State.QUEUED)]
        some = _insert(session, shape, [runs[n] for n in chosen], [dues[n] for n in chosen], state)
        placed |= {placement.id: placement for placement in some}
    return [placed[run.id] for run in runs]


def _insert(session: Session, shape: Shape, runs: list[NewRun], dues: list[int], state: State) -> list[Placement]:
    task, queue, priority, attempt, crash_limit, retention = shape
    place = fairness.place(session, queue, None, None) if state is State.QUEUED else 0.0
    values: list[Any] = [
        session.docket, task, queue, -priority, state, session.now, attempt, crash_limit, place, *keeps(retention),
    ]  # fmt: skip
    for run, due in zip(runs, dues, strict=True):
        values += (run.id, due, run.payload)
        session.payload += len(run.payload)
    inserted = session.db.execute(_statement(len(runs)), values).rowcount
    session.work = session.work or bool(inserted)
    if session.tells_states:
        for run, due in zip(runs, dues, strict=True):
            session.tell_state(run.id, run.key, state, when=from_microseconds(due))
    if inserted == len(runs):
        return [Placement(Placing.PLACED, run.id, state) for run in runs]
    # Some of these requests were made before: each says how its run stands now.
    return [Placement(Placing.PLACED, run.id, State(session.one("known", session.docket, run.id)[0])) for run in runs]


_statements: dict[int, str] = {}


def _statement(count: int) -> str:
    known = _statements.get(count)
    if known is None:
        common = ", ".join(f"?{n}" for n in range(1, COMMON + 1))
        rows = (f"({common}, ?{n}, ?{n + 1}, ?{n + 2})" for n in range(COMMON + 1, COMMON + 1 + 3 * count, 3))
        known = _statements[count] = SQL["place_alike"].replace("{rows}", ",\n".join(rows))
    return known


_usual = Retention()


LONGEST_KEPT = 10**17
"""Microseconds, some three thousand years: what is kept longer is kept for ever."""


Keeps = tuple[int, int, int, int | None, int | None]


def _microseconds(retention: Retention) -> Keeps:
    kept = (retention.completed, retention.failed, retention.cancelled)
    completed, failed, cancelled = (_bounded(each) for each in kept)
    archived = None if retention.archive is None else _bounded(retention.archive)
    return completed, failed, cancelled, retention.keep, archived


def _bounded(duration: timedelta) -> int:
    return min(duration_to_microseconds(duration), LONGEST_KEPT)


_as_usual = _microseconds(_usual)


def keeps(retention: Retention) -> Keeps:
    """How long the record is kept in each ending, in microseconds; of how many; and for how long in the archive."""
    return _as_usual if retention == _usual else _microseconds(retention)
