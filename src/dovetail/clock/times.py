"""Moments and durations as whole microseconds, which is how they are stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_microseconds(moment: datetime) -> int:
    return (moment - EPOCH) // _MICROSECOND


def from_microseconds(count: int) -> datetime:
    return EPOCH + timedelta(microseconds=count)


def duration_to_microseconds(duration: timedelta) -> int:
    return duration // _MICROSECOND
