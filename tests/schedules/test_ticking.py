"""Timing and ticking: which times a schedule has, and what it makes of those that have come. No store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from dovetail.behaviors.cron import SLOT
from dovetail.codec import codec_named
from dovetail.errors import InvalidArgument, InvalidType
from dovetail.model import NewRun
from dovetail.queues import Pause
from dovetail.schedules import Definition
from dovetail.schedules.definition import NEVER, Call
from dovetail.schedules.ticking import AT_ONCE, tick
from dovetail.schedules.timing import Timing

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def hourly(**fields: Any) -> Definition:
    call = Call.of(NewRun("id", "key", "report", b"payload", queue="slow", priority=3, headers={"a": "b"}))
    timing = Timing.of("0 * * * *", None, "UTC", NOON)
    return Definition("nightly", call, timing, NOON, NOON, **fields)


# Timing


def test_an_interval_is_counted_from_its_start():
    timing = Timing.of(None, 10 * MINUTE, "UTC", NOON)
    assert timing.next_after(NOON) == NOON + 10 * MINUTE
    assert timing.next_after(NOON + 10 * MINUTE - SECOND) == NOON + 10 * MINUTE
    assert timing.next_after(NOON + 10 * MINUTE) == NOON + 20 * MINUTE
    assert timing.next_after(NOON + 365 * 24 * HOUR + SECOND) == NOON + 365 * 24 * HOUR + 10 * MINUTE


def test_an_interval_has_no_time_before_its_start():
    assert Timing.of(None, HOUR, "UTC", NOON).next_after(NOON - 100 * HOUR) == NOON + HOUR


def test_a_time_that_clocks_leap_over_comes_once_just_after():
    timing = Timing.of("30 2 * * *", None, "Europe/Vienna", NOON)
    before = datetime(2030, 3, 30, 12, tzinfo=UTC)
    leapt = timing.next_after(before)
    assert leapt == datetime(2030, 3, 31, 1, tzinfo=UTC)  # 03:00 in Vienna
    assert timing.next_after(leapt) == datetime(2030, 4, 1, 0, 30, tzinfo=UTC)


def test_a_time_that_comes_twice_is_had_once():
    timing = Timing.of("30 2 * * *", None, ZoneInfo("Europe/Vienna"), NOON)
    first = timing.next_after(datetime(2030, 10, 26, 12, tzinfo=UTC))
    assert timing.next_after(first) - first == 25 * HOUR


def test_an_interval_takes_no_notice_of_clocks_on_the_wall():
    timing = Timing.of(None, 24 * HOUR, "Europe/Vienna", datetime(2030, 3, 30, 12, tzinfo=UTC))
    assert timing.next_after(datetime(2030, 3, 31, 11, tzinfo=UTC)) == datetime(2030, 3, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("cron", "every", "tz", "error", "says"),
    [
        (None, None, "UTC", InvalidArgument, "either"),
        ("* * * * *", HOUR, "UTC", InvalidArgument, "either"),
        ("61 * * * *", None, "UTC", InvalidArgument, "61"),
        ("0 0 31 2 *", None, "UTC", InvalidArgument, "0 0 31 2"),
        ("* * * * *", None, "Mars/Olympus", InvalidArgument, "Mars/Olympus"),
        ("* * * * *", None, timezone(HOUR), InvalidType, "with a name"),
        ("* * * * *", None, 3, InvalidType, "with a name"),
        (7, None, "UTC", InvalidType, "cron"),
        (None, 60, "UTC", InvalidType, "every"),
        (None, timedelta(), "UTC", InvalidArgument, "every"),
        (None, timedelta(milliseconds=999), "UTC", InvalidArgument, "at least 1 second"),
        (None, timedelta.max, "UTC", InvalidArgument, "at most"),
        (None, -HOUR, "UTC", InvalidArgument, "every"),
    ],
)
def test_what_is_no_timing_is_refused(cron: Any, every: Any, tz: Any, error: type[Exception], says: str):
    with pytest.raises(error, match=says):
        Timing.of(cron, every, tz, NOON)


# Ticking


def slots(runs: tuple[NewRun, ...]) -> list[Any]:
    return [run.due for run in runs]


def test_a_tick_makes_the_run_of_its_time_and_the_schedule_waits_for_the_next():
    ticked = tick(hourly(), NOON + SECOND)
    (run,) = ticked.runs
    assert (run.task, run.payload, run.queue, run.priority) == ("report", b"payload", "slow", 3)
    assert (run.due, run.key) == (NOON, "schedule:nightly:2030-01-01T12:00:00+00:00")
    assert run.headers == {"a": "b", SLOT: NOON.isoformat()}
    assert ticked.following is not None
    assert ticked.following.slot == NOON + HOUR
    assert (ticked.following.last_time, ticked.following.last_key) == (NOON, run.key)


@pytest.mark.parametrize(
    ("misfire", "made", "following"),
    [
        ("once", [NOON], NOON + 4 * HOUR),
        ("all", [NOON, NOON + HOUR, NOON + 2 * HOUR, NOON + 3 * HOUR], NOON + 4 * HOUR),
        ("skip", [], NOON + 4 * HOUR),
    ],
)
def test_times_that_were_missed_are_made_up_for_as_the_policy_says(
    misfire: Any, made: list[datetime], following: datetime
):
    ticked = tick(hourly(misfire=misfire), NOON + 3 * HOUR + 2 * MINUTE)
    assert slots(ticked.runs) == made
    assert ticked.following is not None
    assert ticked.following.slot == following


def test_a_tick_that_is_a_little_late_is_not_skipped():
    assert slots(tick(hourly(misfire="skip"), NOON + MINUTE).runs) == [NOON]
    assert slots(tick(hourly(misfire="skip"), NOON + MINUTE + SECOND).runs) == []


def test_of_times_that_were_missed_those_of_the_last_minute_are_not_skipped():
    often = hourly(misfire="skip").but(timing=Timing.of(None, 25 * SECOND, "UTC", NOON - 25 * SECOND))
    ticked = tick(often, NOON + 110 * SECOND)
    assert slots(ticked.runs) == [NOON + 50 * SECOND, NOON + 75 * SECOND, NOON + 100 * SECOND]
    assert ticked.following is not None
    assert ticked.following.slot == NOON + 125 * SECOND


def test_what_was_missed_is_not_made_up_for_after_the_end():
    often = hourly(misfire="skip", until=NOON + MINUTE).but(timing=Timing.of(None, 25 * SECOND, "UTC", NOON))
    assert slots(tick(often, NOON + 100 * SECOND).runs) == [NOON + 50 * SECOND]
    ticked = tick(often, NOON + HOUR)
    assert (ticked.runs, ticked.following) == ((), None)


def test_what_was_skipped_is_not_said_to_have_been():
    ticked = tick(hourly(misfire="skip"), NOON + 90 * MINUTE)
    assert ticked.following is not None
    assert ticked.following.last_time is None


def test_a_long_absence_is_made_up_for_step_by_step():
    schedule: Definition | None = hourly(misfire="all").but(timing=Timing.of(None, SECOND, "UTC", NOON - SECOND))
    now = NOON + (2 * AT_ONCE + 10) * SECOND
    made: list[Any] = []
    sizes: list[int] = []
    while schedule is not None and schedule.slot <= now:
        ticked = tick(schedule, now)
        made += slots(ticked.runs)
        sizes.append(len(ticked.runs))
        schedule = ticked.following
    assert sizes == [AT_ONCE, AT_ONCE, 11]
    assert made == [NOON + number * SECOND for number in range(2 * AT_ONCE + 11)]


def test_a_clock_that_was_set_back_brings_no_time_twice():
    ticked = tick(hourly(), NOON - 5 * HOUR)
    assert slots(ticked.runs) == [NOON]
    assert ticked.following is not None
    assert ticked.following.slot == NOON + HOUR


@pytest.mark.parametrize("misfire", ["once", "all", "skip"])
def test_after_its_last_time_a_schedule_is_over(misfire: Any):
    assert tick(hourly(misfire=misfire, until=NOON + HOUR), NOON).following is not None
    last = tick(hourly(misfire=misfire, until=NOON + HOUR).but(slot=NOON + HOUR), NOON + HOUR)
    assert slots(last.runs) == [NOON + HOUR]
    assert last.following is None


def test_no_time_after_its_end_is_made_up_for():
    ticked = tick(hourly(misfire="all", until=NOON + HOUR), NOON + 9 * HOUR)
    assert slots(ticked.runs) == [NOON, NOON + HOUR]
    assert ticked.following is None


def test_a_paused_schedule_makes_nothing_and_stays():
    paused = hourly(paused=Pause("holidays", "ann", NOON))
    ticked = tick(paused, NOON + HOUR)
    assert (ticked.runs, ticked.following) == ((), paused)


# As data


def test_runs_that_may_overlap_have_keys_of_their_own_and_no_limit():
    (run,) = tick(hourly(overlap="allow"), NOON).runs
    assert run.key.endswith(NOON.isoformat())
    assert run.limits == ()


def test_runs_that_queue_have_keys_of_their_own_and_one_place():
    (run,) = tick(hourly(overlap="queue"), NOON).runs
    assert run.key.endswith(NOON.isoformat())
    assert [(limit.key, limit.capacity, limit.drop) for limit in run.limits] == [("schedule:nightly", 1, False)]


def test_runs_that_queue_wait_for_one_another():
    first, second = tick(hourly(overlap="queue", misfire="all"), NOON + HOUR, "the one before").runs
    assert (first.after, first.after_failure) == (("the one before",), True)
    assert (second.after, second.after_failure) == ((first.id,), True)
    assert [run.after for run in tick(hourly(overlap="allow", misfire="all"), NOON + HOUR).runs] == [(), ()]


def test_runs_that_must_not_overlap_share_a_key():
    (run,) = tick(hourly(overlap="skip"), NOON).runs
    assert run.key == "schedule:nightly"
    assert run.limits == ()


@pytest.mark.parametrize("codec", ["json", "pickle"])
def test_a_schedule_is_read_as_it_was_written(codec: str):
    schedule = hourly(
        overlap="skip", misfire="all", until=NOON + HOUR, paused=Pause("why", "who", NOON), last_time=NOON,
        last_key="key",
    )  # fmt: skip
    run = schedule.waiting(codec_named(codec))
    assert Definition.read(codec_named(codec), run.payload) == schedule
    assert run.due == NEVER


def test_a_schedule_waits_for_its_next_time():
    assert hourly().waiting(codec_named("json")).due == NOON
