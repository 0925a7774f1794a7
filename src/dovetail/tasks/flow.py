"""Flow: how a call stands to the other runs of its docket."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Any, Literal, TypedDict

from dovetail import checks
from dovetail.codec.references import Refers
from dovetail.errors import InvalidArgument, InvalidType
from dovetail.model import Conflict

AfterFailure = Literal["cancel", "run"]
Unique = Literal["live", "pending"]

CONFLICTS = {"live": Conflict.KEEP, "pending": Conflict.KEEP_PENDING}


class Unset(Enum):
    """What stands where nothing was given, and a value that is also the default may be."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset.UNSET


class Options(TypedDict, total=False):
    """What `add`, `replace` and `call` take besides the task, the time and the key."""

    queue: str
    priority: int
    group: str | None
    after: Iterable[Any]
    after_failure: AfterFailure
    tags: Iterable[str]
    metadata: Mapping[str, Any] | None
    attempts: int | None
    timeout: timedelta | None


class UniqueOptions(Options, total=False):
    """What goes with `add` and `call`, where a key that is taken keeps the newcomer out."""

    unique: Unique
    unique_by: Iterable[str]


@dataclass(frozen=True, slots=True)
class Flow:
    """Whose turn the call takes, what it waits for, what it does when its key is taken, and how it is labelled."""

    group: str | None = None
    after: tuple[str, ...] = ()  # ids or keys
    after_failure: bool = False
    conflict: Conflict = Conflict.KEEP
    tags: tuple[str, ...] | None = None  # None: those of the task
    headers: Mapping[str, str] = field(default_factory=dict[str, str])  # what else the run takes along

    @classmethod
    def of(
        cls,
        group: str | None,
        after: Iterable[Any],
        after_failure: str,
        unique: str,
        tags: Iterable[str] | Unset,
        headers: Mapping[str, str],
    ) -> Flow:
        """The flow of these options; an error that names the one that makes no sense."""
        return cls(
            None if group is None else checks.text(group, "group"),
            _names(after),
            checks.one_of(after_failure, "after_failure", ("cancel", "run")) == "run",
            CONFLICTS[checks.one_of(unique, "unique", tuple(CONFLICTS))],
            None if isinstance(tags, Unset) else tuple(checks.texts(tags, "tags")),
            headers,
        )


PLAIN = Flow()


def _names(after: Any) -> tuple[str, ...]:
    demand = "after must be a list of executions or keys, such as [execution]"
    return tuple(map(_name, checks.members(after, demand, but=(str, bytes, Refers))))


def _name(parent: Any) -> str:
    if isinstance(parent, Refers):
        return parent.reference.name
    if not isinstance(parent, str):
        raise InvalidType(
            f"each of after must be an execution, what docket.call() returns, or a key, not"
            f" {type(parent).__name__} {parent!r}"
        )
    return checks.text(parent, "each of after")


def refuse_nameless(unique: str, key: str | None) -> None:
    """An error for a call that is to be the only one of its key, and has none."""
    if unique == "pending" and key is None:
        raise InvalidArgument('unique="pending" needs a key, or unique_by, to say what is to be unique')
