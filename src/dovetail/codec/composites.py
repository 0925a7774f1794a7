"""Containers and classes part by part, for hints that msgspec does not read as a whole: each part has its own shape."""

from __future__ import annotations

import collections.abc
import dataclasses
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints, is_typeddict

from dovetail.codec.kinds import fields_of, kind_of, name_of
from dovetail.codec.refusal import Refused

if TYPE_CHECKING:
    from dovetail.codec.shapes import Shape

_ABSTRACT = (
    collections.abc.Sequence,
    collections.abc.Collection,
    collections.abc.Iterable,
    collections.abc.Set,
    collections.abc.MutableSequence,
    collections.abc.MutableSet,
)
_CONCRETE: tuple[type[Any], ...] = (list, tuple, set, frozenset)
_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_ITEMS = (*_CONCRETE, *_ABSTRACT)


ShapeOf = Callable[[Any], "Shape | None"]


def is_abstract(hint: Any) -> bool:
    """Whether the hint leaves open which container it is: only the value knows."""
    return get_origin(hint) in _ABSTRACT


def composite_of(hint: Any, shape_of: ShapeOf) -> Shape | None:
    """What takes a value of this hint apart, or None if that would help nobody."""
    kind, arguments = get_origin(hint), get_args(hint)
    if kind is tuple and Ellipsis not in arguments:
        return Places([_part(each, shape_of) for each in arguments])
    if kind in _ITEMS and arguments:
        return Items(_part(arguments[0], shape_of))
    if kind in _MAPPINGS:
        return Pairs(*(_part(each, shape_of) for each in arguments))
    if is_typeddict(hint):
        return Keys(hint, shape_of)
    if fields_of(hint) and not hasattr(hint, "__struct_fields__"):
        return Fields(hint, shape_of)
    return None


def _part(hint: Any, shape_of: ShapeOf) -> Shape:
    return shape_of(hint) or _UNCHANGED


class Unchanged:
    """A part that no annotation speaks of: tags write it, or refuse it."""

    def lower(self, value: Any) -> Any:
        return value

    def lift(self, tree: Any) -> Any:
        return tree


_UNCHANGED = Unchanged()


class Items:
    """A list, a tuple or a set. Tags tell which."""

    def __init__(self, item: Shape) -> None:
        self._item = item

    def lower(self, value: Any) -> Any:
        return _each(self._item.lower, value)

    def lift(self, tree: Any) -> Any:
        return _each(self._item.lift, tree)


def _each(turn: Callable[[Any], Any], value: Any) -> Any:
    # Text is a sequence too, and has no items that an annotation could help.
    return type(value)(map(turn, value)) if type(value) in _CONCRETE else value


class Places:
    """A tuple whose items have a hint each."""

    def __init__(self, items: list[Shape]) -> None:
        self._items = items

    def lower(self, value: Any) -> Any:
        return tuple(item.lower(each) for item, each in zip(self._items, value, strict=True))

    def lift(self, tree: Any) -> Any:
        return tuple(item.lift(each) for item, each in zip(self._items, tree, strict=True))


class Pairs:
    """A dict."""

    def __init__(self, key: Shape, item: Shape) -> None:
        self._key = key
        self._item = item

    def lower(self, value: Any) -> Any:
        return {self._key.lower(key): self._item.lower(item) for key, item in value.items()}

    def lift(self, tree: Any) -> Any:
        return {self._key.lift(key): self._item.lift(item) for key, item in tree.items()}


class Keys:
    """A TypedDict. Its parts are looked up when a value is there: it may hold others of its kind."""

    def __init__(self, kind: Any, shape_of: ShapeOf) -> None:
        self._kind = kind
        self._shape_of = shape_of

    def lower(self, value: Any) -> Any:
        parts = _parts_of(self._kind, self._shape_of)
        return {name: parts.get(name, _UNCHANGED).lower(item) for name, item in value.items()}

    def lift(self, tree: Any) -> Any:
        parts = _parts_of(self._kind, self._shape_of)
        return {name: parts.get(name, _UNCHANGED).lift(item) for name, item in tree.items()}


class Fields:
    """A dataclass or a NamedTuple, by the names of its fields."""

    def __init__(self, kind: Any, shape_of: ShapeOf) -> None:
        self._kind = kind
        self._shape_of = shape_of

    def lower(self, value: Any) -> Any:
        if not isinstance(value, self._kind):
            raise Refused(f"expected {name_of(self._kind)}, got {name_of(kind_of(value))}")
        parts = _parts_of(self._kind, self._shape_of)
        return {name: parts[name].lower(getattr(value, name)) for name in fields_of(self._kind)}

    def lift(self, tree: Any) -> Any:
        """Made by its own constructor, with the defaults of fields that are newer than what was stored."""
        parts = _parts_of(self._kind, self._shape_of)
        given = {name: parts[name].lift(tree[name]) for name in fields_of(self._kind) if name in tree}
        late = _set_after_making(self._kind)
        made = self._kind(**{name: each for name, each in given.items() if name not in late})
        for name in late & given.keys():
            object.__setattr__(made, name, given[name])
        return made


@lru_cache(maxsize=1024)
def _parts_of(kind: Any, shape_of: ShapeOf) -> Mapping[str, Shape]:
    return {name: _part(hint, shape_of) for name, hint in get_type_hints(kind, include_extras=True).items()}


def _set_after_making(kind: Any) -> set[str]:
    if not dataclasses.is_dataclass(kind):
        return set()
    return {field.name for field in dataclasses.fields(kind) if not field.init}
