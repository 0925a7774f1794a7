"""What a worker and a process of its own say to each other. Both are the same program, so it is pickled."""

from __future__ import annotations

import logging
import pickle
from dataclasses import dataclass
from typing import Any

from dovetail.model import Claim, Failure

HEAD = 8
"""Bytes that say how long a letter is."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """To a new process: how the worker logs."""

    levels: dict[str, int]  # by logger; the root's under an empty name


@dataclass(frozen=True, slots=True)
class Order:
    """Run this."""

    module: str
    name: str
    claim: Claim
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    packed: dict[str, Any]  # by parameter: what its behavior has to know
    worker: str
    labels: dict[str, Any]
    carried: dict[str, str]  # the trace that it is part of, and its baggage


@dataclass(frozen=True, slots=True)
class Begun:
    """The order has arrived: from here on a death is the run's own."""


@dataclass(frozen=True, slots=True)
class Told:
    """A behavior of the body tells its counterpart something."""

    parameter: str
    what: Any


@dataclass(frozen=True, slots=True)
class Logged:
    """Something was logged."""

    record: logging.LogRecord


@dataclass(frozen=True, slots=True)
class Returned:
    """The body is over. Its result is pickled apart, and if that cannot be, this says why."""

    result: bytes | None
    trouble: str | None
    changed: dict[str, bytes]  # by parameter: attributes of its behavior that the body has changed


@dataclass(frozen=True, slots=True)
class Raised:
    """The body raised something: the exception if it can be pickled, and in any case its text."""

    error: bytes | None
    failure: Failure
    kind: str  # the nearest built-in type that it is
    changed: dict[str, bytes]


def framed(letter: Any) -> bytes:
    body = pickle.dumps(letter, pickle.HIGHEST_PROTOCOL)
    return len(body).to_bytes(HEAD, "big") + body


def opened(body: bytes) -> Any:
    return pickle.loads(body)  # noqa: S301 - it comes from a process of our own
