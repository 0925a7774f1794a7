"""Ticking: what a schedule does when its time has come. No I/O: data in, data out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from dovetail.model import NewRun
from dovetail.schedules.definition import Definition

AT_ONCE = 100
"""How many times one tick makes up for: a schedule that was away for a year goes on a step at a time."""
LATE = timedelta(minutes=1)
"""From when on a time counts as missed, for those schedules that leave such times out."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """What comes of a tick: runs, and how the schedule stands after it; None if it is over."""

    runs: tuple[NewRun, ...]
    following: Definition | None


def tick(schedule: Definition, now: datetime, predecessor: str | None = None) -> Ticked:
    """Its times that have come, as its misfire policy wants them, and the one that is next. With a predecessor, the run
    of the time before is not over yet."""
    if schedule.paused is not None:
        return Ticked((), schedule)
    slots = _slots(schedule, now)
    runs = tuple(_in_line(schedule, slots, predecessor))
    # Never before the time that this was for: none comes twice, whatever the clocks say.
    reached = max(schedule.slot, now) if schedule.misfire == "once" or not slots else slots[-1]
    following = schedule.timing.next_after(reached)
    if schedule.is_over_at(following):
        return Ticked(runs, None)
    if runs:
        schedule = schedule.but(last_time=slots[-1], last_key=runs[-1].key)
    return Ticked(runs, schedule.but(slot=following))


def _in_line(schedule: Definition, slots: list[datetime], predecessor: str | None) -> Iterator[NewRun]:
    """The runs of these times. Those that queue wait for one another, also while one waits to be tried again."""
    for slot in slots:
        run = schedule.run_at(slot)
        if predecessor is not None:
            run = run.but(after=(predecessor,), after_failure=True)
        if schedule.overlap == "queue":
            predecessor = run.id
        yield run


def _slots(schedule: Definition, now: datetime) -> list[datetime]:
    slots = [_first(schedule, now)]
    if slots[0] > max(schedule.slot, now) or schedule.is_over_at(slots[0]):
        return []
    while schedule.misfire != "once" and len(slots) < AT_ONCE:
        following = schedule.timing.next_after(slots[-1])
        if following > now or schedule.is_over_at(following):
            break
        slots.append(following)
    return slots


def _first(schedule: Definition, now: datetime) -> datetime:
    """The first of its times that still counts."""
    if schedule.misfire == "skip" and now - schedule.slot > LATE:
        return schedule.timing.next_after(now - LATE - timedelta.resolution)
    return schedule.slot
