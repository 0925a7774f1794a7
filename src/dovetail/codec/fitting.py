"""Whether a value is what the annotation of its parameter says. Nothing is converted: it fits, or it does not.

What an annotation says that cannot be looked at here (a protocol, a callable, a type variable) is taken as said.
"""

from __future__ import annotations

import collections.abc
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NotRequired,
    Required,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from dovetail.codec.kinds import fields_of, kind_of, name_of
from dovetail.codec.references import Refers


class Misfit(NamedTuple):
    """Where in a value something does not fit, and what."""

    where: str
    what: str

    def within(self, step: str) -> Misfit:
        return Misfit(step + self.where, self.what)


Fit = Callable[[Any], Misfit | None]

_ALSO = {float: (float, int), complex: (complex, float, int)}
"""Numbers that may stand for another, as type checkers have it."""
_TAKEN_AS_SAID: tuple[Any, ...] = (Any, object, type, Callable, collections.abc.Awaitable)
_CONSTRAINING = {"annotated_types", "msgspec", "pydantic"}
"""Packages whose metadata constrains a value."""
ROUNDING = 1e-9
"""How much of itself a float may be off a multiple."""
_LISTS = (list, tuple, set, frozenset)


def fit_of(hint: Any) -> Fit | None:
    """What looks whether a value fits a hint; None if there is nothing to look at."""
    if hint is None:
        hint = type(None)
    if hasattr(hint, "__supertype__"):
        return fit_of(hint.__supertype__)
    if hasattr(hint, "__value__") and not isinstance(hint, type):
        return _later(lambda: hint.__value__)
    origin = get_origin(hint)
    if origin is Annotated:
        return _constrained(*get_args(hint))
    if origin in (Union, types.UnionType):
        return _any_of(get_args(hint))
    if origin in (Required, NotRequired):
        return fit_of(get_args(hint)[0])
    if origin is Literal:
        return _one_of(get_args(hint))
    if is_typeddict(origin or hint):
        return _keyed(origin or hint)
    return _of_class(origin or hint, get_args(hint))


def _later(hint: Callable[[], Any]) -> Fit:
    """A hint that may speak of itself: it is read when a value is there, which ends somewhere."""

    def fit(value: Any) -> Misfit | None:
        inner = fit_of(hint())
        return inner(value) if inner else None

    return fit


def _of_class(kind: Any, arguments: tuple[Any, ...]) -> Fit | None:
    if not isinstance(kind, type) or kind in _TAKEN_AS_SAID or getattr(kind, "_is_protocol", False):
        return None
    accepted: Any = _ALSO.get(kind, kind)
    inside = _inside(kind, arguments) if arguments else _attributes(kind)

    def fit(value: Any) -> Misfit | None:
        if not isinstance(value, accepted):
            return _refusal(value, name_of(kind))
        return inside(value) if inside else None

    return fit


def _refusal(value: Any, expected: str) -> Misfit | None:
    # The result of another run is not there yet: its own task answers for it.
    return None if isinstance(value, Refers) else Misfit("", f"expected {expected}, got {name_of(kind_of(value))}")


# What is inside


def _inside(kind: type[Any], arguments: tuple[Any, ...]) -> Fit | None:
    if kind is tuple and Ellipsis not in arguments:
        return _places([fit_of(each) for each in arguments])
    if issubclass(kind, collections.abc.Mapping):
        return _pairs(*(fit_of(each) for each in arguments)) if len(arguments) == 2 else None
    if issubclass(kind, collections.abc.Iterable):
        return _items(fit_of(arguments[0]))
    return None


def _items(inner: Fit | None) -> Fit | None:
    if inner is None:
        return None

    def fit(value: Any) -> Misfit | None:
        if not isinstance(value, _LISTS):
            return None  # to look into a generator would use it up
        for place, item in enumerate(cast("list[Any]", value)):
            if found := inner(item):
                return found.within(f"[{place}]")
        return None

    return fit


def _places(inner: Sequence[Fit | None]) -> Fit:
    def fit(value: Any) -> Misfit | None:
        if len(value) != len(inner):
            return Misfit("", f"expected {len(inner)} items, got {len(value)}")
        pairs = zip(inner, value, strict=True)
        return _first((f"[{place}]", each(item)) for place, (each, item) in enumerate(pairs) if each)

    return fit


def _pairs(of_key: Fit | None = None, of_value: Fit | None = None) -> Fit | None:
    if of_key is None and of_value is None:
        return None

    def fit(value: Any) -> Misfit | None:
        for key, item in value.items():
            found = (of_key and of_key(key)) or (of_value and of_value(item))
            if found:
                return found.within(f"[{_shown(key)}]")
        return None

    return fit


def _keyed(kind: Any) -> Fit:
    """A TypedDict. Keys beyond its own do no harm: it may be a larger one."""

    def fit(value: Any) -> Misfit | None:
        if not isinstance(value, dict):
            return _refusal(value, name_of(kind))
        given = cast("dict[str, Any]", value)
        required, fits = _fields(kind)
        missing = next((name for name in required if name not in given), None)
        if missing is not None:
            return Misfit("", f"the key {missing!r} of {name_of(kind)} is missing")
        return _first((f"[{name!r}]", each(given[name])) for name, each in fits.items() if name in given)

    return fit


