"""Scheduling inside a transaction that the caller has open on the same file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from dovetail.engine.threads import in_djangos_thread
from dovetail.engines.sqlite.location import Location
from dovetail.errors import InvalidArgument, InvalidType

T = TypeVar("T")

KNOWN = (
    "a sqlite3 connection, an aiosqlite connection, a SQLAlchemy Session, Connection, AsyncSession or"
    " AsyncConnection over one of those, or Django's connection"
)


async def within(connection: Any, location: Location, work: Callable[[sqlite3.Connection], T]) -> T:
    """Do something on the connection that lies below the one given, in the thread that it belongs to."""

    def do(db: sqlite3.Connection) -> T:
        _check(db, location)
        shown, db.row_factory = db.row_factory, None
        try:
            if not db.in_transaction:
                # As the module itself would before the first write, only that nobody can come between.
                db.execute("BEGIN IMMEDIATE")
            with _all_or_nothing(db):
                return work(db)
        finally:
            db.row_factory = shown

    def do_in_django() -> T:
        connection.ensure_connection()
        return do(connection.connection)

    if _is_of(connection, "django", "ConnectionProxy") or _is_of(connection, "django", "BaseDatabaseWrapper"):
        return await in_djangos_thread(do_in_django)
    driver = await _driver_of(connection)
    if isinstance(driver, sqlite3.Connection):
        return do(driver)
    # aiosqlite runs everything in a thread of its own, and has no other way in.
    return await driver._execute(lambda: do(driver._conn))


@contextmanager
def _all_or_nothing(db: sqlite3.Connection) -> Generator[None]:
    """What fails leaves nothing behind in the caller's transaction, which may go on."""
    db.execute("SAVEPOINT dovetail")
    try:
        yield
    except BaseException:
        if db.in_transaction:  # some errors, such as a full disk, have ended all of it
            db.execute("ROLLBACK TO dovetail")
            db.execute("RELEASE dovetail")
        raise
    db.execute("RELEASE dovetail")


async def _driver_of(connection: Any) -> Any:
    if isinstance(connection, sqlite3.Connection) or _is_of(connection, "aiosqlite", "Connection"):
        return connection
    if _is_of(connection, "sqlalchemy", "AsyncSession"):
        connection = await connection.connection()
    elif _is_of(connection, "sqlalchemy", "Session"):
        connection = connection.connection()
    if _is_of(connection, "sqlalchemy", "AsyncConnection"):
        connection = connection.sync_connection
    if _is_of(connection, "sqlalchemy", "Connection"):
        driver = connection.connection.driver_connection
        if isinstance(driver, sqlite3.Connection) or _is_of(driver, "aiosqlite", "Connection"):
            return driver
    raise InvalidType(f"connection must be {KNOWN}, not {type(connection).__module__}.{type(connection).__name__}")


def _is_of(value: Any, module: str, name: str) -> bool:
    return any(each.__name__ == name and each.__module__.startswith(module) for each in type(value).__mro__)


def _check(db: sqlite3.Connection, location: Location) -> None:
    if location.path is None:
        raise InvalidArgument("connection cannot lead to a docket in memory; keep the docket in the file of your data")
    (main,) = [row[2] for row in db.execute("PRAGMA database_list").fetchall() if row[1] == "main"]
    if not main or Path(main).resolve() != location.path:
        raise InvalidArgument(
            f"connection leads to {main or 'memory'}, and this docket is kept in {location.path}; a transaction cannot"
            " span two files"
        )
    if db.isolation_level is None and not db.in_transaction and getattr(db, "autocommit", -1) is not False:
        raise InvalidArgument(
            "connection has no transaction open, so there is nothing to schedule within; begin one, or leave"
            " connection= out"
        )
