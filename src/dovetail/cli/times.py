"""Durations and moments, as people write them and as people read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from dovetail.errors import InvalidArgument

UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_SUM = re.compile(rf"(?:{_PART.pattern})+")
_CLOCK = re.compile(r"(?:(\d+):)?(\d+):(\d+)")
_SECONDS = re.compile(r"\d+(?:\.\d+)?")


def duration(value: str | timedelta) -> timedelta:
    """A length of time: `90` (seconds), `100ms`, `30s`, `5m`, `2h`, `1d`, `1w`, `1h30m`, `mm:ss` or `hh:mm:ss`."""
    if isinstance(value, timedelta):
        return value
    text = value.strip().lower()
    try:
        if _SECONDS.fullmatch(text):
            return timedelta(seconds=float(text))
        if _SUM.fullmatch(text):
            return sum((float(number) * UNITS[unit] for number, unit in _PART.findall(text)), timedelta())
        if found := _CLOCK.fullmatch(text):
            hours, minutes, seconds = (int(part or 0) for part in found.groups())
            return timedelta(hours=hours, minutes=minutes, seconds=seconds)
    except OverflowError:
        raise InvalidArgument(f"{value!r} is longer than can be counted") from None
    raise InvalidArgument(f"{value!r} is no duration; write it as 90, 30s, 5m, 2h, 1d, 1h30m or hh:mm:ss")


def patience(value: str | timedelta) -> timedelta:
    """A length of time that is more than none."""
    if not (length := duration(value)):
        raise InvalidArgument(f"{value!r} is no time at all; write it as 90, 30s or 5m")
    return length


def moment(value: str | datetime) -> datetime:
    """A point in time in ISO 8601; without a zone it is local time, and without a date it is today."""
    if isinstance(value, datetime):
        return value
    text = value.strip()
    if re.fullmatch(r"\d{1,2}:\d\d(:\d\d)?", text):
        text = f"{datetime.now().astimezone():%Y-%m-%d}T{text:0>5}"
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        raise InvalidArgument(
            f"{value!r} is no time; write it as 2030-01-31T09:00, 2030-01-31T09:00+01:00 or 09:00"
        ) from None


def ago(value: str | datetime) -> datetime:
    """A point in the past: a moment, or how long ago it was."""
    if isinstance(value, datetime):
        return value
    try:
        return datetime.now(UTC) - duration(value)
    except InvalidArgument:
        pass
    except OverflowError:
        raise InvalidArgument(f"{value!r} ago is before the first year") from None
    try:
        return moment(value)
    except InvalidArgument:
        raise InvalidArgument(
            f"{value!r} is neither a time, such as 2030-01-31T09:00, nor a duration, such as 2h for two hours ago"
        ) from None


def now() -> datetime:
    """By the clock of this host: to ask the store for its own would have it count all its runs."""
    return datetime.now(UTC)


def local(when: datetime) -> str:
    """The moment on the clocks here, and by which clocks that is."""
    return f"{when.astimezone():%Y-%m-%d %H:%M:%S %Z}"


def length(span: timedelta) -> str:
    """How long, to the two largest units: `42 s`, `3 min`, `2 h 5 min`, `3 d 4 h`."""
    seconds = int(abs(span).total_seconds())
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 60:
        return f"{seconds} s"
    if minutes < 60:
        return f"{minutes} min"
    if hours < 24:
        return f"{hours} h {minutes % 60} min" if minutes % 60 else f"{hours} h"
    return f"{days} d {hours % 24} h" if hours % 24 and days < 30 else f"{days} d"


def relative(when: datetime, now: datetime) -> str:
    """How far from now: `in 42 s`, `3 min ago`, `now`."""
    if abs(when - now) < timedelta(seconds=1):
        return "now"
    return f"in {length(when - now)}" if when > now else f"{length(now - when)} ago"


def both(when: datetime | None, now: datetime) -> str:
    """The moment on the clocks here, and how far from now that is; nothing for none."""
    return "" if when is None else f"{local(when)} ({relative(when, now)})"
