"""Queues: how a worker shares itself among them, what is in them, and whether they give anything out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from dovetail import checks
from dovetail.engine import Engine
from dovetail.errors import InvalidArgument
from dovetail.model import Hold, HoldKind, State, Survey


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue that a worker takes: its share of the worker's starts, and how many of its runs may be there at a time.

    Worker(docket, queues=[Queue("mail", weight=3), Queue("reports", concurrency=2)])
    """

    name: str
    weight: int = 1
    concurrency: int | None = None

    def __post_init__(self) -> None:
        checks.text(self.name, "the name of a queue")
        checks.whole(self.weight, f"the weight of the queue {self.name!r}", least=1)
        if self.concurrency is not None:
            checks.whole(self.concurrency, f"the concurrency of the queue {self.name!r}", least=1)

    @classmethod
    def parse(cls, text: str) -> str | Self:
        """A queue as the command line names it: `mail`, `mail=3` with a weight, `mail=3:2` with a concurrency too."""
        name, sign, rest = text.rpartition("=")
        if not sign:
            return text
        numbers = [number.strip() for number in rest.split(":")]
        if len(numbers) > 2 or not all(number.isascii() and number.isdigit() for number in numbers):
            raise InvalidArgument(
                f"{text!r} names no queue; write 'mail', 'mail=3' (its weight) or 'mail=3:2' (and how many at a time)"
            )
        return cls(name, *map(int, numbers))


def taken(queues: Sequence[str | Queue]) -> tuple[tuple[str, ...], tuple[Queue, ...]]:
    """The names of the queues that a worker takes; and their shares, unless all of them are only names."""
    demand = "queues must be a list, such as ['mail', Queue('reports', weight=2)]"
    members = checks.members(queues, demand, but=(str, bytes, Mapping))
    if not any(isinstance(each, Queue) for each in members):
        return tuple(checks.texts(members, "queues")), ()
    shares = tuple(each if isinstance(each, Queue) else Queue(each) for each in members)
    names = tuple(share.name for share in shares)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidArgument(f"the queue {twice!r} is named twice; give it one weight and one concurrency")
    return names, shares


@dataclass(frozen=True, slots=True)
class Pause:
    """Who paused a queue, why, since when and until when; without an end it is until somebody resumes it."""

    reason: str | None = None
    owner: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue at one moment: how many of its runs are in which state, and since when the first that is due waits."""

    name: str
    counts: Mapping[State, int]
    oldest_due: datetime | None = None
    paused: Pause | None = None

    @property
    def is_paused(self) -> bool:
        return self.paused is not None

    def count(self, *states: State) -> int:
        """How many runs are in these states; in all of them, if none is named."""
        return sum(self.counts[state] for state in states or State)


async def pause(
    engine: Engine, now: datetime, queue: str, reason: str | None, owner: str | None, until: datetime | None
) -> None:
    """Let nothing of a queue start."""
    checks.text(queue, "queue")
    if reason is not None:
        checks.text(reason, "reason")
    if owner is not None:
        checks.text(owner, "owner")
    if until is not None and checks.moment(until, "until") <= now:
        raise InvalidArgument(f"until is over already: {until}; the queue {queue!r} would not be paused at all")
    await engine.hold([Hold(HoldKind.PAUSE, queue=queue, reason=reason, owner=owner, until=until)])


async def resume(engine: Engine, queue: str) -> None:
    """Let a queue give out its runs again."""
    await engine.lift([Hold(HoldKind.PAUSE, queue=checks.text(queue, "queue"))])


async def queues(engine: Engine) -> list[QueueInfo]:
    """Every queue that holds runs, is paused, or is named by a worker that takes it; sorted by name."""
    holds = await engine.holds()
    survey = await engine.survey()
    pauses = {
        hold.queue: Pause(hold.reason, hold.owner, hold.since, hold.until)
        for hold in holds
        if hold.kind is HoldKind.PAUSE and hold.queue is not None
    }
    by_workers = {name for worker in survey.workers for name in worker.queues}
    names = {*pauses, *by_workers, *(each.queue for each in survey.counts)}
    return [_info(name, survey, pauses.get(name)) for name in sorted(names)]


def _info(name: str, survey: Survey, paused: Pause | None) -> QueueInfo:
    counts = dict.fromkeys(State, 0)
    due: list[datetime] = []
    for each in survey.counts:
        if each.queue != name:
            continue
        counts[each.state] += each.count
        is_pending = each.state in (State.QUEUED, State.SCHEDULED)
        if is_pending and each.oldest_due is not None and each.oldest_due <= survey.at:
            due.append(each.oldest_due)
    return QueueInfo(name, counts, min(due, default=None), paused)
