"""Schedules without await."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from dovetail import Disposition, UnknownSchedule
from dovetail.errors import DuplicateSchedule, InvalidArgument
from dovetail.sync import Docket, Execution

HOUR = timedelta(hours=1)


async def report(what: str) -> None: ...


@pytest.fixture
def docket(url: str) -> Iterator[Docket]:
    with Docket("tests", url) as docket:
        yield docket


def test_a_schedule_is_made_looked_at_altered_and_taken_away(docket: Docket):
    made = docket.schedules.add("hourly", report, every=HOUR)("sales")
    assert docket.schedules.get("hourly") == made
    assert [each.name for each in docket.schedules.list()] == ["hourly"]
    assert docket.schedules.change("hourly", args=["costs"]).args == ("costs",)
    assert docket.schedules.pause("hourly", "holidays").is_paused
    assert not docket.schedules.resume("hourly").is_paused
    execution = docket.schedules.trigger("hourly")
    assert isinstance(execution, Execution)
    assert execution.disposition is Disposition.SCHEDULED
    docket.schedules.delete("hourly")
    assert docket.schedules.get("hourly") is None
    docket.clear()


def test_mistakes_are_told(docket: Docket):
    with pytest.raises(InvalidArgument):
        docket.schedules.add("hourly", report, "never")
    with pytest.raises(UnknownSchedule):
        docket.schedules.pause("hourly")
    docket.schedules.add("hourly", report, every=HOUR)("sales")
    with pytest.raises(DuplicateSchedule):
        docket.schedules.add("hourly", report, every=HOUR)("costs")
