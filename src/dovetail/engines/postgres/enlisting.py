"""Scheduling inside a transaction that the caller has open, through whichever library it was opened with.

None of those libraries is imported unless a connection of it is given.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from dovetail.engine.threads import in_djangos_thread
from dovetail.errors import InvalidArgument, InvalidType

TYPES = ("bigint", "text AS uuid", "bigint", "text AS jsonb", "bytea")
"""What `schedule_within` takes. Types that a caller may have given another form on the connection go as text."""

KNOWN = (
    "a psycopg connection (sync or async), an asyncpg connection, a SQLAlchemy Session, Connection, AsyncSession or"
    " AsyncConnection, or Django's connection"
)

Ask = Callable[[Any, str, Sequence[Any]], Awaitable[Any]]


async def ask(connection: Any, function: str, values: Sequence[Any]) -> Any:
    """The one value that a function answers, in the transaction that the connection has open."""
    for module, name, way in _WAYS:
        if any(each.__name__ == name and each.__module__.startswith(module) for each in type(connection).__mro__):
            return await way(connection, function, values)
    raise InvalidType(f"connection must be {KNOWN}, not {type(connection).__module__}.{type(connection).__name__}")


def _statement(function: str, mark: Callable[[int], str]) -> str:
    return f"SELECT {function}({', '.join(_cast(mark(n), kind) for n, kind in enumerate(TYPES, 1))})"


def _cast(value: str, kinds: str) -> str:
    for kind in kinds.split(" AS "):
        value = f"CAST({value} AS {kind})"
    return value


def _needs_transaction() -> InvalidArgument:
    return InvalidArgument(
        "connection has no transaction open, so there is nothing to schedule within; begin one, or leave"
        " connection= out"
    )


# psycopg


async def _psycopg(connection: Any, function: str, values: Sequence[Any]) -> Any:
    import psycopg

    _check_psycopg(connection)
    with _plain(psycopg.Cursor, connection) as cursor:
        cursor.execute(_statement(function, lambda _: "%s"), values)
        return cursor.fetchone()[0]


async def _psycopg_async(connection: Any, function: str, values: Sequence[Any]) -> Any:
    import psycopg

    _check_psycopg(connection)
    async with _plain(psycopg.AsyncCursor, connection) as cursor:
        await cursor.execute(_statement(function, lambda _: "%s"), values)
        return (await cursor.fetchone())[0]


def _check_psycopg(connection: Any) -> None:
    if connection.autocommit and connection.info.transaction_status == 0:
        raise _needs_transaction()


def _plain(kind: Any, connection: Any) -> Any:
    """A cursor as the driver makes it by itself, whatever cursors and rows the caller wants."""
    from psycopg.rows import tuple_row

    return kind(connection, row_factory=tuple_row)


# asyncpg


async def _asyncpg(connection: Any, function: str, values: Sequence[Any]) -> Any:
    if not connection.is_in_transaction():
        raise _needs_transaction()
    docket, token, *rest = values
    return await connection.fetchval(_statement(function, lambda n: f"${n}"), docket, token, *rest)


# SQLAlchemy


def _sqlalchemy_call(function: str, values: Sequence[Any]) -> tuple[Any, dict[str, Any]]:
    from sqlalchemy import text

    named = {f"value{n}": value for n, value in enumerate(values, 1)}
    return text(_statement(function, lambda n: f":value{n}")), named


def _check_sqlalchemy(connection: Any) -> None:
    # It begins a transaction by itself, unless it was told to commit every statement.
    if connection is not None and getattr(connection.connection.dbapi_connection, "autocommit", False):
        raise _needs_transaction()


async def _sqlalchemy(connection: Any, function: str, values: Sequence[Any]) -> Any:
    _check_sqlalchemy(connection.connection() if callable(connection.connection) else connection)
    statement, named = _sqlalchemy_call(function, values)
    return connection.execute(statement, named).scalar_one()


async def _sqlalchemy_async(connection: Any, function: str, values: Sequence[Any]) -> Any:
    opened = connection if hasattr(connection, "sync_connection") else await connection.connection()
    _check_sqlalchemy(opened.sync_connection)
    statement, named = _sqlalchemy_call(function, values)
    return (await connection.execute(statement, named)).scalar_one()


# Django


async def _django(connection: Any, function: str, values: Sequence[Any]) -> Any:
    def call() -> Any:
        if connection.get_autocommit() and not connection.in_atomic_block:
            raise _needs_transaction()
        with connection.cursor() as cursor:
            cursor.execute(_statement(function, lambda _: "%s"), list(values))
            return cursor.fetchone()[0]

    return await in_djangos_thread(call)


_WAYS: tuple[tuple[str, str, Ask], ...] = (
    ("psycopg", "AsyncConnection", _psycopg_async),
    ("psycopg", "Connection", _psycopg),
    ("asyncpg", "Connection", _asyncpg),
    ("asyncpg", "PoolConnectionProxy", _asyncpg),
    ("sqlalchemy", "AsyncSession", _sqlalchemy_async),
    ("sqlalchemy", "async_scoped_session", _sqlalchemy_async),
    ("sqlalchemy", "AsyncConnection", _sqlalchemy_async),
    ("sqlalchemy", "Session", _sqlalchemy),
    ("sqlalchemy", "scoped_session", _sqlalchemy),
    ("sqlalchemy", "Connection", _sqlalchemy),
    ("django", "ConnectionProxy", _django),
    ("django", "BaseDatabaseWrapper", _django),
)


def sqlstate_of(error: BaseException) -> tuple[str | None, BaseException]:
    """The server's code for an error, and the error that carries it: libraries wrap one another's."""
    seen: BaseException | None = error
    while seen is not None:
        state = getattr(seen, "sqlstate", None) or getattr(seen, "pgcode", None)
        if isinstance(state, str):
            return state, seen
        seen = getattr(seen, "orig", None) or seen.__cause__
    return None, error
