"""Moments, durations, counts and limits in words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from dovetail.model import Limit
from dovetail.model.standing import COUNTED

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_BEHAVIORS = {"concurrency": "ConcurrencyLimit", "rate": "RateLimit", "cooldown": "Cooldown"}


def span(length: timedelta) -> str:
    """A duration by its two largest units: `3 min 20 s`."""
    seconds = round(length.total_seconds())
    if seconds < 1:
        return "less than 1 s"
    parts: list[str] = []
    for name, size in _UNITS:
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append(f"{count} {name}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(filter(None, parts))


def clock_time(moment: datetime, now: datetime) -> str:
    """A moment, without the day if that is today's."""
    moment = moment.astimezone(UTC)
    form = "%H:%M:%S UTC" if moment.date() == now.astimezone(UTC).date() else "%Y-%m-%d %H:%M:%S UTC"
    return moment.strftime(form)


def ahead(moment: datetime, now: datetime) -> str:
    """`in 42 s, at 14:02:11 UTC`."""
    return f"in {span(moment - now)}, at {clock_time(moment, now)}"


def ago(moment: datetime, now: datetime) -> str:
    """`42 s ago, at 14:02:11 UTC`."""
    return f"{span(now - moment)} ago, at {clock_time(moment, now)}"


def times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def count(number: int, what: str) -> str:
    """`1 slot`, `2 slots`."""
    return f"1 {what}" if number == 1 else f"{number:,} {what}s"


def is_many(number: int) -> bool:
    """Whether there are more runs than are ever counted."""
    return number >= COUNTED


def runs(number: int) -> str:
    return f"{COUNTED:,} runs or more" if is_many(number) else count(number, "run")


def listed(items: Sequence[str], of: int | None = None) -> str:
    """Items with `and` before the last; how many more there are, if these are not all."""
    more = (of or 0) - len(items)
    shown = [*items, f"{more} more"] if more > 0 else list(items)
    if len(shown) < 2:
        return "".join(shown)
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def limit_name(limit: Limit, task: str) -> str:
    """What a limit is called: `customer_id=7 (ConcurrencyLimit of 'sync')`. Its key begins with the behavior's kind and
    whose it is; a key of another form is shown as it is."""
    kind, _, rest = limit.key.partition(":")
    behavior = _BEHAVIORS.get(kind)
    if behavior is None:
        return repr(limit.key)
    owner, _, name = rest.partition(":")
    if owner == "scope":
        return f"{name} ({behavior})"
    whose, argument = name[: len(task)], name[len(task) + 1 :]
    if whose != task:
        return repr(limit.key)
    return f"{argument} ({behavior} of {task!r})" if argument else f"{behavior} of {task!r}"
