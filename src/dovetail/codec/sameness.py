"""Whether what came back is what was sent: equal and of the same types, all the way down.

But an int that stands for a float, as type checkers have it, may come back as the float that it equals."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from datetime import datetime, time
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any, cast
from zoneinfo import ZoneInfo

from dovetail.codec.kinds import kind_of, name_of

_MISSING = object()

# What a defaultdict and a deque have beside their content, and `==` does not look at.
_SETTINGS = ("default_factory", "maxlen")

_Comparison = Callable[[Any, Any, str], str | None]


def difference(sent: Any, received: Any, where: str = "it") -> str | None:
    """Where and how the two differ, in words without values, or None if they are the same."""
    kind = kind_of(sent)
    found = kind_of(received)
    if kind is int and found is float and sent == received:
        return None  # in a field that says float: what it stands for, and equal to it
    if found is not kind:
        return f"{where} comes back as {name_of(found)}, not {name_of(kind)}"
    known = _COMPARISONS.get(kind)
    if known:
        return known(sent, received, where)
    return _settings(sent, received, where) or _comparison_of(kind)(sent, received, where)


@lru_cache(maxsize=1024)
def _comparison_of(kind: type) -> _Comparison:
    for base, compare in _BY_BASE:
        if issubclass(kind, base):
            return compare
    return _objects if _attributes(kind) else _leaves


def _settings(sent: Any, received: Any, where: str) -> str | None:
    for name in _SETTINGS:
        if getattr(sent, name, None) != getattr(received, name, None):
            return f"{where} comes back with another {name}"
    return None


def _leaves(sent: Any, received: Any, where: str) -> str | None:
    return None if sent is received or bool(sent == received) else f"{where} comes back changed"


def _by_text(sent: Any, received: Any, where: str) -> str | None:
    # NaN is not equal to itself, and 0.0 is equal to -0.0.
    return None if repr(sent) == repr(received) else f"{where} comes back changed"


def _members(sent: Any, received: Any, where: str) -> str | None:
    return None if sent is received else f"{where} comes back as another member"


def _moments(sent: Any, received: Any, where: str) -> str | None:
    wall = sent.replace(tzinfo=None) == received.replace(tzinfo=None) and sent.fold == received.fold
    return None if wall and _zones_agree(sent, received) else f"{where} comes back changed"


def _zones_agree(sent: Any, received: Any) -> bool:
    if isinstance(sent.tzinfo, ZoneInfo) and isinstance(received.tzinfo, ZoneInfo):
        return sent.tzinfo.key == received.tzinfo.key
    return sent.utcoffset() == received.utcoffset()


def _pairwise(sent: Iterable[Any], received: Iterable[Any], where: str) -> str | None:
    for index, (one, other) in enumerate(zip(sent, received, strict=True)):
        found = difference(one, other, f"{where}[{index}]")
        if found:
            return found
    return None


def _sequences(sent: Any, received: Any, where: str) -> str | None:
    if len(sent) != len(received):
        return f"{where} comes back with another length"
    return _pairwise(sent, received, where)


def _mappings(sent: Any, received: Any, where: str) -> str | None:
    # Key by key in order, since order is part of a dict and a NaN key cannot be looked up.
    if len(sent) != len(received):
        return f"{where} comes back with another length"
    return _pairwise(sent, received, f"{where} key ") or _pairwise(sent.values(), received.values(), where)


def _sets(sent: Any, received: Any, where: str) -> str | None:
    if len(sent) != len(received):
        return f"{where} comes back with another length"
    found = {item: item for item in received}
    for item in sent:
        other = found.get(item, _MISSING)
        changed = f"{where} comes back changed" if other is _MISSING else difference(item, other, where)
        if changed:
            return changed
    return None


def _objects(sent: Any, received: Any, where: str) -> str | None:
    for name in _attributes(kind_of(sent)):
        one, other = getattr(sent, name, _MISSING), getattr(received, name, _MISSING)
        found = difference(one, other, f"{where}.{name}")
        if found:
            return found
    return None


@lru_cache(maxsize=1024)
def _attributes(kind: Any) -> tuple[str, ...]:
    """The declared attributes of a dataclass, Struct, attrs class or pydantic model; () for anything else."""
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    if hasattr(kind, "__struct_fields__"):
        return tuple(kind.__struct_fields__)
    if hasattr(kind, "__attrs_attrs__"):
        return tuple(attribute.name for attribute in kind.__attrs_attrs__)
    if hasattr(kind, "__pydantic_fields__"):
        return (
            *cast("dict[str, Any]", kind.__pydantic_fields__),
            "__pydantic_extra__",
            "__pydantic_private__",
        )
    return ()


_COMPARISONS: dict[type, _Comparison] = {
    str: _leaves,
    int: _leaves,
    bool: _leaves,
    type(None): _leaves,
    bytes: _leaves,
    float: _by_text,
    complex: _by_text,
    Decimal: _by_text,
    datetime: _moments,
    time: _moments,
    list: _sequences,
    tuple: _sequences,
    dict: _mappings,
    set: _sets,
    frozenset: _sets,
}

_BY_BASE: tuple[tuple[type, _Comparison], ...] = (
    (Enum, _members),
    (datetime, _moments),
    (time, _moments),
    (tuple, _sequences),
    (list, _sequences),
    (dict, _mappings),
    (set, _sets),
    (frozenset, _sets),
)
