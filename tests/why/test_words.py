"""Durations, moments and lists in words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from dovetail.why import words

NOW = datetime(2026, 1, 5, 14, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "less than 1 s"),
        (-3, "less than 1 s"),
        (0.4, "less than 1 s"),
        (42, "42 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (3605, "1 h"),
        (7500, "2 h 5 min"),
        (100_000, "1 d 3 h"),
    ],
)
def test_a_duration(seconds: float, said: str) -> None:
    assert words.span(timedelta(seconds=seconds)) == said


def test_a_moment_of_today_has_no_date() -> None:
    assert words.clock_time(NOW, NOW) == "14:00:00 UTC"
    assert words.clock_time(NOW + timedelta(days=1), NOW) == "2026-01-06 14:00:00 UTC"
    assert words.clock_time(NOW.astimezone(timezone(timedelta(hours=12))), NOW) == "14:00:00 UTC"


def test_a_list() -> None:
    assert words.listed([]) == ""
    assert words.listed(["a"]) == "a"
    assert words.listed(["a", "b", "c"]) == "a, b and c"
    assert words.listed(["a"], 3) == "a and 2 more"
