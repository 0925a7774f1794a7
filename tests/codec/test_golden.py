"""The wire format, written down. A payload in a store outlives the version that wrote it.

If one of these fails, the format has drifted: a worker of another version could not read what is in the store.
A new kind gets a new line in `golden/*.json`; a line that is there is never changed.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from dovetail.codec import CallTypes, Codec, Keyring, SigningKey, codec_named
from dovetail.codec.references import Reference
from tests.codec.universe import Box, Color, Level, Movie, Pair, Point, Shade, Span, Visit, portrait, types_of

GOLDEN = Path(__file__).parent / "golden"
JSON = codec_named("json")
BERLIN = ZoneInfo("Europe/Berlin")

VALUES: dict[str, Any] = {
    "null": None,
    "true": True,
    "int": 42,
    "int of 64 bits": 2**64 - 1,
    "int beyond 64 bits": -(2**64),
    "float": 1.5,
    "whole float": 1e16,
    "negative zero": -0.0,
    "nan": math.nan,
    "infinity": -math.inf,
    "complex": complex(1, math.inf),
    "text": 'é "quoted" \u2028 \x00',
    "text with a lone surrogate": "a\udcff",
    "bytes": b"\x00\xff\xfe",
    "bytearray": bytearray(b"abc"),
    "decimal": Decimal("-1.50E+7"),
    "uuid": UUID("01890a5d-ac96-774b-bcce-b302099a8057"),
    "date": date(2026, 1, 5),
    "naive datetime": datetime(2026, 1, 5, 9, 30, 0, 250),  # noqa: DTZ001
    "utc datetime": datetime(2026, 1, 5, 9, 30, tzinfo=UTC),
    "datetime with an offset": datetime(2026, 1, 5, 9, 30, tzinfo=timezone(timedelta(hours=-3, minutes=-30))),
    "datetime with an odd offset": datetime(2026, 1, 5, tzinfo=timezone(timedelta(microseconds=-1))),
    "datetime in a zone": datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN),
    "datetime with a fold": datetime(2026, 10, 25, 2, 30, fold=1),  # noqa: DTZ001
    "time": time(9, 30),
    "time in a zone": time(9, 30, tzinfo=BERLIN),
    "timedelta": timedelta(days=-1, seconds=5, microseconds=7),
    "path": Path("/var/lib/x"),
    "pure posix path": PurePosixPath("a/b"),
    "pure windows path": PureWindowsPath("c:/a"),
    "list": [1, [2, []]],
    "tuple": (1, (2, ())),
    "set": {3, 1, 2, "a"},
    "frozenset": frozenset({(1, 2)}),
    "dict": {"b": 1, "a": {"c": None}},
    "dict with other keys": {1: "a", (2, 3): "b"},
    "dict like a tag": {"$uuid": "x"},
    "dict with a long key": {"k" * 256: 1},
}

ANNOTATED: dict[str, tuple[Any, Any]] = {
    "enum": (Color, Color.RED),
    "int enum": (Level, Level.HIGH),
    "enum of tuples": (Shade, Shade.DARK),
    "dataclass": (Point, Point(1.0, math.nan)),
    "nested dataclass": (Visit, Visit(VALUES["datetime in a zone"], Point(1.0), frozenset({"a"}))),
    "recursive dataclass": (Box, Box("a", [Box("b")])),
    "named tuple": (Pair, Pair(1, "b")),
    "struct": (Span, Span(date(2026, 1, 5), 2, Decimal("1.10"))),
    "typed dict": (Movie, {"title": "Solaris", "lead": Point(1.0)}),
    "dict of dataclasses": (dict[str, Point], {"a": Point(1.0)}),
    "dict by enum": (dict[Color, Level], {Color.RED: Level.LOW}),
    "tuple of enums": (tuple[Color, ...], (Color.RED, Color.GREEN)),
    "set of enums": (set[Color], {Color.RED}),
    "union": (Point | Box, Box("a")),
}


@dataclass(frozen=True)
class Example:
    """A whole call, and a codec to write it."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    codec: Codec = JSON


def paint(where: Point, color: Color, *, loud: bool = False) -> Point: ...


CALLS: dict[str, Example] = {
    "no arguments": Example(),
    "positional": Example((1, "two")),
    "keyword": Example((), {"loud": True}),
    "both, by annotation and by tags": Example((Point(1.0),), {"color": Color.RED, "more": (1,)}),
    "signed": Example((1,), {}, codec_named("json", signing=Keyring(SigningKey("2026-01", b"s" * 32)))),
    "the results of other runs": Example((Reference("an id", "a key"), [Reference(None, "a key")])),
}


def golden(name: str) -> dict[str, str]:
    return json.loads((GOLDEN / f"{name}.json").read_text("utf-8"))


def test_every_line_of_the_golden_files_is_checked():
    assert list(golden("values")) == list(VALUES)
    assert list(golden("annotated")) == list(ANNOTATED)
    assert list(golden("calls")) == list(CALLS)


@pytest.mark.parametrize("kind", VALUES)
def test_an_unannotated_value_has_kept_its_form(kind: str):
    codec, types, value = codec_named("json"), CallTypes.unknown(), VALUES[kind]
    written = golden("values")[kind].encode()
    assert codec.dump_result(types, value) == written
    assert portrait(codec.load_result(types, written)) == portrait(value)


@pytest.mark.parametrize("kind", ANNOTATED)
def test_an_annotated_value_has_kept_its_form(kind: str):
    hint, value = ANNOTATED[kind]
    codec, types = codec_named("json"), types_of(hint)
    written = golden("annotated")[kind].encode()
    assert codec.dump_call(types, (value,), {}) == written
    assert portrait(codec.load_call(types, written)) == portrait(((value,), {}))


@pytest.mark.parametrize("kind", CALLS)
def test_a_call_has_kept_its_form(kind: str):
    example, types = CALLS[kind], CallTypes.of(paint)
    written = golden("calls")[kind].encode()
    assert example.codec.dump_call(types, example.args, example.kwargs) == written
    assert example.codec.load_call(types, written) == (example.args, example.kwargs)


def test_a_pickle_of_an_earlier_version_is_read():
    codec = codec_named("pickle")
    written = b64decode(golden("pickled")["call"])
    assert codec.load_call(CallTypes.unknown(), written) == ((1, ("two",)), {"three": {3}})
