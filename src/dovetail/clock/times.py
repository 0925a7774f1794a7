"""Moments and durations as whole microseconds, which is how they are stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_microseconds(moment: datetime) -> int:
    return (moment - EPOCH) // _MICROSECOND


EARLIEST, LATEST = to_microseconds(FIRST), to_microseconds(LAST)
"""The ends of the calendar, as they are stored: no run is due beyond them."""


def from_microseconds(count: int) -> datetime:
    """The moment; the last or the first that a datetime can be, for one beyond: a delay may lead further than that."""
    try:
        return EPOCH + timedelta(microseconds=count)
    except OverflowError:
        return LAST if count > 0 else FIRST


def duration_to_microseconds(duration: timedelta) -> int:
    """So many, or as many as all stores can add to a moment or take from it."""
    return max(-LATEST, min(duration // _MICROSECOND, LATEST))
