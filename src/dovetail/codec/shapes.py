"""What an annotation can do for a value of a class of the caller's: lower it to builtins, lift it back.

Scalars stay as they are (a datetime keeps its zone, a float its NaN): the tags write those. So an annotation
has to carry structure only.
"""

from __future__ import annotations

import ipaddress
import types
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import reduce
from pathlib import PurePath
from typing import Annotated, Any, Literal, Protocol, Union, cast, get_args, get_origin
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from dovetail.codec.composites import composite_of, is_abstract
from dovetail.codec.kinds import kind_of
from dovetail.codec.models import ModelAdapter, adapter_of, is_model, mentions_model
from dovetail.codec.refusal import Foreign, Refused
from dovetail.codec.sameness import difference

_BUILTINS = (bytes, bytearray, datetime, date, time, timedelta, UUID, Decimal)

# Classes whose constructor takes what `str` gives.
_BY_TEXT = (
    PurePath,
    ipaddress.IPv4Address,
    ipaddress.IPv6Address,
    ipaddress.IPv4Network,
    ipaddress.IPv6Network,
    ipaddress.IPv4Interface,
    ipaddress.IPv6Interface,
    Fraction,
    ZoneInfo,
)


class Shape(Protocol):
    """One annotation, as a way there and back. Both ways may raise anything: the values are the caller's."""

    def lower(self, value: Any) -> Any: ...

    def lift(self, tree: Any) -> Any: ...


def shape_of(hint: Any) -> Shape | None:
    """The shape of a type hint, or None if it tells nothing that could bring a value back."""
    if mentions_model(hint):
        adapter = _pydantic_shape(hint)
        if adapter:
            return adapter
    bare = _bare(hint)
    if _msgspec_reads(hint) and not is_abstract(bare):
        return Structure(hint)
    if isinstance(bare, type) and issubclass(bare, Enum):
        return Members(bare)
    if get_origin(bare) is Literal:
        return shape_of(_kinds_of(get_args(bare)))
    if get_origin(bare) in (Union, types.UnionType):
        return Alternatives([shape for shape in map(shape_of, get_args(bare)) if shape])
    return composite_of(bare, shape_of)


def _kinds_of(choices: tuple[Any, ...]) -> Any:
    """A Literal as a union: enums first, which take their own members only, and then what may be anything else."""
    kinds: list[Any] = sorted(dict.fromkeys(map(kind_of, choices)), key=lambda kind: not issubclass(kind, Enum))
    return reduce(lambda union, kind: union | kind, kinds)


def _bare(hint: Any) -> Any:
    """The hint without its Annotated, NewType and `type` statement wrappings."""
    while True:
        if get_origin(hint) is Annotated:
            hint = get_args(hint)[0]
        elif hasattr(hint, "__supertype__"):
            hint = hint.__supertype__
        elif hasattr(hint, "__value__"):
            hint = hint.__value__
        else:
            return hint


def _pydantic_shape(hint: Any) -> Shape | None:
    from pydantic import PydanticSchemaGenerationError, PydanticUserError

    try:
        return ModelAdapter(hint)
    except (PydanticSchemaGenerationError, PydanticUserError, TypeError):
        return None  # it holds something pydantic does not know; msgspec may


def _msgspec_reads(hint: Any) -> bool:
    try:
        msgspec.msgpack.Decoder(hint)
    except (TypeError, NameError):
        return False
    return True


class Structure:
    """Whatever msgspec reads: dataclasses, Structs, attrs classes, NamedTuples, enums, containers of them."""

    def __init__(self, hint: Any) -> None:
        self._hint = hint

    def lower(self, value: Any) -> Any:
        return msgspec.to_builtins(value, builtin_types=_BUILTINS, enc_hook=_lower_custom)

    def lift(self, tree: Any) -> Any:
        return msgspec.convert(tree, self._hint, builtin_types=_BUILTINS, dec_hook=_lift_custom)


class Members:
    """An enum whose values msgspec does not take, such as tuples."""

    def __init__(self, kind: type[Enum]) -> None:
        self._kind = kind

    def lower(self, value: Any) -> Any:
        return value.value

    def lift(self, tree: Any) -> Any:
        return self._kind(tree)


class Alternatives:
    """A union that msgspec cannot tell apart: what has just these fields is it, else the first that fits."""

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self._shapes = shapes

    def lower(self, value: Any) -> Any:
        for shape in self._shapes:
            try:
                tree = shape.lower(value)
                if difference(value, shape.lift(tree)) is None:
                    return tree
            except Exception:  # noqa: S112  (the next alternative is the answer; if there is none, that is said)
                continue
        raise Refused("none of the annotation's alternatives brings it back")

    def lift(self, tree: Any) -> Any:
        lifted: list[Any] = []
        for shape in self._shapes:
            try:
                value = shape.lift(tree)
                if _outline(tree) == _outline(shape.lower(value)):
                    return value
                lifted.append(value)
            except Exception:  # noqa: S112  (as above)
                continue
        if not lifted:
            raise Refused("it fits none of the annotation's alternatives")
        return lifted[0]


def _outline(tree: Any) -> Any:
    """The field names, or how many: what tells two classes apart, and never depends on a set's order."""
    if isinstance(tree, dict):
        return frozenset(cast("dict[Any, Any]", tree))
    return len(cast("list[Any]", tree)) if isinstance(tree, list | tuple) else None


def _lower_custom(value: Any) -> Any:
    if isinstance(value, _BY_TEXT):
        return str(value)
    if type(value) is complex:
        return [value.real, value.imag]
    kind = kind_of(value)
    if is_model(kind):
        return adapter_of(kind).lower(value)
    raise Foreign(kind)


def _lift_custom(kind: Any, tree: Any) -> Any:
    if is_model(kind):
        return adapter_of(kind).lift(tree)
    if kind is complex:
        return complex(*tree)
    if isinstance(kind, type) and issubclass(kind, _BY_TEXT) and type(tree) is str:
        return kind(tree)
    raise Refused(f"{kind!r} cannot be read from JSON")
