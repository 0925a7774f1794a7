"""The driver's errors in our words."""

from __future__ import annotations

import json
from typing import Any

from dovetail.engine import refusals
from dovetail.engines.postgres.enlisting import sqlstate_of
from dovetail.engines.postgres.location import Location
from dovetail.engines.postgres.texts import get
from dovetail.errors import (
    DovetailError,
    EngineFull,
    EngineUnavailable,
    InvalidArgument,
    OutcomeUnknown,
    SchemaOutdated,
    StoreDamaged,
    UsageError,
)

UNKNOWN_PARENT = "DV001"
ANOTHER_DATABASE = "DV002"
CIRCLE = "DV003"
_RETRIED = frozenset({"40001", "40P01", "55P03"})
_FULL = frozenset({"53100", "53200"})
_READ_ONLY = "25006"
_MISSING = frozenset({"3F000", "42P01", "42883", "42703"})
_DENIED = "42501"
_ABORTED = "25P02"


class Contended(EngineUnavailable):
    """Others were in the way: a deadlock, a serialization failure, a lock that took too long. Nothing was done."""


class Denied(EngineUnavailable):
    """The user has no right to do that. Nothing was done, and it will be no better the next time."""


class ConnectionLost(OutcomeUnknown):
    """The connection broke after something was sent: it may or may not have been done."""


def translated(error: Exception, location: Location, state: str | None = None) -> DovetailError:
    """What an error means to whoever asked."""
    state = state or getattr(error, "sqlstate", None)
    if state is None or state.startswith(("08", "57P")) or state == "25P03":
        return unavailable(error, location, sent=True)
    where, said = location.shown, _first_line(error)
    if state in _RETRIED:
        return Contended(f"{where}: {said}")
    if state == UNKNOWN_PARENT:
        key, reference = json.loads(_detail(error))
        return refusals.unknown_parent(get(key), get(reference))
    if state == CIRCLE:
        key, *_ = json.loads(_detail(error))
        return refusals.circle(get(key))
    if state in _FULL:
        return EngineFull(f"{where}: the server has no room; free some space, running work can still finish ({said})")
    if state == _READ_ONLY:
        return EngineUnavailable(f"{where} is read-only: {said}; name the primary server")
    if state == _DENIED:
        return Denied(
            f"{where}: this user has no right to do that: {said.partition(';')[0]}; grant it a role that has, see"
            " `dovetail migrate --roles`"
        )
    if state == _ABORTED:
        return UsageError(
            "a statement in this transaction failed before, and the error was swallowed, so nothing of it can be"
            " committed; let the error out, or put what may fail into `async with connection.transaction()`"
        )
    if state in _MISSING:
        return SchemaOutdated(f"{where}: the schema {location.schema!r} is not as this version needs it: {said}")
    if state.startswith(("53", "57", "58")):
        return EngineUnavailable(f"{where} cannot serve this now: {said}")
    return StoreDamaged(f"{where} holds something that cannot be read: {type(error).__name__}: {said}")


def enlisted(error: Exception, location: Location) -> Exception:
    """What an error means that came up in a transaction of the caller's. What is not ours to explain stays as it is."""
    state, cause = sqlstate_of(error)
    if state == ANOTHER_DATABASE:
        return InvalidArgument(
            f"connection leads to a database that does not hold this docket; it is kept at {location.shown}"
        )
    if state in (UNKNOWN_PARENT, CIRCLE, _DENIED, *_MISSING) and isinstance(cause, Exception):
        return translated(cause, location, state)
    return error


def unavailable(error: BaseException, location: Location, *, sent: bool = False) -> DovetailError:
    """The server cannot be reached, or went away."""
    said = _first_line(error) or type(error).__name__
    if sent:
        return ConnectionLost(f"{location.shown}: the connection was lost: {said}")
    return EngineUnavailable(f"cannot reach {location.shown}: {said}")


def nothing_done(error: DovetailError) -> DovetailError:
    """A connection that was lost where nothing could be changed: the outcome is known after all."""
    return EngineUnavailable(str(error)) if isinstance(error, ConnectionLost) else error


def _detail(error: Any) -> str:
    diagnosis = getattr(error, "diag", None)
    return (diagnosis.message_detail if diagnosis is not None else getattr(error, "detail", None)) or '["", ""]'


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).strip().splitlines()]
    return "; ".join(line for line in lines[:3] if line)