def _attributes(kind: type[Any]) -> Fit | None:
    """A dataclass, struct or NamedTuple: its fields that have bounds. Their types are looked at when it is written."""
    if not fields_of(kind):
        return None

    def fit(value: Any) -> Misfit | None:
        bounded = _bounded(kind).items()
        return _first((f".{name}", each(getattr(value, name))) for name, each in bounded if hasattr(value, name))

    return fit


@lru_cache(maxsize=1024)
def _bounded(kind: Any) -> dict[str, Fit]:
    """What looks at the fields of a class that have bounds, or may hold something that has."""
    try:
        hints = get_type_hints(kind, include_extras=True)
    except Exception:  # a name that only type checkers see
        return {}
    worth_a_look = {name: hints[name] for name in fields_of(kind) if name in hints and _may_be_bounded(hints[name])}
    return {name: fit for name, hint in worth_a_look.items() if (fit := fit_of(hint))}


def _may_be_bounded(hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        base, *metadata = get_args(hint)
        return any(True for each in _flattened(metadata) for _ in _demands(each)) or _may_be_bounded(base)
    return bool(fields_of(hint)) or any(map(_may_be_bounded, get_args(hint)))


@lru_cache(maxsize=1024)
def _fields(kind: Any) -> tuple[list[str], dict[str, Fit]]:
    """The keys that a TypedDict must have, and what looks at those that have a hint worth looking at."""
    try:
        hints = get_type_hints(kind, include_extras=True)
    except Exception:  # a name that only type checkers see
        return [], {}
    # The class itself does not see through annotations that are text.
    required = [
        name
        for name, hint in hints.items()
        if get_origin(hint) is Required or (name in kind.__required_keys__ and get_origin(hint) is not NotRequired)
    ]
    return required, {name: fit for name, hint in hints.items() if (fit := fit_of(hint))}


def _first(found: Iterable[tuple[str, Misfit | None]]) -> Misfit | None:
    return next((misfit.within(step) for step, misfit in found if misfit), None)


def _shown(key: Any) -> str:
    return repr(key) if isinstance(key, int) else "..."  # a key is data, and may be nobody's business


# Choices and constraints


def _any_of(alternatives: tuple[Any, ...]) -> Fit | None:
    fits = [fit_of(each) for each in alternatives]
    if any(each is None for each in fits):
        return None

    def fit(value: Any) -> Misfit | None:
        found = [misfit for each in fits if each and (misfit := each(value))]
        if len(found) < len(fits):
            return None
        # If only one of them comes near, what is wrong there says most.
        inner = [misfit for misfit in found if misfit.where]
        return inner[0] if len(inner) == 1 else _refusal(value, " or ".join(map(_written, alternatives)))

    return fit


def _one_of(choices: tuple[Any, ...]) -> Fit:
    def fit(value: Any) -> Misfit | None:
        if any(value == each and kind_of(value) is kind_of(each) for each in choices) or isinstance(value, Refers):
            return None
        return Misfit("", f"expected one of {', '.join(map(repr, choices))}")

    return fit


def _constrained(hint: Any, *metadata: Any) -> Fit | None:
    inner = fit_of(hint)
    demands = [demand for each in _flattened(metadata) for demand in _demands(each)]
    if not demands:
        return inner

    def fit(value: Any) -> Misfit | None:
        found = inner(value) if inner else None
        if found or isinstance(value, Refers):
            return found
        return next((Misfit("", f"expected {words}") for words, holds in demands if not _is_met(holds, value)), None)

    return fit


def _flattened(metadata: Iterable[Any]) -> Iterable[Any]:
    for each in metadata:
        if kind_of(each).__module__.partition(".")[0] in _CONSTRAINING:
            yield each
            yield from getattr(each, "metadata", ())  # pydantic keeps those of a Field there


_Demand = tuple[str, Callable[[Any], bool]]
_DEMANDS: Mapping[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "gt": ("a value > {}", lambda value, bound: value > bound),
    "ge": ("a value >= {}", lambda value, bound: value >= bound),
    "lt": ("a value < {}", lambda value, bound: value < bound),
    "le": ("a value <= {}", lambda value, bound: value <= bound),
    "multiple_of": ("a multiple of {}", lambda value, bound: _is_multiple(value, bound)),
    "min_length": ("a length of at least {}", lambda value, bound: len(value) >= bound),
    "max_length": ("a length of at most {}", lambda value, bound: len(value) <= bound),
    "pattern": ("text that matches {!r}", lambda value, bound: re.search(bound, value) is not None),
}


def _demands(constraint: Any) -> Iterable[_Demand]:
    for name, (words, holds) in _DEMANDS.items():
        bound = getattr(constraint, name, None)
        if bound is not None:
            yield words.format(bound), lambda value, bound=bound, holds=holds: holds(value, bound)


def _is_multiple(value: Any, bound: Any) -> bool:
    rest = value % bound
    if isinstance(rest, float):  # of 0.3 and 0.1 something is left, and nobody means that
        return min(abs(rest), abs(abs(rest) - abs(bound))) <= abs(value) * ROUNDING
    return rest == 0


def _is_met(holds: Callable[[Any], bool], value: Any) -> bool:
    try:
        return holds(value)
    except (TypeError, ArithmeticError, re.error):
        # It has no order or length (None, where that is allowed), or the constraint is of a kind that is not known
        # here: pydantic's patterns are those of another language.
        return True


def _written(hint: Any) -> str:
    if hint is type(None):
        return "None"
    return name_of(hint) if isinstance(hint, type) else str(hint).replace("typing.", "")
