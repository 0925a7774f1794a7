"""Timing: when a schedule has its times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from dovetail import checks
from dovetail.behaviors.cron import Cron, zone
from dovetail.errors import InvalidArgument, InvalidType
from dovetail.model.noun import Noun

SHORTEST = timedelta(seconds=1)
"""How close the times of a schedule may come: each costs a claim and a finish."""


class Timing(Noun, frozen=True):
    """The times of a cron expression in a zone, or every so often from a start."""

    cron: str | None = None
    every: timedelta | None = None
    tz: str = "UTC"
    start: datetime | None = None  # from when on an interval is counted

    @classmethod
    def of(cls, cron: str | None, every: timedelta | None, tz: tzinfo | str, now: datetime) -> Timing:
        """The timing that is asked for; an error that names what cannot be."""
        if (cron is None) == (every is None):
            raise InvalidArgument(
                "a schedule has either a cron expression, such as '0 3 * * *', or every=timedelta(...), and one of them"
            )
        zone_name = _name_of(tz)
        if cron is not None:
            _cron(checks.text(cron, "cron"), zone_name)  # an expression that means nothing is refused here
            return cls(cron=cron, tz=zone_name)
        if checks.window(every, "every") < SHORTEST:
            raise InvalidArgument(f"every must be at least {SHORTEST.seconds} second, not {every}")
        return cls(every=every, tz=zone_name, start=now.replace(microsecond=0))

    def next_after(self, moment: datetime) -> datetime:
        """The first time after this one, in UTC."""
        if self.cron is not None:
            return _cron(self.cron, self.tz).next_time(moment).astimezone(UTC)
        if self.every is None or self.start is None:
            raise InvalidArgument("a schedule without times")
        return self.start + (max((moment - self.start) // self.every, 0) + 1) * self.every

    def is_like(self, other: Timing) -> bool:
        """Whether the two were asked for in the same words, be it at different times."""
        return self.but(start=None) == other.but(start=None)

    def on_the_wall(self, moment: datetime) -> datetime:
        """The moment as clocks in the schedule's zone show it."""
        return moment.astimezone(zone(self.tz))


@lru_cache(maxsize=1000)
def _cron(expression: str, tz: str) -> Cron:
    return Cron(expression, automatic=False, tz=tz)


def _name_of(tz: tzinfo | str) -> str:
    """What a zone is called: every worker has to find it again."""
    if isinstance(tz, str):
        zone(tz)
        return tz
    if tz is UTC:
        return "UTC"
    if isinstance(tz, ZoneInfo) and tz.key:
        return tz.key
    raise InvalidType(f"tz must be a time zone with a name, such as 'Europe/Vienna' or ZoneInfo(...), not {tz!r}")
