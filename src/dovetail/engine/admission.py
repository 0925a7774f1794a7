"""Decides which candidates may start, given how much room each limit has. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dovetail.model import Limit


@dataclass(slots=True)
class Usage:
    """How full one limit is: runs that hold a slot, and recent starts, oldest first, in microseconds."""

    running: int = 0
    starts: list[int] = field(default_factory=list[int])


@dataclass(frozen=True, slots=True)
class Refusal:
    """The limit that had no room, and when its window opens, if it has one."""

    limit: Limit
    opens: int | None


def admit(candidates: Sequence[Sequence[Limit]], usage: Mapping[str, Usage], now: int) -> list[Refusal | None]:
    """Walk the candidates in order; each that fits everywhere takes its room at once."""
    return [_judge(limits, usage, now) for limits in candidates]


def _judge(limits: Sequence[Limit], usage: Mapping[str, Usage], now: int) -> Refusal | None:
    for limit in limits:
        used = usage[limit.key]
        if limit.window is None:
            if used.running >= limit.capacity:
                return Refusal(limit, None)
        elif (opens := opens_at(limit, used)) > now:
            return Refusal(limit, opens)
    for limit in limits:
        if limit.window is None:
            usage[limit.key].running += 1
        else:
            usage[limit.key].starts.append(now)
    return None


def opens_at(limit: Limit, used: Usage) -> int:
    """When a windowed limit has room for one more start: 0 if it has already."""
    if limit.window is None or not 0 < limit.capacity <= len(used.starts):
        return 0
    width = round(limit.window.total_seconds() * 1_000_000)
    return used.starts[-limit.capacity] + width
