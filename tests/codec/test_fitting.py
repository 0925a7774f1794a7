"""Fitting: a value is what the annotation of its parameter says, or the caller is told where it is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, Protocol, TypedDict, TypeVar
from uuid import UUID

import annotated_types
import msgspec
import pydantic
import pytest

from dovetail import ConcurrencyLimit, Docket, PayloadError
from dovetail.codec import CallTypes
from dovetail.codec.fitting import fit_of
from dovetail.codec.references import Reference
from dovetail.errors import WrongArgument

T = TypeVar("T")
UserId = NewType("UserId", int)


class Message(pydantic.BaseModel):
    to: str


class Form(msgspec.Struct):
    to: str


@dataclass
class Letter:
    to: str


@dataclass
class Box(Generic[T]):
    inside: T


class Point(NamedTuple):
    x: int


@dataclass
class Parcel:
    weight: Annotated[float, annotated_types.Gt(0)]
    name: Annotated[str, pydantic.Field(max_length=3)] = "abc"
    inner: Parcel | None = None


class Slot(NamedTuple):
    number: Annotated[int, annotated_types.Ge(1)]


class Rack(msgspec.Struct):
    slots: list[Slot]


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Address(TypedDict):
    city: str
    zip: NotRequired[int]


class Person(TypedDict):
    name: str
    homes: list[Address]


class Speaks(Protocol):
    def speak(self) -> None: ...


AT_LEAST_3 = Annotated[int, msgspec.Meta(ge=3)]
TENTHS = Annotated[float, pydantic.Field(multiple_of=0.1)]
SHORT = Annotated[str, pydantic.Field(max_length=3, pattern="^a")]

FITS: list[tuple[Any, Any]] = [
    (Any, object()), (object, 1), (int, 1), (int, True), (int, Level.LOW), (float, 1), (complex, 1.5), (str, ""),
    (None, None), (date, datetime(2026, 1, 5, tzinfo=UTC)), (Path, Path("x")), (UserId, 7),
    (int | None, None), (int | str, "x"), (list[int] | None, [1]), (Literal["a", 1], 1),
    (list, [1, "x"]), (list[int], [1]), (list[Any], [object()]), (tuple[int, str], (1, "x")), (tuple[int, ...], (1, 2)),
    (set[str], {"x"}), (dict[str, int], {"x": 1}), (Sequence[int], (1, 2)), (Sequence[str], "text"),
    (Mapping[str, Any], {"x": object()}), (Iterable[int], iter("abc")),
    (Message, Message(to="x")), (Form, Form("x")), (Letter, Letter("x")), (Box[int], Box(1)), (Point, Point(1)),
    (list[Message], [Message(to="x")]), (dict[str, Letter | None], {"a": None, "b": Letter("x")}), (Colour, Colour.RED),
    (Address, {"city": "x"}), (Address, {"city": "x", "more": 1}), (Person, {"name": "x", "homes": [{"city": "y"}]}),
    (TENTHS, 0.3), (TENTHS, -19.9), (TENTHS, 3),
    (Annotated[Decimal, annotated_types.MultipleOf(Decimal("0.1"))], Decimal("1e99")),
    (Annotated[str, pydantic.Field(pattern=r"^\p{L}")], "abc"),
    (AT_LEAST_3, 3), (SHORT, "abc"), (Annotated[int | None, pydantic.Field(ge=1)], None),
    (Annotated[int, ConcurrencyLimit(1)], 1), (Speaks, 1), (Callable[[], int], 1), (type[int], "x"), (T, 1),
    (int, Reference("id", "key")), (list[int], [Reference("id", "key")]), (Literal["a"], Reference("id", "key")),
    (AT_LEAST_3, Reference("id", "key")), (Address, Reference("id", "key")),
    (Parcel, Parcel(0.5, inner=Parcel(1))), (Slot, Slot(1)), (Rack, Rack([Slot(1)])), (Parcel, Reference("id", "key")),
]  # fmt: skip

MISFITS: list[tuple[Any, Any, str, str]] = [
    (int, "x", "", "expected int, got str"),
    (int, 1.0, "", "expected int, got float"),
    (str, None, "", "expected str, got NoneType"),
    (Decimal, 1, "", "expected Decimal, got int"),
    (UUID, "x", "", "expected UUID, got str"),
    (UserId, "x", "", "expected int, got str"),
    (int | None, "x", "", "expected int or None, got str"),
    (Literal["a", "b"], "c", "", "expected one of 'a', 'b'"),
    (Literal[1], True, "", "expected one of 1"),
    (list[int], (1,), "", "expected list, got tuple"),
    (list[int], [1, "x"], "[1]", "expected int, got str"),
    (list[int] | None, [1, "x"], "[1]", "expected int, got str"),
    (tuple[int, str], (1,), "", "expected 2 items, got 1"),
    (tuple[int, str], (1, 2), "[1]", "expected str, got int"),
    (tuple[int, ...], (1, "x"), "[1]", "expected int, got str"),
    (dict[str, int], {"secret": "x"}, "[...]", "expected int, got str"),
    (dict[int, list[int]], {7: ["x"]}, "[7][0]", "expected int, got str"),
    (Mapping[str, int], {1: 1}, "[1]", "expected str, got int"),
    (Message, {"to": "x"}, "", "expected Message, got dict"),
    (Form, {"to": "x"}, "", "expected Form, got dict"),
    (Letter, Form("x"), "", "expected Letter, got Form"),
    (Box[int], 1, "", "expected Box, got int"),
    (list[Message], [{"to": "x"}], "[0]", "expected Message, got dict"),
    (Message | None, {"to": "x"}, "", "expected Message or None, got dict"),
    (Colour, "red", "", "expected Colour, got str"),
    (Address, {}, "", "the key 'city' of Address is missing"),
    (Address, [], "", "expected Address, got list"),
    (Person, {"name": "x", "homes": [{"city": 1}]}, "['homes'][0]['city']", "expected str, got int"),
    (AT_LEAST_3, 2, "", "expected a value >= 3"),
    (SHORT, "abcd", "", "expected a length of at most 3"),
    (SHORT, "xyz", "", "expected text that matches '^a'"),
    (TENTHS, 0.35, "", "expected a multiple of 0.1"),
    (Parcel, Parcel(0), ".weight", "expected a value > 0"),
    (Parcel, Parcel(1, "abcd"), ".name", "expected a length of at most 3"),
    (list[Parcel], [Parcel(1, inner=Parcel(-1))], "[0].inner.weight", "expected a value > 0"),
    (Slot | None, Slot(0), ".number", "expected a value >= 1"),
    (Rack, Rack([Slot(1), Slot(0)]), ".slots[1].number", "expected a value >= 1"),
    (Annotated[list[AT_LEAST_3], msgspec.Meta(min_length=1)], [2], "[0]", "expected a value >= 3"),
]


@pytest.mark.parametrize(("hint", "value"), FITS, ids=range(len(FITS)))
def test_what_fits(hint: Any, value: Any) -> None:
    fit = fit_of(hint)
    assert fit is None or fit(value) is None


@pytest.mark.parametrize(("hint", "value", "where", "what"), MISFITS, ids=range(len(MISFITS)))
def test_what_does_not_fit(hint: Any, value: Any, where: str, what: str) -> None:
    fit = fit_of(hint)
    assert fit is not None
    assert fit(value) == (where, what)


def refuse(function: Any, *args: Any, **kwargs: Any) -> None:
    CallTypes.of(function).refuse_misfits(args, kwargs)


def test_every_kind_of_parameter_is_looked_at() -> None:
    def task(a: int, /, b: int, *more: int, c: int = 0, **others: int) -> None: ...

    refuse(task, 1, 2, 3, c=4, d=5)
    for args, kwargs, named in (
        (("x", 2), {}, "argument 'a'"),
        ((1, "x"), {}, "argument 'b'"),
        ((1,), {"b": "x"}, "argument 'b'"),
        ((1, 2, "x"), {}, "positional argument 3"),
        ((1, 2), {"c": "x"}, "argument 'c'"),
        ((1, 2), {"d": "x"}, "argument 'd'"),
    ):
        with pytest.raises(WrongArgument, match=named):
            refuse(task, *args, **kwargs)


def test_a_default_fits_whatever_the_annotation_says() -> None:
    def task(a: int = None, b: str = ...) -> None: ...  # type: ignore[assignment] # noqa: RUF013

    refuse(task, None, ...)


def test_what_holds_itself_is_left_to_the_codec() -> None:
    def send(parcel: Parcel) -> None: ...

    endless = Parcel(1)
    endless.inner = endless
    refuse(send, endless)
    with pytest.raises(WrongArgument, match=r"argument 'parcel' of 'send', at \.weight: expected a value > 0"):
        refuse(send, Parcel(0))


def test_values_are_in_no_message() -> None:
    def task(a: dict[str, list[int]]) -> None: ...

    with pytest.raises(WrongArgument) as caught:
        refuse(task, {"secret": ["secret"]})
    assert "secret" not in str(caught.value)


def test_a_hint_that_nobody_understands_says_nothing() -> None:
    def task(a: NoSuchName, b: 7, c: list[NoSuchName]) -> None: ...  # type: ignore[name-defined] # noqa: F821

    refuse(task, 1, "x", [object()])


def test_nothing_reaches_the_store() -> None:
    async def send(message: Message) -> None: ...

    async def main() -> int:
        async with Docket(url="memory://wrong") as docket:
            with pytest.raises(PayloadError, match=r"argument 'message' of 'send': expected Message, got dict"):
                await docket.add(send)(message={"to": 1})  # type: ignore[arg-type]
            return len((await docket.snapshot()).future)

    assert asyncio.run(main()) == 0
