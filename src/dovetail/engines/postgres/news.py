"""What the functions in the database have to tell, and how it goes over the wire."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.clock import from_microseconds
from dovetail.engines.postgres.texts import get, get_any
from dovetail.model import Event, EventKind, Progress, State

LARGEST = 7000
"""Bytes of a notification; PostgreSQL takes just under 8000."""

_encode = msgspec.json.encode
_decoder = msgspec.json.Decoder(list[Event])


class Told(msgspec.Struct):
    """An event as the database puts it: times are microseconds."""

    kind: EventKind
    key: str | None = None
    id: str | None = None
    state: State | None = None
    when: int | None = None
    worker: str | None = None
    started: int | None = None
    finished: int | None = None
    error: str | None = None
    has_result: bool = False
    progress: tuple[int, int, str | None, int] | None = None

    def event(self) -> Event:
        return Event(
            self.kind, get_any(self.key), get_any(self.id), self.state, _moment(self.when), get_any(self.worker),
            _moment(self.started), _moment(self.finished), get_any(self.error), self.has_result,
            None if self.progress is None else _progress(*self.progress),
        )  # fmt: skip


class News(msgspec.Struct):
    """What every verb that writes brings back beside its answer."""

    work: bool
    told: list[Told]


def _moment(count: int | None) -> Any:
    return None if count is None else from_microseconds(count)


def _progress(current: int, total: int, message: str | None, at: int) -> Progress:
    return Progress(current, total, None if message is None else get(message), from_microseconds(at))


def messages(events: list[Event]) -> list[str]:
    """The events as notifications, as few as will do. One that is too large says no more than "look again"."""
    found: list[str] = []
    size = 0
    together: list[bytes] = []
    for event in events:
        encoded = _encode(event)
        if len(encoded) > LARGEST:
            encoded = _encode(Event(event.kind))
        if together and size + len(encoded) > LARGEST:
            found.append(_joined(together))
            together, size = [], 0
        together.append(encoded)
        size += len(encoded) + 1
    if together:
        found.append(_joined(together))
    return found


def _joined(events: list[bytes]) -> str:
    return (b"[" + b",".join(events) + b"]").decode()


def events_of(message: str) -> list[Event]:
    """The events of a notification; none if it is not one of ours."""
    try:
        return _decoder.decode(message)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return []
