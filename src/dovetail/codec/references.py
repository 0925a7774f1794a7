"""References: an argument that stands for the result of another run.

In JSON it is `{"$run": [id, key]}`, in pickle a call of `refer`. Either way the mark is in the payload as it is, so
that a look at the bytes tells a payload that may hold references from all the others, which are by far the most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from dovetail.codec.kinds import kind_of

MARK = b"$run"
TAG = MARK.decode()
_COLLECTIONS: dict[type[Any], Callable[[list[Any]], Any]] = {
    list: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
}


class Refers:
    """Something that stands for a run. As an argument it means the result of that run."""

    __slots__ = ()

    @property
    def reference(self) -> Reference:
        raise NotImplementedError

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # Pickled, whatever stands for a run is a reference to it.
        reference = self.reference
        return refer, (TAG, reference.id, reference.key)


@dataclass(frozen=True, slots=True)
class Reference(Refers):
    """A run by its id, if it is known, and its key."""

    id: str | None
    key: str

    @property
    def reference(self) -> Reference:
        return self

    @property
    def name(self) -> str:
        """What a store finds the run by."""
        return self.id or self.key


def refer(tag: str, id: str | None, key: str) -> Reference:
    """A reference as it was pickled."""
    return Reference(id, key)


def write_reference(value: Refers) -> list[Any]:
    reference = value.reference
    return [reference.id, reference.key]


def read_reference(inner: Any) -> Reference:
    if type(inner) is not list or len(cast("list[Any]", inner)) != 2:
        raise ValueError("an id and a key expected")
    run_id, key = cast("list[Any]", inner)
    if type(key) is not str or not (run_id is None or type(run_id) is str):
        raise ValueError("an id and a key expected")
    return Reference(run_id, key)


def references_in(*values: Any) -> Iterator[Reference]:
    """The runs that are referred to in these values."""
    return (each.reference for each in refers_in(*values))


def refers_in(*values: Any) -> Iterator[Refers]:
    """What stands for a run among these values, or in lists, tuples, sets and dicts among them."""
    for value in values:
        if isinstance(value, Refers):
            yield value
        elif type(value) in _COLLECTIONS:
            yield from refers_in(*value)
        elif type(value) is dict:
            yield from refers_in(*cast("dict[Any, Any]", value).values())


def resolved(value: Any, result_of: Callable[[Reference], Any]) -> Any:
    """The value, with results in the place of the references."""
    if isinstance(value, Reference):
        return result_of(value)
    kind = kind_of(value)
    if kind in _COLLECTIONS:
        members: list[Any] = [resolved(each, result_of) for each in value]
        return _COLLECTIONS[kind](members)
    if kind is dict:
        return {key: resolved(each, result_of) for key, each in cast("dict[Any, Any]", value).items()}
    return value
