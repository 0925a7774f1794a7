"""Exceptions between two processes: the same object if it can be pickled, and otherwise one that looks like it."""

from __future__ import annotations

import builtins
import pickle
from typing import Any

from dovetail.failures import failure_of
from dovetail.worker.processes.letters import Raised

UNSUITABLE = (BaseExceptionGroup, UnicodeError)
"""Built-in types that want to be made with more than a text."""


class Elsewhere(Exception):
    """The traceback of an exception, from the process where it was raised."""

    def __str__(self) -> str:
        return f"\n\n{self.args[0]}"


class LooksLike(Exception):
    """The base of what stands for exceptions that could not be pickled."""

    def __init__(self, message: str) -> None:
        Exception.__init__(self, message)

    def __str__(self) -> str:
        return str(self.args[0])


def put(error: BaseException, changed: dict[str, bytes]) -> Raised:
    try:
        data = pickle.dumps(error)
        pickle.loads(data)  # noqa: S301 - our own; some exceptions can be pickled, but not be read again
    except BaseException:
        data = None
    return Raised(data, failure_of(error), _kind(error), changed)


def got(raised: Raised) -> BaseException:
    error = _unpickled(raised.error)
    if error is None:
        failure = raised.failure
        kind: Any = type(failure.type, (LooksLike, getattr(builtins, raised.kind)), {})
        error = kind(failure.message)
    error.__cause__ = Elsewhere(raised.failure.traceback)
    return error


def _unpickled(data: bytes | None) -> BaseException | None:
    try:
        error = None if data is None else pickle.loads(data)  # noqa: S301 - as above
    except BaseException:
        return None
    return error if isinstance(error, BaseException) else None


def _kind(error: BaseException) -> str:
    for kind in type(error).__mro__:
        if kind.__module__ == "builtins" and issubclass(kind, Exception) and not issubclass(kind, UNSUITABLE):
            return kind.__name__
    return "Exception"
