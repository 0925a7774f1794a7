"""Extras: what one call of a task may say beside its arguments, and takes along in its run's headers."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import msgspec

from dovetail import checks
from dovetail.behaviors import Retry, Timeout
from dovetail.behaviors.retry import ATTEMPTS
from dovetail.behaviors.timeout import TIMEOUT
from dovetail.errors import InvalidArgument, InvalidType
from dovetail.tasks.flow import UNSET, Unset
from dovetail.tasks.task import Task

METADATA = "dovetail-metadata"
"""The header in which a run carries what its caller notes of it."""
MOST_NOTED = 64 * 1024
"""Characters that this may have: it goes along with every look at the run."""
CARRIED = (METADATA, ATTEMPTS, TIMEOUT)
"""The headers that hold for the next run of a perpetual task too."""


@dataclass(frozen=True, slots=True)
class Extras:
    """Notes of the caller's, and how often and how long this one call may be tried."""

    metadata: Mapping[str, Any] | None = None
    attempts: int | Unset | None = UNSET
    timeout: timedelta | None = None

    def headers(self, task: Task) -> dict[str, str]:
        """What the run takes along; an error for what the task could not follow."""
        if self.metadata is None and self.attempts is UNSET and self.timeout is None:
            return {}
        headers: dict[str, str] = {}
        if self.metadata is not None:
            headers[METADATA] = _written(self.metadata)
        if not isinstance(self.attempts, Unset):
            _needs(task, Retry, "attempts", "Retry(attempts=3)")
            chosen = self.attempts
            headers[ATTEMPTS] = "" if chosen is None else str(checks.whole(chosen, "attempts", least=1))
        if self.timeout is not None:
            _needs(task, Timeout, "timeout", "Timeout(timedelta(minutes=1))")
            chosen = checks.duration(self.timeout, "timeout", positive=True)
            headers[TIMEOUT] = str(chosen // timedelta(microseconds=1))
        return headers


def carried(headers: Mapping[str, str]) -> dict[str, str]:
    """What the next run of the same key takes over."""
    return {name: headers[name] for name in CARRIED if name in headers}


def metadata_of(headers: Mapping[str, str]) -> dict[str, Any]:
    """What the caller noted; nothing if it is not as it was written."""
    try:
        return msgspec.json.decode(headers[METADATA], type=dict[str, Any]) if METADATA in headers else {}
    except msgspec.MsgspecError:
        return {}


def _needs(task: Task, behavior: type[Any], option: str, example: str) -> None:
    if not any(isinstance(each, behavior) for each in task.all_behaviors):
        raise InvalidArgument(f"{option} is for tasks that declare a {behavior.__name__}, such as {example}")


def _written(metadata: Any) -> str:
    noted = cast("Mapping[Any, Any]", metadata)
    if not isinstance(metadata, Mapping) or not all(isinstance(each, str) for each in noted):
        raise InvalidType(f"metadata must map names to values, such as {{'order': 7}}, not {metadata!r}")
    try:
        _refuse_what_changes(dict(noted), "metadata")
        written = msgspec.json.encode(dict(noted)).decode()
    except InvalidType:
        raise
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidType(f"metadata must be what JSON can say: {error}") from None
    if len(written) > MOST_NOTED:
        raise InvalidArgument(
            f"metadata has at most {MOST_NOTED:,} characters as JSON, not {len(written):,}: pass the rest as arguments"
        )
    return written


def _refuse_what_changes(value: Any, where: str) -> None:
    """An error for the first part of it that would not come back as it is."""
    if isinstance(value, dict):
        for key, each in cast("dict[Any, Any]", value).items():
            if not isinstance(key, str):
                raise _changed(f"a key of {where}", key)
            _refuse_what_changes(each, f"{where}[{key!r}]")
    elif isinstance(value, list):
        for number, each in enumerate(cast("list[Any]", value)):
            _refuse_what_changes(each, f"{where}[{number}]")
    elif not isinstance(value, str | int | float | None) or (isinstance(value, float) and not math.isfinite(value)):
        raise _changed(where, value)


def _changed(where: str, value: Any) -> InvalidType:
    return InvalidType(
        f"{where} is {reprlib.repr(value)}, and would not come back as it is: metadata takes None, booleans, finite"
        " numbers, text, and lists and dicts of these with text as keys"
    )
