"""Values of every supported kind, and a portrait that two values share only if they are the same."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Literal, NamedTuple, NewType, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
from hypothesis import strategies as st

from dovetail.codec import CallTypes, Codec, codec_named

ZONES = [ZoneInfo(key) for key in ("Europe/Berlin", "America/New_York", "Asia/Kathmandu", "UTC")]


def portrait(value: Any) -> Any:
    """Type and content, all the way down, in a form to compare. On purpose not the codec's own comparison."""
    name = type(value).__qualname__
    match value:
        case enum.Enum():
            return name, value.name
        case float() | complex() | Decimal():
            return name, repr(value)
        case datetime() | time():
            zone = value.tzinfo.key if isinstance(value.tzinfo, ZoneInfo) else value.utcoffset()
            return name, value.replace(tzinfo=None).isoformat(), value.fold, zone
        case list() | tuple():
            return name, [portrait(each) for each in value]
        case dict():
            return name, [(portrait(key), portrait(each)) for key, each in value.items()]
        case set() | frozenset():
            return name, sorted(repr(portrait(each)) for each in value)
        case msgspec.Struct():
            return name, [portrait(getattr(value, each)) for each in value.__struct_fields__]
        case _ if hasattr(value, "__dict__") and not isinstance(value, PurePosixPath | PureWindowsPath):
            return name, [(key, portrait(each)) for key, each in vars(value).items()]
        case _:
            return name, value


def there_and_back(value: Any, hint: Any = None, codec: Codec | None = None) -> Any:
    """What a task receives for this argument."""
    codec = codec or codec_named("json")
    types = types_of(hint)
    (received,), _ = codec.load_call(types, codec.dump_call(types, (value,), {}))
    return received


def types_of(hint: Any) -> CallTypes:
    def work(it): ...

    if hint is not None:
        work.__annotations__["it"] = hint
    return CallTypes.of(work)


# Classes of a user's


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mode(enum.StrEnum):
    READ = "r"
    WRITE = "w"


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Shade(enum.Enum):
    LIGHT = (255, 255, 255)
    DARK = (0, 0, 0)


@dataclass
class Point:
    x: float
    y: float = 0.0


@dataclass(frozen=True)
class Visit:
    at: datetime
    where: Point
    tags: frozenset[str] = frozenset()
    mode: Mode = Mode.READ
    extra: Any = None


@dataclass(slots=True)
class Box:
    name: str
    inside: list[Box] = field(default_factory=list)


class Pair(NamedTuple):
    left: int
    right: str = ""


class Span(msgspec.Struct, frozen=True):
    start: date
    days: int = 1
    price: Decimal = Decimal(0)


class Movie(TypedDict):
    title: str
    lead: Point


UserId = NewType("UserId", int)


class Text(str):
    """A str that is not just a str."""


# Strategies

surrogates = st.text(st.characters(min_codepoint=0xD7F0, max_codepoint=0xE010), min_size=1, max_size=5)
text = st.text(max_size=20) | surrogates
offsets = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone)
zones = st.none() | st.just(UTC) | offsets | st.sampled_from(ZONES)
folds = st.sampled_from([0, 0, 1])
datetimes = st.builds(lambda at, zone, fold: at.replace(tzinfo=zone, fold=fold), st.datetimes(), zones, folds)
times = st.builds(lambda at, zone, fold: at.replace(tzinfo=zone, fold=fold), st.times(), zones, folds)
paths = st.builds(
    lambda kind, parts: kind(*parts), st.sampled_from([Path, PurePosixPath, PureWindowsPath]), st.lists(text)
)
# NaN is not equal to itself, so that a set which holds one cannot be proved to come back: it is refused.
hashable_scalars = (
    st.none()
    | text
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False)
    | st.booleans()
    | st.complex_numbers(allow_nan=False)
    | datetimes
    | times
    | st.dates()
    | st.timedeltas()
    | st.uuids()
    | st.decimals(allow_nan=False)
    | st.binary(max_size=20)
    | paths
)
scalars = hashable_scalars | st.floats() | st.complex_numbers() | st.decimals() | st.binary(max_size=20).map(bytearray)
hashables = st.recursive(
    hashable_scalars,
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=5,
)
keys = text | st.sampled_from(["$set", "$", "$dict", "a", "k", "t"]) | hashables
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
        | st.sets(hashables, max_size=4)
        | st.frozensets(hashables, max_size=4)
    ),
    max_leaves=12,
)

points = st.builds(Point, st.floats(), st.floats())
anything = st.none() | text | datetimes | st.decimals() | st.binary() | st.tuples(st.integers(-(2**70), 2**70))
visits = st.builds(Visit, datetimes, points, st.frozensets(text), st.sampled_from(Mode), anything)
boxes = st.recursive(
    st.builds(Box, text), lambda inner: st.builds(Box, text, st.lists(inner, max_size=3)), max_leaves=6
)
pairs = st.builds(Pair, st.integers(), text)
spans = st.builds(Span, st.dates(), st.integers(), st.decimals())

# An annotation, and values that a type checker would let pass for it.
annotated: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (Color, st.sampled_from(Color)),
    (Level, st.sampled_from(Level)),
    (Mode, st.sampled_from(Mode)),
    (Shade, st.sampled_from(Shade)),
    (Access, st.sampled_from([Access.READ, Access.WRITE, Access.READ | Access.WRITE])),
    (Point, points),
    (Visit, visits),
    (Box, boxes),
    (Pair, pairs),
    (Span, spans),
    (Movie, st.fixed_dictionaries({"title": text, "lead": points})),
    (UserId, st.integers()),
    (Literal["a", "b"], st.sampled_from(["a", "b"])),
    (Point | None, points | st.none()),
    (Point | Box, points | boxes),
    (Point | Pair | str, points | pairs | text),
    (list[Visit], st.lists(visits, max_size=3)),
    (dict[str, Point], st.dictionaries(text, points, max_size=3)),
    (dict[Color, list[Span]], st.dictionaries(st.sampled_from(Color), st.lists(spans, max_size=2))),
    (dict[UUID, Pair], st.dictionaries(st.uuids(), pairs, max_size=3)),
    (tuple[Point, ...], st.lists(points, max_size=3).map(tuple)),
    (tuple[int, Box], st.tuples(st.integers(), boxes)),
    (set[Color], st.sets(st.sampled_from(Color))),
    (frozenset[Pair], st.frozensets(pairs, max_size=3)),
    (str, text),
    (datetime, datetimes),
]
