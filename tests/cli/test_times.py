"""Durations and moments, as they are written and shown."""

from datetime import UTC, datetime, timedelta

import pytest

from dovetail.cli.output import many, shown
from dovetail.cli.times import ago, duration, length, local, moment, relative
from dovetail.errors import InvalidArgument

NOW = datetime(2030, 1, 31, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("90", timedelta(seconds=90)),
        ("0", timedelta()),
        ("1.5", timedelta(seconds=1.5)),
        ("100ms", timedelta(milliseconds=100)),
        ("30s", timedelta(seconds=30)),
        ("5m", timedelta(minutes=5)),
        ("2h", timedelta(hours=2)),
        ("1d", timedelta(days=1)),
        ("2w", timedelta(weeks=2)),
        ("1h30m", timedelta(minutes=90)),
        (" 5M ", timedelta(minutes=5)),
        ("1:30", timedelta(minutes=1, seconds=30)),
        ("2:00:05", timedelta(hours=2, seconds=5)),
        (timedelta(seconds=3), timedelta(seconds=3)),
    ],
)
def test_a_duration_is_read(text: str | timedelta, meant: timedelta) -> None:
    assert duration(text) == meant


@pytest.mark.parametrize("text", ["", ":", "abc", "5x", "-5m", "1:2:3:4", "5 m", "m5", "9" * 400, "1e9", "٣", "5m!"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    if text == "٣":
        assert duration(text) == timedelta(seconds=3)  # a digit all the same
        return
    with pytest.raises(InvalidArgument, match=r"duration|counted"):
        duration(text)


def test_a_moment_without_a_zone_is_local_time() -> None:
    assert moment("2030-01-31T09:00+02:00") == datetime(2030, 1, 31, 7, tzinfo=UTC)
    assert moment("2030-01-31T09:00") == datetime(2030, 1, 31, 9).astimezone()
    today = datetime.now().astimezone()
    assert moment("9:30").astimezone().strftime("%H:%M") == "09:30"
    assert abs(moment("9:30") - today) < timedelta(days=1, hours=1)


@pytest.mark.parametrize("text", ["", "noon", "2030-13-01", "25:00", "2030-01-31T09:00+99:00"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is no time"):
        moment(text)


def test_a_time_in_the_past_is_a_moment_or_a_duration_ago() -> None:
    assert ago("2030-01-31T09:00Z") == NOW
    assert abs(datetime.now(UTC) - timedelta(hours=2) - ago("2h")) < timedelta(seconds=10)
    with pytest.raises(InvalidArgument, match="neither a time"):
        ago("never")
    with pytest.raises(InvalidArgument, match="first year"):
        ago("999999w")


@pytest.mark.parametrize(
    ("away", "shown"),
    [
        (timedelta(milliseconds=300), "now"),
        (timedelta(seconds=42), "in 42 s"),
        (timedelta(minutes=-3, seconds=-5), "3 min ago"),
        (timedelta(hours=2, minutes=5), "in 2 h 5 min"),
        (timedelta(hours=-2), "2 h ago"),
        (timedelta(days=3, hours=4), "in 3 d 4 h"),
        (timedelta(days=-400, hours=5), "399 d ago"),
    ],
)
def test_a_moment_is_shown_from_now(away: timedelta, shown: str) -> None:
    assert relative(NOW + away, NOW) == shown


def test_a_moment_is_shown_with_its_zone() -> None:
    assert local(NOW).startswith("2030-01-31 ")
    assert local(NOW).split()[2]
    assert length(timedelta()) == "0 s"


def test_text_is_shown_on_one_line_and_numbers_with_their_noun() -> None:
    assert shown("a\tb\n\x1b[2Jé\u202e") == r"a\tb\n\x1b[2Jé\u202e"
    assert (many(1, "run"), many(12_000, "run"), many(0, "key")) == ("1 run", "12,000 runs", "0 keys")
