"""Values that carry no annotation keep their types by tags."""

from __future__ import annotations

import io
import math
import struct
from collections import OrderedDict, defaultdict, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from dovetail.codec import codec_named
from dovetail.errors import PayloadError
from tests.codec.universe import Color, Level, Mode, Pair, Point, Text, portrait, there_and_back, types_of

BERLIN = ZoneInfo("Europe/Berlin")
TWICE = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN)  # the hour that the clocks go through twice


class Odd(tzinfo):
    def __init__(self, offset: timedelta | None) -> None:
        self.offset = offset

    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        return self.offset

    def dst(self, dt: datetime | None) -> timedelta | None:
        return None

    def tzname(self, dt: datetime | None) -> str | None:
        return None


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -1,
        2**63,
        2**64 - 1,
        2**64,
        -(2**63) - 1,
        10**5000,
        0.0,
        -0.0,
        1.0,
        1e308,
        math.nan,
        math.inf,
        -math.inf,
        "",
        "\x00\u2028\U0001f600",
        "undecodable \udcff name",
        b"",
        b"\x00\xff",
        bytearray(b"mutable"),
        complex(1, -0.0),
        complex(math.nan, math.inf),
        Decimal("1.10"),
        Decimal("-0E+3"),
        Decimal("sNaN"),
        Decimal("-Infinity"),
        UUID(int=7),
        date.min,
        datetime.max,  # noqa: DTZ901
        datetime(2026, 1, 1, 12, 0, 0, 1, tzinfo=UTC),
        datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=-3, seconds=7, microseconds=3))),
        datetime(2026, 1, 1, tzinfo=timezone(timedelta(microseconds=1))),
        datetime(2026, 1, 1, tzinfo=timezone(timedelta(microseconds=-1))),
        time(1, tzinfo=timezone(timedelta(microseconds=1))),
        datetime(2026, 1, 1, fold=1),  # noqa: DTZ001
        TWICE,
        TWICE.replace(fold=1),
        time(1, 2, 3, 4),
        time(1, fold=1, tzinfo=UTC),
        time(1, tzinfo=BERLIN),
        timedelta.min,
        timedelta(days=-1, microseconds=1),
        Path("/tmp/x"),
        Path("name \udcff"),
        PurePosixPath("a/b"),
        PureWindowsPath("c:\\x"),
        (),
        (1, (2, [3])),
        set(),
        {1, "a", (2, 3)},
        frozenset({frozenset({1})}),
        {1: "a", True + 1: "b", None: "c", (1, 2): "d"},
        {"a": {"b": [{"c": (1,)}]}},
        {"k" * 1000: 1},
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_unannotated_value_comes_back_the_same(value: Any):
    assert portrait(there_and_back(value)) == portrait(value)


@pytest.mark.parametrize(
    "value",
    [{"$uuid": "x"}, {"$": 1}, {"$set": [1]}, {"$dict": []}, {"a": 1, "$tuple": 2}, {"$$": {"$int": "0x1"}}],
    ids=repr,
)
def test_a_dict_that_looks_like_a_tag_stays_a_dict(value: dict[str, Any]):
    assert there_and_back(value) == value
    assert there_and_back([(value,)]) == [(value,)]


def test_keyword_arguments_may_be_called_anything():
    codec, types = codec_named("json"), types_of(None)
    kwargs = {"$set": (1,), "a": 1, "": 2, "ключ": {"$x": 3}}
    assert codec.load_call(types, codec.dump_call(types, (), kwargs)) == ((), kwargs)


def test_a_datetime_of_a_foreign_time_zone_keeps_its_offset():
    received = there_and_back(datetime(2026, 1, 1, tzinfo=Odd(timedelta(hours=2))))
    assert received == datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=2)))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (object(), "object"),
        (Text("a"), "Text"),
        (Level.LOW, "Level"),
        (Mode.READ, "Mode"),
        (Color.RED, "Color"),
        (Pair(1), "Pair"),
        (namedtuple("Old", "x")(1), "Old"),
        (OrderedDict(a=1), "OrderedDict"),
        (defaultdict(list, a=1), "defaultdict"),
        (Point(1.0), "Point"),
        (memoryview(b"x"), "memoryview"),
        (range(3), "range"),
        ({"a": [Text("b")]}, "Text"),
        ({Level.LOW: 1}, "Level"),
        (int, "type"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_no_tag_can_bring_back_is_refused_by_name(value: Any, kind: str):
    expected = rf"argument 'it' of 'work': a value of type {kind} cannot be stored as JSON.*codec=\"pickle\""
    with pytest.raises(PayloadError, match=expected):
        there_and_back(value)


@pytest.mark.parametrize(
    "value", [time(1, tzinfo=Odd(None)), datetime(2026, 1, 1, tzinfo=Odd(None))], ids=["time", "datetime"]
)
def test_a_time_zone_without_an_offset_is_refused(value: Any):
    with pytest.raises(PayloadError, match=r"argument 'it' of 'work'.*no UTC offset"):
        there_and_back(value)


def test_a_time_zone_that_cannot_be_found_again_is_refused():
    counts = struct.pack(">6l", 0, 0, 0, 0, 1, 4)
    file = io.BytesIO(b"TZif" + bytes(16) + counts + struct.pack(">lBB", 3600, 0, 0) + b"OUR\0")
    private = ZoneInfo.from_file(file, key="Our/Office")
    with pytest.raises(PayloadError, match="time zone that is not known here"):
        there_and_back(datetime(2026, 1, 1, tzinfo=private))


def test_a_time_zone_that_fails_is_refused():
    class Broken(Odd):
        def utcoffset(self, dt: datetime | None) -> timedelta | None:
            raise RuntimeError("no network")

    with pytest.raises(PayloadError, match=r"argument 'it' of 'work'.*RuntimeError"):
        there_and_back(datetime(2026, 1, 1, tzinfo=Broken(None)))


def test_a_set_that_reading_would_make_smaller_is_refused():
    same_zone_twice = {TWICE, TWICE.replace(fold=1, tzinfo=ZoneInfo.no_cache("Europe/Berlin"))}
    assert len(same_zone_twice) == 2
    with pytest.raises(PayloadError, match="argument 'it' of 'work'"):
        there_and_back(same_zone_twice)


def test_a_set_is_written_in_the_same_order_everywhere():
    codec, types = codec_named("json"), types_of(None)
    names = [f"name {n}" for n in range(50)]
    once, again = (codec.dump_call(types, (set(order),), {}) for order in (names, reversed(names)))
    assert once == again


def test_errors_do_not_show_values():
    with pytest.raises(PayloadError) as caught:
        there_and_back({"password": Text("hunter2")})
    assert "hunter2" not in str(caught.value)
