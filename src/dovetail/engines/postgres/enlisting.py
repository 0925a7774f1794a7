"""Scheduling inside a transaction that the caller has open, through whichever library it was opened with.

None of those libraries is imported unless a connection of it is given.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from dovetail.engine.threads import in_djangos_thread
from dovetail.errors import InvalidArgument, InvalidType

TYPES = ("bigint", "uuid", "bigint", "jsonb", "bytea")
"""What `schedule_within` takes."""

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
    marks = ", ".join(f"CAST({mark(n)} AS {kind})" for n, kind in enumerate(TYPES, 1))
    return f"SELECT {function}({marks})"


def _needs_transaction() -> InvalidArgument:
    return InvalidArgument(
        "connection has no transaction open, so there is nothing to schedule within; begin one, or leave"
        " connection= out"
    )


# psycopg


async def _psycopg(connection: Any, function: str, values: Sequence[Any]) -> Any:
    _check_psycopg(connection)
    with connection.cursor() as cursor:
        cursor.execute(_statement(function, lambda _: "%s"), values)
        return _first(cursor.fetchone())


async def _psycopg_async(connection: Any, function: str, values: Sequence[Any]) -> Any:
    _check_psycopg(connection)
    async with connection.cursor() as cursor:
        await cursor.execute(_statement(function, lambda _: "%s"), values)
        return _first(await cursor.fetchone())


def _check_psycopg(connection: Any) -> None:
    if connection.autocommit and connection.info.transaction_status == 0:
        raise _needs_transaction()


def _first(row: Any) -> Any:
    """The only column, whatever a row is made into."""
    return next(iter(row.values())) if isinstance(row, dict) else row[0]  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]


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


async def _sqlalchemy(connection: Any, function: str, values: Sequence[Any]) -> Any:
    statement, named = _sqlalchemy_call(function, values)
    return connection.execute(statement, named).scalar_one()


async def _sqlalchemy_async(connection: Any, function: str, values: Sequence[Any]) -> Any:
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
