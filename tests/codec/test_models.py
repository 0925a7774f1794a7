"""Pydantic models come back by annotation, and pydantic is not imported without need."""

from __future__ import annotations

import subprocess
import sys
from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

import msgspec
import pytest

from dovetail.codec import CallTypes, codec_named
from dovetail.errors import PayloadError, UndecodablePayload
from tests.codec.universe import Color, Level, Mode, Shade, portrait, there_and_back, types_of

pydantic = pytest.importorskip("pydantic")
from pydantic import (  # noqa: E402
    AliasChoices,
    BaseModel,
    Field,
    HttpUrl,
    PrivateAttr,
    RootModel,
    SecretStr,
    field_validator,
)

WHEN = datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))


class Stop(BaseModel):
    at: datetime
    wait: timedelta = timedelta(minutes=1)


class Trip(BaseModel):
    name: str
    stops: list[Stop] = []
    color: Color = Color.RED
    shade: Shade = Shade.DARK
    marks: set[int] = set()
    link: HttpUrl | None = None
    recent: deque[int] = deque()
    anything: Any = None


class Renamed(BaseModel):
    inner: int = Field(alias="outer")
    other: int = Field(validation_alias=AliasChoices("b", "c"), serialization_alias="d", default=0)


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    tricks: int = 0


class Leveled(BaseModel):
    mode: Literal[Mode.WRITE]
    level: Literal[Level.HIGH, "any"] = "any"


class Names(RootModel[list[str]]): ...


class Open(BaseModel, extra="allow"):
    a: int


@dataclass
class Holder:
    trip: Trip
    when: datetime


class Frame(msgspec.Struct):
    cats: list[Cat]


TRIP = Trip(
    name="a",
    stops=[Stop(at=WHEN)],
    color=Color.GREEN,
    marks={1, 2},
    link=HttpUrl("https://example.com/a"),
    recent=deque([1]),
    anything=(1, {2}),
)


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Trip, TRIP),
        (Trip | None, TRIP),
        (list[Trip], [TRIP, TRIP]),
        (dict[str, tuple[Trip, int]], {"a": (TRIP, 1)}),
        (Renamed, Renamed(outer=1, b=2)),  # pyright: ignore[reportCallIssue]
        (Cat | Dog, Dog(tricks=3)),
        (list[Annotated[Cat | Dog, Field(discriminator="kind")]], [Cat(), Dog()]),
        (Cat | str, Cat(lives=1)),
        (Leveled, Leveled(mode=Mode.WRITE, level=Level.HIGH)),
        (Names, Names(["a"])),
        (Open, Open(a=1, b=WHEN)),  # pyright: ignore[reportCallIssue]
        (Holder, Holder(Trip(name="a", marks={1}, shade=Shade.LIGHT), WHEN)),
        (Frame, Frame([Cat()])),
        (tuple[Frame, Cat], (Frame([Cat()]), Cat())),
        (HttpUrl, HttpUrl("https://example.com/a")),
        (Annotated[list[int], Field(max_length=3)], [1, 2]),
    ],
    ids=lambda each: getattr(each, "__name__", None) or type(each).__name__,
)
def test_a_model_comes_back_the_same(hint: Any, value: Any):
    received = there_and_back(value, hint)
    assert portrait(received) == portrait(value)
    assert received == value


class Creeping(BaseModel):
    x: int

    @field_validator("x")
    @classmethod
    def creep(cls, x: int) -> int:
        return x + 1


class Private(BaseModel):
    x: int
    _y: int = PrivateAttr(default=0)


class Secret(BaseModel):
    word: SecretStr


class Kid(Cat):
    extra: int = 0


def private() -> Private:
    made = Private(x=1)
    made._y = 2
    return made


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Creeping, Creeping(x=1)),
        (Private, private()),
        (Secret, Secret(word=SecretStr("hunter2"))),
        (Cat, Kid()),
        (Any, Cat()),
        (None, Cat()),
        (Trip, Trip(name="a", anything=Cat())),
        (Trip, Trip(name="a", recent=deque([1], maxlen=3))),
        (Cat, Cat.model_construct(lives="many")),
    ],
    ids=lambda each: getattr(each, "__name__", None) or type(each).__name__,
)
def test_a_model_that_would_change_is_refused(hint: Any, value: Any):
    with pytest.raises(PayloadError, match="argument 'it' of 'work'") as caught:
        there_and_back(value, hint)
    assert "hunter2" not in str(caught.value)
    assert "many" not in str(caught.value)


def test_a_plain_dict_for_a_model_stays_a_dict():
    assert there_and_back({"lives": 3}, Cat) == {"lives": 3}


def test_a_payload_that_fits_the_model_no_more_is_undecodable_and_shows_no_values():
    codec = codec_named("json")
    data = codec.dump_call(types_of(Stop), (Stop(at=WHEN),), {})
    with pytest.raises(UndecodablePayload, match=r"argument 'it' of 'work'.*name: Field required") as caught:
        codec.load_call(types_of(Trip), data)
    assert "2026" not in str(caught.value)


def test_results_may_be_models():
    def travel() -> Trip: ...

    codec, types = codec_named("json"), CallTypes.of(travel)
    assert codec.load_result(types, codec.dump_result(types, TRIP)) == TRIP


def test_pydantic_is_not_imported_for_what_is_not_its_own():
    program = """
import sys
from dataclasses import dataclass
from dovetail.codec import CallTypes, codec_named

@dataclass
class Point:
    x: float

def work(point: Point, names: list[str]) -> Point: ...

codec, types = codec_named("json"), CallTypes.of(work)
assert codec.load_call(types, codec.dump_call(types, (Point(1.0), ["a"]), {})) == ((Point(1.0), ["a"]), {})
assert not any(name.startswith("pydantic") for name in sys.modules)
assert "cloudpickle" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
