"""Values to trees of plain JSON and back, container by container, within the limits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime, time
from typing import Any, cast

import msgspec

from dovetail.codec.kinds import kind_of
from dovetail.codec.limits import Limits
from dovetail.codec.references import TAG, Refers, write_reference
from dovetail.codec.refusal import Foreign, Refused, TooLarge
from dovetail.codec.tags import (
    ALWAYS_PLAIN,
    LARGEST_INT,
    SCALAR_WRITERS,
    SMALLEST_INT,
    is_tag,
    read_scalar,
    write_float,
    write_int,
    write_text,
)

_MOMENTS = (datetime, time)
_encode = msgspec.json.Encoder().encode


def is_plain(values: Iterable[Any], limits: Limits) -> bool:
    """Whether JSON keeps all of these as they are. Text may hold lone surrogates: encoding will tell."""
    return _left_over(values, limits.depth, limits.size, limits.key_length) >= 0


def _left_over(values: Iterable[Any], room: int, left: int, key_length: int) -> int:
    """How many more items there may be after these, or -1 if they are not plain, too deep or too many.

    Counting as it goes finds out a list that holds another twice, that holds another twice, and so on.
    """
    for value in values:
        kind = kind_of(value)
        if kind in ALWAYS_PLAIN:
            continue
        if kind is int:
            if not SMALLEST_INT <= value <= LARGEST_INT:
                return -1
        elif kind is float:
            if value - value != 0.0:
                return -1
        elif not room:
            return -1
        elif kind is list:
            left = _left_over(value, room - 1, left - len(value), key_length)
        elif kind is dict and are_plain_keys(value, key_length):
            left = _left_over(value.values(), room - 1, left - len(value), key_length)
        else:
            return -1
        if left < 0:
            return -1
    return left


def are_plain_keys(keys: Iterable[Any], key_length: int) -> bool:
    """Whether a dict with these keys is a JSON object that cannot be taken for a tag."""
    for key in keys:  # noqa: SIM110  (a generator would cost more than the check)
        if kind_of(key) is not str or key[:1] == "$" or len(key) > key_length:
            return False
    return True


class Writer:
    """Writes the values of one payload.

    `needs_proof` tells that reading has to be tried: a set or a dict is hashed anew, a time zone looked up.
    A careful writer also looks for lone surrogates, which are rare and which encoding finds anyway. Only arguments may
    refer to other runs.
    """

    __slots__ = ("_careful", "_key_length", "_left", "_may_refer", "_room", "needs_proof")

    def __init__(self, limits: Limits, *, careful: bool = False, may_refer: bool = False) -> None:
        self._careful = careful
        self._may_refer = may_refer
        self._room = limits.depth
        self._key_length = limits.key_length
        self._left = limits.size  # each item takes a byte at least
        self.needs_proof = False

    def write(self, value: Any) -> Any:
        kind = kind_of(value)
        write = _WRITERS.get(kind)
        return write(self, value) if write else self._tag(kind, value)

    def _tag(self, kind: type[Any], value: Any) -> Any:
        tag, write = SCALAR_WRITERS.get(kind, (None, None))
        if write is None:
            if self._may_refer and issubclass(kind, Refers):
                return {TAG: write_reference(value)}
            raise Foreign(kind)
        if kind in _MOMENTS and value.tzinfo is not None and value.tzinfo is not UTC:
            self.needs_proof = True
        return {tag: write(value)}

    def write_plain(self, value: Any) -> Any:
        return value

    def write_text(self, value: str) -> Any:
        return write_text(value) if self._careful else value

    def write_int(self, value: int) -> Any:
        return write_int(value)

    def write_float(self, value: float) -> Any:
        return write_float(value)

    def write_list(self, value: list[Any]) -> list[Any]:
        return self._items(value)

    def write_dict(self, value: dict[Any, Any]) -> dict[str, Any]:
        if are_plain_keys(value, self._key_length) and not self._has_surrogates(value):
            return dict(zip(value, self._items(value.values()), strict=True))
        self.needs_proof = True
        pairs = zip(self._items(value), self._items(value.values()), strict=True)
        return {"$dict": [[key, item] for key, item in pairs]}

    def _has_surrogates(self, keys: Iterable[str]) -> bool:
        return self._careful and any(write_text(key) is not key for key in keys)

    def write_tuple(self, value: tuple[Any, ...]) -> dict[str, Any]:
        return {"$tuple": self._items(value)}

    def write_set(self, value: set[Any]) -> dict[str, Any]:
        self.needs_proof = True
        return {"$set": self._sorted(value)}

    def write_frozenset(self, value: frozenset[Any]) -> dict[str, Any]:
        self.needs_proof = True
        return {"$frozenset": self._sorted(value)}

    def _sorted(self, value: Collection[Any]) -> list[Any]:
        # A set has no order of its own: the same call shall give the same bytes in every process.
        return sorted(self._items(value), key=_encode)

    def _items(self, values: Collection[Any]) -> list[Any]:
        self._left -= len(values)
        if self._left < 0:
            raise TooLarge("it is larger than the limit")
        if not self._room:
            raise Refused("it is nested too deeply, or holds itself")
        if not self._careful and self._are_plain(values):
            return list(values)
        self._room -= 1
        written = [self.write(value) for value in values]
        self._room += 1
        return written

    def _are_plain(self, values: Iterable[Any]) -> bool:
        left = _left_over(values, self._room - 1, self._left, self._key_length)
        if left >= 0:
            self._left = left
        return left >= 0


_WRITERS: dict[type, Callable[[Writer, Any], Any]] = {
    bool: Writer.write_plain,
    type(None): Writer.write_plain,
    str: Writer.write_text,
    int: Writer.write_int,
    float: Writer.write_float,
    list: Writer.write_list,
    dict: Writer.write_dict,
    tuple: Writer.write_tuple,
    set: Writer.write_set,
    frozenset: Writer.write_frozenset,
}


class Reader:
    """Reads the values of one payload."""

    __slots__ = ("_key_length", "_room")

    def __init__(self, limits: Limits) -> None:
        self._room = limits.depth
        self._key_length = limits.key_length

    def read(self, tree: Any) -> Any:
        kind = kind_of(tree)
        if kind is list:
            return self._items(tree)
        if kind is dict:
            return self._object(cast("dict[str, Any]", tree))
        return tree

    def _items(self, trees: Any) -> list[Any]:
        if type(trees) is not list:
            raise Refused("it holds a tag without its list")
        if not self._room:
            raise Refused("it is nested too deeply")
        self._room -= 1
        nested = (list, dict)
        read = [self.read(tree) if type(tree) in nested else tree for tree in cast("list[Any]", trees)]
        self._room += 1
        return read

    def _object(self, tree: dict[str, Any]) -> Any:
        for key in tree:
            if is_tag(key):
                return self._tagged(tree)
            if len(key) > self._key_length:
                raise Refused("it holds a key that is too long")
        return dict(zip(tree, self._items(list(tree.values())), strict=True))

    def _tagged(self, tree: dict[str, Any]) -> Any:
        if len(tree) != 1:
            raise Refused("it holds a tag among other keys")
        ((tag, inner),) = tree.items()
        container = _TAGGED_CONTAINERS.get(tag)
        return container(self, inner) if container else read_scalar(tag, inner)

    def read_tuple(self, inner: Any) -> tuple[Any, ...]:
        return tuple(self._items(inner))

    def read_set(self, inner: Any) -> set[Any]:
        return set(self.read_frozenset(inner))

    def read_frozenset(self, inner: Any) -> frozenset[Any]:
        items = self._items(inner)
        found = frozenset(_hashable(items))
        if len(found) != len(items):
            raise Refused("it holds a set with repeated values")
        return found

    def read_dict(self, inner: Any) -> dict[Any, Any]:
        pairs = self._pairs(inner)
        keys = self._items([key for key, _ in pairs])
        values = self._items([value for _, value in pairs])
        found = dict(zip(_hashable(keys), values, strict=True))
        if len(found) != len(pairs):
            raise Refused("it holds a dict with repeated keys")
        return found

    def _pairs(self, inner: Any) -> list[Any]:
        if type(inner) is not list:
            raise Refused("it holds a tag without its list")
        pairs = cast("list[Any]", inner)
        if any(type(pair) is not list or len(cast("list[Any]", pair)) != 2 for pair in pairs):
            raise Refused("it holds a malformed $dict")
        return pairs


def check_bounds(trees: Iterable[Any], room: int, key_length: int) -> None:
    """Refuse what is nested too deeply or has too long a key, in trees that are known to hold no tags."""
    for tree in trees:
        kind = kind_of(tree)
        if kind is not list and kind is not dict:
            continue
        if not room:
            raise Refused("it is nested too deeply")
        if kind is list:
            check_bounds(tree, room - 1, key_length)
            continue
        if max(map(len, tree), default=0) > key_length:
            raise Refused("it holds a key that is too long")
        check_bounds(tree.values(), room - 1, key_length)


def _hashable(values: list[Any]) -> list[Any]:
    try:
        for value in values:
            hash(value)
    except TypeError as error:
        raise Refused("it holds a key or a member that cannot be one") from error
    return values


_TAGGED_CONTAINERS: dict[str, Callable[[Reader, Any], Any]] = {
    "$tuple": Reader.read_tuple,
    "$set": Reader.read_set,
    "$frozenset": Reader.read_frozenset,
    "$dict": Reader.read_dict,
}
