"""The comparison that decides whether a value came back."""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict, deque
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from dovetail.codec.sameness import difference
from tests.codec.universe import Box, Color, Level, Pair, Point

BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "make",
    [
        lambda: math.nan,
        lambda: Decimal("sNaN"),
        lambda: [1, (2, {3}), {"a": frozenset({4})}],
        lambda: {math.nan: 1},
        lambda: NOON.astimezone(BERLIN),
        lambda: NOON.astimezone(ZoneInfo.no_cache("Europe/Berlin")),
        lambda: Point(math.nan),
        lambda: Box("a", [Box("b")]),
        lambda: Pair(1),
        lambda: Color.RED,
        lambda: defaultdict(list, a=[1]),
        lambda: deque([1], maxlen=2),
    ],
)
def test_two_of_the_same_do_not_differ(make: Any):
    assert difference(make(), make()) is None


@pytest.mark.parametrize(
    ("sent", "received", "how"),
    [
        (1, True, "it comes back as bool, not int"),
        (2**53 + 1, 2.0**53, "it comes back as float, not int"),
        (1, Level.LOW, "it comes back as Level, not int"),
        (0.0, -0.0, "it comes back changed"),
        (Decimal("1.0"), Decimal("1.00"), "it comes back changed"),
        ([1, [2]], [1, [3]], "it[1][0] comes back changed"),
        ([1], [1, 1], "it comes back with another length"),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "it key [0] comes back changed"),
        ({"a": 1}, {"a": 2}, "it[0] comes back changed"),
        ({"a": 1}, {}, "it comes back with another length"),
        ({1}, {2}, "it comes back changed"),
        ({1}, {True}, "it comes back as bool, not int"),
        ({1}, {1, 2}, "it comes back with another length"),
        (NOON, NOON.replace(fold=1), "it comes back changed"),
        (NOON, NOON.astimezone(timezone(timedelta(hours=1))), "it comes back changed"),
        (NOON.astimezone(BERLIN), NOON.astimezone(ZoneInfo("Europe/Paris")), "it comes back changed"),
        (Point(1.0), Point(1.0, 2.0), "it.y comes back changed"),
        (Point(1.0), Pair(1), "it comes back as Pair, not Point"),
        (Color.RED, Color.GREEN, "it comes back as another member"),
        (OrderedDict(a=1), {"a": 1}, "it comes back as dict, not OrderedDict"),
        (defaultdict(list), defaultdict(set), "it comes back with another default_factory"),
        (deque([1], maxlen=2), deque([1]), "it comes back with another maxlen"),
        (object(), object(), "it comes back changed"),
    ],
)
def test_a_difference_is_told_without_values(sent: Any, received: Any, how: str):
    assert difference(sent, received) == how
