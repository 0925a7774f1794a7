"""What is ready: in which queues, and in which order."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import NamedTuple

from dovetail.engines.sqlite.session import Session

LEVELS = 64
"""How many priorities of a queue are looked at when runs age."""
ABOVE_ALL = -(2**63)
"""Before every priority, as they are kept: negated."""


class Ready(NamedTuple):
    """A run that may be claimed; those of a queue sort in claim order."""

    priority: int
    place: float
    due: int
    id: str
    seq: int
    queue: str
    limits: str | None
    turn: str | None


def open_queues(session: Session, first: str, queues: Sequence[str], paused: Container[str]) -> list[str]:
    """Those of the queues that are not paused; if none is named, of all that have something."""
    return [queue for queue in dict.fromkeys(queues or _queues(session, first)) if queue not in paused]


def _queues(session: Session, first: str) -> list[str]:
    """The queues that have something, one step of the index each."""
    queues: list[str] = []
    name = session.one(first, session.docket, "")[0]
    while name is not None:
        queues.append(name)
        name = session.one(first, session.docket, name)[0]
    return queues


def first_ready(session: Session, queues: list[str], at_most: int) -> list[Ready]:
    """The first of all these queues together."""
    return _merged([_line_up(session, queue, at_most) for queue in queues], at_most)


def first_aged(session: Session, queues: list[str], at_most: int, *, ageing: int) -> list[Ready]:
    """Likewise, but a priority counts as one more for each `ageing` that a run has been due."""
    return _merged([_line_up_aged(session, queue, at_most, ageing) for queue in queues], at_most)


def _merged(lines: list[list[Ready]], at_most: int) -> list[Ready]:
    """Always the first of one of the queues. A place means nothing beyond its queue, so there the due time decides."""
    if len(lines) == 1:
        return lines[0][:at_most]
    return list(islice(merge(*lines, key=lambda ready: (ready.priority, ready.due, ready.id)), at_most))


def _line_up(session: Session, queue: str, at_most: int) -> list[Ready]:
    return [
        Ready(priority, place, due, run_id, seq, queue, held, turn)
        for seq, priority, place, due, run_id, held, turn in session.all("ready", session.docket, queue, at_most)
    ]


def _line_up_aged(session: Session, queue: str, at_most: int, ageing: int) -> list[Ready]:
    levels = _levels(session, queue)
    return sorted(aged for level in levels for aged in _line(session, queue, level, at_most, ageing))


def _levels(session: Session, queue: str) -> Iterator[int]:
    """The priorities that a queue has, the highest first, one step of the index each."""
    level = ABOVE_ALL
    for _ in range(LEVELS):
        (level,) = session.one("level_after", session.docket, queue, level)
        if level is None:
            return
        yield level


def _line(session: Session, queue: str, priority: int, at_most: int, ageing: int) -> Iterator[Ready]:
    """The first of one priority. None counts as higher than the one before it: among them the order stays."""
    counts_as = ABOVE_ALL
    for seq, place, due, run_id, held, turn in session.all("level", session.docket, queue, priority, at_most):
        counts_as = max(counts_as, priority - max(session.now - due, 0) // ageing)
        yield Ready(counts_as, place, due, run_id, seq, queue, held, turn)
