"""One docket's view of an open transaction: the connection, the time, and what there will be to tell."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from dovetail.clock import EARLIEST, LATEST, duration_to_microseconds, from_microseconds, to_microseconds
from dovetail.engine import statements
from dovetail.model import Due, Event, EventKind, Limit, State

SQL = statements.load("dovetail.engines.sqlite")

_encode = msgspec.json.encode
_limits_decoder = msgspec.json.Decoder(tuple[Limit, ...])
_headers_decoder = msgspec.json.Decoder(dict[str, str])


class Session:
    """Runs named statements for one docket at one moment. Events gathered here are told after the commit."""

    __slots__ = (
        "_execute",
        "db",
        "docket",
        "events",
        "now",
        "payload",
        "shares",
        "tells",
        "tells_states",
        "tidy",
        "work",
    )

    def __init__(self, db: sqlite3.Connection, docket: int, now: int, tells: frozenset[EventKind]) -> None:
        self.db = db
        self.docket = docket
        self.now = now
        self.tells = tells  # kinds that somebody listens for: no other event is made
        self.tells_states = EventKind.STATE in tells
        self.events: list[Event] = []
        self.work = False  # something new may be claimed, now or at a time not known before
        self.payload = 0  # bytes of arguments and results that were written
        self.tidy = False  # pages that are free may be given back after the commit
        self.shares: bool | None = None  # whether groups are in use; not asked yet
        self._execute = db.execute

    @property
    def has_shares(self) -> bool:
        if self.shares is None:
            self.shares = bool(self.one("shares_exist", self.docket)[0])
        return self.shares

    def run(self, name: str, *values: Any) -> sqlite3.Cursor:
        return self._execute(SQL[name], values)

    def one(self, name: str, *values: Any) -> Any:
        """The first row, with the statement run to its end: a RETURNING left halfway would keep it open."""
        rows = self._execute(SQL[name], values).fetchall()
        return rows[0] if rows else None

    def all(self, name: str, *values: Any) -> list[Any]:
        return self._execute(SQL[name], values).fetchall()

    def many(self, name: str, rows: Sequence[Sequence[Any]]) -> sqlite3.Cursor:
        return self.db.executemany(SQL[name], rows)

    def moment(self, due: Due) -> int:
        """When that is, by the store's clock."""
        is_delay = isinstance(due, timedelta)
        moment = self.now + duration_to_microseconds(due) if is_delay else to_microseconds(due)
        return min(max(moment, EARLIEST), LATEST)

    def tell(self, event: Event) -> None:
        self.events.append(event)

    def tell_state(self, run_id: str, key: str, state: State, **details: Any) -> None:
        """Tell that a run changed its state, if anybody listens."""
        if self.tells_states:
            self.events.append(Event(EventKind.STATE, key, run_id, state, **details))


def moment_or_none(count: int | None) -> datetime | None:
    return None if count is None else from_microseconds(count)


def dump_limits(limits: tuple[Limit, ...]) -> str | None:
    return _encode(limits).decode() if limits else None


def load_limits(text: str | None) -> tuple[Limit, ...]:
    return _limits_decoder.decode(text) if text else ()


def dump_headers(headers: Mapping[str, str]) -> str | None:
    return _encode(headers).decode() if headers else None


def load_headers(text: str | None) -> dict[str, str]:
    return _headers_decoder.decode(text) if text else {}
