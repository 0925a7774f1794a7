"""Exceptions as text, and what a caller catches instead of them."""

from __future__ import annotations

import builtins
import traceback
from typing import Any

from dovetail.errors import ExecutionFailed
from dovetail.model import Failure

LONGEST_NAME = 500
LONGEST_MESSAGE = 10_000
LONGEST_TRACEBACK = 50_000


def failure_of(error: BaseException) -> Failure:
    """An exception as text. Nothing that an exception does can make this fail, nor make it large."""
    name = _clipped(_type_name(error), LONGEST_NAME)
    return Failure(name, _clipped(_text(error), LONGEST_MESSAGE), _clipped(_traceback(error), LONGEST_TRACEBACK))


def _type_name(error: BaseException) -> str:
    # Not by attribute: a metaclass may have hidden it.
    return type.__dict__["__name__"].__get__(type(error))


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as broken:  # a broken __str__ is the exception's own affair
        return f"<the text of this exception cannot be had: {_type_name(broken)}>"


def _traceback(error: BaseException) -> str:
    try:
        lines = traceback.TracebackException.from_exception(error, limit=50, compact=True, max_group_depth=5).format()
        return "".join(lines)
    except BaseException as broken:  # as above; a recursive cause, for one
        return f"<the traceback of this exception cannot be had: {_type_name(broken)}>"


def _clipped(text: str, longest: int) -> str:
    # Lone surrogates, which a store cannot keep, are shown escaped. By str's own method: a subclass is not trusted.
    text = str.encode(text, "utf-8", "backslashreplace").decode("utf-8")
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n... {len(text) - longest} characters left out ...\n{text[-half:]}"


UNSUITABLE = (ExceptionGroup, StopIteration, StopAsyncIteration)
"""A group wants to be made with its members, which are not kept; the others mean something else to whoever awaits."""

_kinds: dict[str, type[ExecutionFailed]] = {}


def failed(text: str | None, failure: Failure | None, run: Any) -> ExecutionFailed:
    """What `get_result` raises for a run that failed: an ExecutionFailed that is also the built-in type which the task
    raised, so that `except ValueError` works."""
    name = failure.type if failure else (text or "").partition(":")[0]
    kind = _kind(name)
    if failure is None:
        message = text or "the run failed, and left no word why"
    else:
        message = str(failure) if kind is ExecutionFailed else failure.message
    error = kind(message)
    error.run = run
    error.failure = failure
    return error


def _kind(name: str) -> type[ExecutionFailed]:
    found = _kinds.get(name)
    if found is None:
        builtin = getattr(builtins, name, None)
        if not (isinstance(builtin, type) and issubclass(builtin, Exception)) or issubclass(builtin, UNSUITABLE):
            return ExecutionFailed
        found = _kinds[name] = type(name, (ExecutionFailed, builtin), {})
    return found
