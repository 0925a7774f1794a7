"""Cron: a task that goes at set times."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from inspect import signature
from typing import Literal
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from dovetail import checks
from dovetail.behaviors.base import Arguments, Attempt, Outcome
from dovetail.behaviors.perpetual import Perpetual
from dovetail.clock import from_microseconds
from dovetail.errors import InvalidArgument
from dovetail.model import Claim, Due, NewRun

NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

SLOT = "dovetail-slot"
"""The header that says which time of the expression a run is for."""

Overlap = Literal["queue", "skip"]
Misfire = Literal["once", "all"]


class InvalidExpression(InvalidArgument, CronSimError):
    """A cron expression that cannot be read, or that no date ever matches."""


class Cron(Perpetual):
    """Go at the times of a cron expression, in a time zone.

        async def report(cron: Cron = Cron("0 9 * * MON-FRI", tz=ZoneInfo("Europe/Vienna"))) -> None: ...

    Five fields, or six with seconds first; names, ranges, steps, `L`; or @hourly, @daily, @weekly and so on. When
    clocks go forward, a time that does not exist is run once, just after; when they go back, a time that comes twice
    is run once. With a wildcard for hours, minutes or seconds it is run as often as it comes.

    `overlap` says what becomes of a time that passes while a run is still at it: "queue" runs it right after, "skip"
    leaves it out. `misfire` says what becomes of times at which no worker was there: "once" makes one run of them
    all, "all" makes one of each.
    """

    def __init__(
        self,
        expression: str,
        automatic: bool = True,
        tz: tzinfo | str = UTC,
        *,
        overlap: Overlap = "queue",
        misfire: Misfire = "once",
    ) -> None:
        super().__init__(automatic=automatic)
        written = checks.text(expression, "expression")
        self.expression = NICKNAMES.get(written.strip().lower(), written)
        self.tz = zone(tz)
        self.overlap: Overlap = checks.one_of(overlap, "overlap", ("queue", "skip"))
        self.misfire: Misfire = checks.one_of(misfire, "misfire", ("once", "all"))
        self.next_time()  # an expression that means nothing is refused here

    def next_time(self, after: datetime | None = None) -> datetime:
        """The first time of the expression after this one; after now, if none is given."""
        start = datetime.now(UTC) if after is None else checks.moment(after, "after").astimezone(UTC)
        try:
            # Within an hour that comes twice, a wall clock may show a time that has been.
            return next(each for each in self._times(start) if each.astimezone(UTC) > start)
        except (CronSimError, StopIteration, OverflowError) as error:
            why = str(error) or "no date ever matches it"
            raise InvalidExpression(f"the cron expression {self.expression!r} cannot be used: {why}") from None

    def _following(self, moment: datetime) -> datetime:
        """The next time after this one. One who has put a `next_time()` of their own in place, as docket's users do
        to try a task, may leave the parameter out, and decides alone."""
        if "after" in signature(self.next_time).parameters:
            return self.next_time(moment)
        return self.next_time()

    def _times(self, start: datetime) -> Iterator[datetime]:
        local = start.astimezone(self.tz)
        if not self._is_fixed:
            return CronSim(self.expression, local)
        # A time of day is one on the wall: it is counted there, and each day has it once.
        return (_real(each.replace(tzinfo=self.tz)) for each in CronSim(self.expression, local.replace(tzinfo=None)))

    @property
    def _is_fixed(self) -> bool:
        """Whether the expression names times of day, and not every so many hours, minutes or seconds."""
        return not any(field.startswith("*") for field in self.expression.split()[:-3])

    def seed(self, now: datetime) -> Due | None:
        return self._following(now) if self.automatic else None

    def plan(self, draft: NewRun, arguments: Arguments) -> NewRun:
        """The run takes along which slot it is for: a retry moves its time."""
        if not isinstance(draft.due, datetime):
            return draft
        return draft.but(headers={**draft.headers, SLOT: draft.due.isoformat()})

    def next_due(self, attempt: Attempt, outcome: Outcome) -> Due:
        # Never before the slot that this run was for: no slot runs twice, whatever the clocks say.
        slot = slot_of(attempt.claim)
        now = from_microseconds(attempt.clock.microseconds())
        # Of a run that was tried again only the slot tells when it began.
        began = slot if attempt.number > 1 else max(now - outcome.took, slot)
        following = self._following(slot if self.misfire == "all" else began)
        overlapped = began < following <= now
        return self._following(now) if overlapped and self.overlap == "skip" else following


def slot_of(claim: Claim) -> datetime:
    """The time that a run is for: a retry has another due time, and is still for the same."""
    told = claim.headers.get(SLOT) if claim.headers else None
    try:
        return claim.due if told is None else datetime.fromisoformat(told).astimezone(UTC)
    except (ValueError, OverflowError):
        return claim.due  # not as it was written


def _real(wall: datetime) -> datetime:
    """The time on the wall, or, where clocks leap over it, the first minute after."""
    while wall.astimezone(UTC).astimezone(wall.tzinfo).replace(fold=0) != wall:
        wall += timedelta(minutes=1)
    return wall


def zone(tz: tzinfo | str) -> tzinfo:
    """The time zone, if it is one or the name of one."""
    if isinstance(tz, tzinfo):
        return tz
    checks.instance(tz, str, "tz must be a time zone, such as ZoneInfo('Europe/Vienna')")
    try:
        return ZoneInfo(tz)
    except (ValueError, OSError, LookupError):
        raise InvalidArgument(f"tz {tz!r} is not a time zone that this system knows, such as 'Europe/Vienna'") from None
