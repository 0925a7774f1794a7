"""Values of a user's own classes come back by the annotation of their parameter."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar
from zoneinfo import ZoneInfo

import msgspec
import pytest

from dovetail.codec import CallTypes, codec_named
from dovetail.errors import PayloadError, UndecodablePayload
from tests.codec.universe import (
    Access,
    Box,
    Color,
    Level,
    Mode,
    Movie,
    Pair,
    Point,
    Shade,
    Span,
    Text,
    UserId,
    Visit,
    portrait,
    there_and_back,
    types_of,
)

T = TypeVar("T")
Paint = NewType("Paint", Shade)
WHEN = datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))


@dataclass
class Files:
    root: Path
    host: ipaddress.IPv4Address
    share: Fraction
    phase: complex


@dataclass
class Wrapped(Generic[T]):
    item: T


@dataclass
class Branch:
    look: Literal[Color.RED, "bare"]
    twigs: tuple[Branch, ...] = ()
    leaves: int = field(init=False)

    def __post_init__(self) -> None:
        self.leaves = 0


LEAFY = Branch(Color.RED, (Branch("bare"),))
LEAFY.leaves = 9


class Either(NamedTuple):
    one: Point | Box
    weight: int = 0


class Stage(TypedDict, total=False):
    at: Point | Box
    color: Literal[Color.RED]


class Cat(msgspec.Struct, tag=True):
    name: str


class Dog(msgspec.Struct, tag=True):
    name: str


class Priced(msgspec.Struct, rename={"id": "$id"}, omit_defaults=True):
    id: int
    price: float = 0.0


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Color, Color.RED),
        (Level, Level.HIGH),
        (Mode, Mode.WRITE),
        (Shade, Shade.DARK),
        (Shade | None, Shade.DARK),
        (Access, Access.READ | Access.WRITE),
        (Point, Point(float("nan"), -0.0)),
        (Point | None, Point(1.5)),
        (Annotated[Point, "a note"], Point(1.5)),
        (Visit, Visit(WHEN, Point(1.0), frozenset({"a", "b"}), extra=(1, {"$x": b"raw"}))),
        (Box, Box("a", [Box("b"), Box("c", [Box("d")])])),
        (Pair, Pair(1, "\udcff")),
        (Movie, {"title": "Solaris", "lead": Point(1.0)}),
        (Span, Span(WHEN.date())),
        (Priced, Priced(7)),
        (Cat | Dog, Dog("Rex")),
        (list[Cat | Dog], [Cat("Tom"), Dog("Rex")]),
        (Point | Box, Box("b")),
        (Annotated[Shade, "a note"], Shade.DARK),
        (Paint, Shade.DARK),
        (Point | Box | int, Point(1.0)),
        (Point | Box | int, 3),
        (list[Point | Box], [Box("b"), Point(1.0)]),
        (dict[str, tuple[Point | Box, int]], {"a": (Box("b"), 1)}),
        (list[Point | Box] | None, [Point(1.0)]),
        (Either, Either(Box("b"))),
        (Stage, {"at": Box("b"), "color": Color.RED}),
        (Literal[Color.RED], Color.RED),
        (Literal[Level.HIGH, "any", None], Level.HIGH),
        (Literal["any", Shade.DARK] | None, Shade.DARK),
        (list[Literal[Color.RED, True]], [True, Color.RED]),
        (dict[Literal[Color.RED], int], {Color.RED: 1}),
        (Branch, LEAFY),
        (Sequence[Pair], [Pair(1), Pair(2)]),
        (Sequence[Pair], (Pair(1), Pair(2))),
        (tuple[Color, ...], (Color.RED, Color.GREEN)),
        (set[Color], {Color.RED, Color.GREEN}),
        (dict[Color, Point], {Color.RED: Point(1.0)}),
        (dict[Pair, Color], {Pair(1): Color.RED}),
        (Wrapped[Point], Wrapped(Point(1.0))),
        (Files, Files(Path("/x/\udcff"), ipaddress.IPv4Address("10.0.0.1"), Fraction(1, 3), complex(1, 2))),
        (UserId, 7),
    ],
    ids=lambda each: getattr(each, "__name__", None) or type(each).__name__,
)
def test_an_annotated_value_comes_back_the_same(hint: Any, value: Any):
    assert portrait(there_and_back(value, hint)) == portrait(value)


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (str, 7),
        (int, "7"),
        (float, 1),
        (int, True),
        (bytes, "text"),
        (datetime, "2026-01-01T00:00:00"),
        (list[int], (1, 2)),
        (Sequence[int], (1, 2)),
        (Color, "red"),
        (Point, {"x": 1.0, "y": 2.0}),
        (Point, None),
        (UserId, "seven"),
        (Annotated[int, msgspec.Meta(ge=10)], 1),
    ],
    ids=lambda each: getattr(each, "__name__", None) or type(each).__name__,
)
def test_a_value_is_never_made_into_what_the_annotation_says(hint: Any, value: Any):
    assert portrait(there_and_back(value, hint)) == portrait(value)


class Kid(Point): ...


class Nameless:
    def __init__(self, x: int) -> None:
        self.x = x


@dataclass
class Stubborn:
    x: int

    def __post_init__(self) -> None:
        self.x += 1


@dataclass
class Twin:
    x: float
    y: float = 0.0


class Weird(Enum):
    A = object()


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Point, Point(2**53 + 1)),  # comes back as another float
        (Point, Kid(1.0)),
        (Any, Point(1.0)),
        (list, [Point(1.0)]),
        (dict[str, Any], {"a": Point(1.0)}),
        (Box, Point(1.0)),
        (Nameless, Nameless(1)),
        (Stubborn, Stubborn(1)),
        (Point | Twin, Twin(1.0)),  # looks like a Point
        (Point | Box, Pair(1)),
        (Point, {"\udcff": Color.RED}),
        (Weird, Weird.A),
        (Visit, Visit(WHEN, Point(1.0), extra=Point(2.0))),
        (Visit, Visit(WHEN, Point(1.0), extra=Text("a"))),
        (OrderedDict[str, int], OrderedDict(a=1)),
        (Text, Text("a")),
        (type, int),
    ],
    ids=lambda each: getattr(each, "__name__", None) or type(each).__name__,
)
def test_what_the_annotation_would_change_is_refused(hint: Any, value: Any):
    with pytest.raises(PayloadError, match="argument 'it' of 'work'"):
        there_and_back(value, hint)


def test_a_whole_number_may_stand_in_a_field_that_says_float():
    there = there_and_back(Visit(WHEN, Point(1)), Visit)
    assert there == Visit(WHEN, Point(1))
    assert type(there.where.x) is float


def test_a_refusal_says_what_would_change():
    with pytest.raises(PayloadError, match=r"it\.where\.x comes back as float, not int"):
        there_and_back(Visit(WHEN, Point(2**53 + 1)), Visit)


def test_a_class_that_holds_itself_is_refused():
    box = Box("a")
    box.inside.append(box)
    with pytest.raises(PayloadError, match="argument 'it' of 'work'"):
        there_and_back(box, Box)


def test_results_come_back_by_the_return_annotation():
    def measure() -> list[Point]: ...

    codec, types = codec_named("json"), CallTypes.of(measure)
    assert codec.load_result(types, codec.dump_result(types, [Point(1.0)])) == [Point(1.0)]
    assert codec.load_result(types, codec.dump_result(types, None)) is None
    assert codec.load_result(types, codec.dump_result(types, "\udcff")) == "\udcff"
    with pytest.raises(PayloadError, match="the result of 'measure': a value of type Box"):
        codec.dump_result(types, Box("a"))


def test_a_new_field_with_a_default_reads_old_payloads():
    @dataclass
    class Before:
        x: int

    @dataclass
    class After:
        x: int
        y: int = 2

    codec = codec_named("json")
    data = codec.dump_call(types_of(Before), (Before(1),), {})
    assert codec.load_call(types_of(After), data) == ((After(1, 2),), {})


def test_a_union_reads_an_old_payload_as_the_first_that_fits():
    @dataclass
    class Before:
        name: str

    codec = codec_named("json")
    data = codec.dump_call(types_of(Before), (Before("a"),), {})
    assert codec.load_call(types_of(Point | Box), data) == ((Box("a"),), {})
    with pytest.raises(UndecodablePayload, match="fits none of the annotation's alternatives"):
        codec.load_call(types_of(Point | Visit), data)


def test_a_payload_that_fits_the_annotation_no_more_is_undecodable_and_says_which():
    codec = codec_named("json")
    data = codec.dump_call(types_of(Color), (Color.RED,), {})
    for hint in (Level, Point, None):
        with pytest.raises(UndecodablePayload, match="argument 'it' of 'work'") as caught:
            codec.load_call(types_of(hint), data)
        assert "'red'" not in str(caught.value)


def test_a_class_whose_making_raises_is_undecodable():
    @dataclass
    class Moody:
        calm: bool

        def __post_init__(self) -> None:
            if not calm:
                raise SystemExit("I quit")

    codec, calm = codec_named("json"), True
    data = codec.dump_call(types_of(Moody), (Moody(True),), {})
    calm = False
    with pytest.raises(UndecodablePayload, match="SystemExit"):
        codec.load_call(types_of(Moody), data)


def test_a_task_that_is_not_known_shows_what_was_stored():
    codec = codec_named("json")
    data = codec.dump_call(types_of(Visit), (Visit(WHEN, Point(1.0)),), {})
    (shown,), _ = codec.load_call(CallTypes.unknown("work"), data)
    assert shown["at"] == WHEN
    assert shown["where"] == {"x": 1.0, "y": 0.0}


def test_attrs_classes_come_back():
    attrs = pytest.importorskip("attrs")
    kind = attrs.make_class("Kind", {"x": attrs.field(type=int), "at": attrs.field(type=datetime)})
    assert portrait(there_and_back(kind(1, WHEN), kind)) == portrait(kind(1, WHEN))
