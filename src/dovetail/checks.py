"""Checks of what a public call is given: each error names the argument, what was wrong and what to do."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast

from dovetail.errors import InvalidArgument, InvalidType
from dovetail.model import Retention

T = TypeVar("T")

LONGEST_TEXT = 1000
"""Characters that a key, a name or a label may have."""

RESERVED = "dovetail."
"""How the names of queues and tasks begin that are not the users': those of schedules that wait."""

LONGEST_WINDOW = timedelta(days=36_500)
"""How far a limit may look back, and how long a lease may be."""

MOST_KEPT = 100_000
"""How many runs may be kept by count: a sweep counts that far."""


def instance(value: Any, kinds: type[T] | tuple[type[T], ...], demand: str) -> T:
    """The value, if it is of one of these kinds; `demand` says what it must be."""
    if not isinstance(value, kinds):
        raise InvalidType(f"{demand}, not {value!r}")
    return value


def members(value: Any, demand: str, *, but: tuple[type, ...] = (str, bytes)) -> list[Any]:
    """What an iterable holds, if it is one, `but` for kinds that are not meant to be taken apart."""
    if isinstance(value, but) or not isinstance(value, Iterable):
        raise InvalidType(f"{demand}, not {value!r}")
    return list(cast("Iterable[Any]", value))


def text(value: Any, name: str) -> str:
    """The value, if it is text that every store can keep."""
    if not isinstance(value, str):
        raise InvalidType(f"{name} must be text, not {type(value).__name__} {value!r}")
    if not value:
        raise InvalidArgument(f"{name} must not be empty")
    if len(value) > LONGEST_TEXT:
        raise InvalidArgument(f"{name} must be at most {LONGEST_TEXT} characters long, not {len(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"{name} {value!r} holds a lone surrogate, which cannot be stored as UTF-8") from None
    return value


def queue(value: Any) -> str:
    """The value, if it is the name of a queue that users may fill."""
    if text(value, "queue").startswith(RESERVED):
        raise InvalidArgument(f"queue {value!r} begins with {RESERVED!r}, which is kept for Dovetail's own queues")
    return value


def message(value: Any, name: str) -> str | None:
    """The value, if it is text for people to read, or none; what no store can keep of it is shown escaped."""
    if value is not None and not isinstance(value, str):
        raise InvalidType(f"{name} must be text, not {type(value).__name__} {value!r}")
    return value.encode(errors="backslashreplace").decode() if value else None


def moment(value: Any, name: str) -> datetime:
    """The value, if it is a datetime that knows its time zone, and that UTC has too."""
    if not isinstance(value, datetime):
        raise InvalidType(f"{name} must be a datetime, not {type(value).__name__} {value!r}")
    if value.utcoffset() is None:
        raise InvalidType(
            f"{name} must know its time zone, such as datetime.now(timezone.utc) + timedelta(minutes=5), not {value!r}"
        )
    try:
        value.astimezone(UTC)
    except OverflowError:
        raise InvalidArgument(f"{name} {value!r} is no time of the years 1 to 9999 in UTC") from None
    return value


def duration(value: Any, name: str, *, positive: bool = False) -> timedelta:
    """The value, if it is a timedelta that is not negative."""
    if not isinstance(value, timedelta):
        raise InvalidType(f"{name} must be a timedelta, such as timedelta(seconds=5), not {value!r}")
    if value < timedelta() or (positive and not value):
        raise InvalidArgument(f"{name} must be {'more than zero' if positive else 'zero or more'}, not {value}")
    return value


def window(value: Any, name: str) -> timedelta:
    """The value, if it is a timedelta that a store can count by."""
    if duration(value, name, positive=True) > LONGEST_WINDOW:
        raise InvalidArgument(f"{name} must be at most {LONGEST_WINDOW.days} days, not {value}")
    return value


def retention(value: Any, name: str) -> Retention:
    """The value, if it says how long or how many records are to be kept; a duration is meant for every ending."""
    if not isinstance(value, Retention):
        demand = f"{name} must be a timedelta or a Retention, such as timedelta(days=7)"
        return Retention.of(duration(instance(value, timedelta, demand), name))
    for ending in ("completed", "failed", "cancelled"):
        duration(getattr(value, ending), f"{name}.{ending}")
    if value.archive is not None:
        duration(value.archive, f"{name}.archive", positive=True)
    if value.keep is not None and whole(value.keep, f"{name}.keep", least=1) > MOST_KEPT:
        raise InvalidArgument(f"{name}.keep must be at most {MOST_KEPT}, not {value.keep}; keep more by a duration")
    return value


def truth(value: Any, name: str) -> bool:
    """The value, if it is True or False: other things are mostly meant for another argument."""
    if not isinstance(value, bool):
        raise InvalidType(f"{name} must be True or False, not {value!r}")
    return value


def whole(value: Any, name: str, *, least: int | None = None) -> int:
    """The value, if it is a whole number that every store can keep."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidType(f"{name} must be a whole number, not {value!r}")
    if least is not None and value < least:
        raise InvalidArgument(f"{name} must be at least {least}, not {value}")
    if not -(2**31) <= value < 2**31:
        raise InvalidArgument(f"{name} must lie between -2147483648 and 2147483647, not {value}")
    return value


def one_of(value: Any, name: str, choices: tuple[str, ...]) -> Any:
    """The value, if it is one of these."""
    if value not in choices:
        raise InvalidArgument(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}")
    return value


def callable_task(value: Any, name: str) -> Any:
    """The value, if it is a function that can be called in the background and has a name to be called by."""
    if not callable(value):
        raise InvalidType(f"{name} must be a function, not {type(value).__name__} {value!r}")
    if inspect.isgeneratorfunction(value) or inspect.isasyncgenfunction(value):
        raise InvalidType(f"{name} {value!r} is a generator; a task is a plain or an async function that returns")
    if not isinstance(getattr(value, "__name__", None), str):
        raise InvalidType(f"{name} {value!r} has no name; wrap it in a function, or give it a __name__")
    return value


def texts(value: Any, name: str) -> list[str]:
    """The value, if it is an iterable of texts, and not itself one."""
    return [text(each, f"each of {name}") for each in members(value, f"{name} must be a list of texts")]


def arguments(args: Any, kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call that are given as data, if they are; None is none of them."""
    positional = () if args is None else members(args, "args must be the positional arguments as a tuple")
    if kwargs is not None:
        instance(kwargs, Mapping, "kwargs must be the named arguments as a dict")
    return tuple(positional), dict(cast("Mapping[str, Any]", kwargs or {}))


def error_types(value: Any, name: str) -> tuple[type[BaseException], ...]:
    """The value, if it is an exception type or a tuple of such, as `except` takes them."""
    kinds = cast("tuple[Any, ...]", value if isinstance(value, tuple) else (value,))
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise InvalidType(f"{name} must be exception types, such as (ConnectionError, TimeoutError), not {kind!r}")
    return kinds
