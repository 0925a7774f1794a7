"""Scheduling in the caller's transaction: with every kind of connection, committed or rolled back with his work."""

import asyncio
import json
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import aiosqlite
import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row, scalar_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from dovetail import Docket, Worker
from dovetail.errors import InvalidArgument, InvalidType, SchemaOutdated, UnknownParent, UsageError
from dovetail.model import NewRun, RunQuery, new_id
from tests.by_hand import at_work
from tests.waiting import soon

Open = Callable[[str], AbstractAsyncContextManager[Any]]


async def noop(number: int) -> None: ...


class Rollback(Exception):
    """Raised inside a transaction to end it."""


@asynccontextmanager
async def rolled_back(opened: Open, place: str) -> AsyncIterator[Any]:
    """A transaction of that kind that ends in an error."""
    with suppress(Rollback):
        async with opened(place) as connection:
            yield connection
            raise Rollback


# One way to open each kind of connection. Leaving by Rollback rolls back, otherwise the work is committed.


@asynccontextmanager
async def psycopg_sync(url: str) -> AsyncIterator[Any]:
    with psycopg.connect(url) as connection:
        yield connection


@asynccontextmanager
async def psycopg_with_dicts(url: str) -> AsyncIterator[Any]:
    connecting: Any = psycopg.connect
    with connecting(url, row_factory=dict_row) as connection:
        yield connection


@asynccontextmanager
async def psycopg_async(url: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection


@asynccontextmanager
async def asyncpg_alone(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def asyncpg_from_a_pool(url: str) -> AsyncIterator[Any]:
    async with asyncpg.create_pool(url, min_size=1) as pool, pool.acquire() as connection, connection.transaction():
        yield connection


@asynccontextmanager
async def psycopg_with_scalars(url: str) -> AsyncIterator[Any]:
    connecting: Any = psycopg.AsyncConnection.connect
    async with await connecting(url, row_factory=scalar_row, cursor_factory=psycopg.AsyncRawCursor) as connection:
        yield connection


@asynccontextmanager
async def asyncpg_with_codecs(url: str) -> AsyncIterator[Any]:
    async with asyncpg_alone(url) as connection:
        await connection.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
        await connection.set_type_codec("uuid", encoder=lambda given: given.hex, decoder=str, schema="pg_catalog")
        yield connection


def _dialect(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://")


@asynccontextmanager
async def sqlalchemy_connection(url: str) -> AsyncIterator[Any]:
    engine = sqlalchemy.create_engine(_dialect(url, "psycopg"))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


@asynccontextmanager
async def sqlalchemy_session(url: str) -> AsyncIterator[Any]:
    engine = sqlalchemy.create_engine(_dialect(url, "psycopg"))
    try:
        with Session(engine) as session, session.begin():
            yield session
    finally:
        engine.dispose()


def sqlalchemy_async_connection(driver: str) -> Open:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Any]:
        engine = create_async_engine(_dialect(url, driver))
        try:
            async with engine.begin() as connection:
                yield connection
        finally:
            await engine.dispose()

    return opened


def sqlalchemy_async_session(driver: str) -> Open:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Any]:
        engine = create_async_engine(_dialect(url, driver))
        try:
            async with AsyncSession(engine) as session, session.begin():
                yield session
        finally:
            await engine.dispose()

    return opened


POSTGRES: dict[str, Open] = {
    "psycopg": psycopg_sync,
    "psycopg with dict rows": psycopg_with_dicts,
    "psycopg async": psycopg_async,
    "psycopg with scalars and raw cursors": psycopg_with_scalars,
    "asyncpg": asyncpg_alone,
    "asyncpg with codecs of the caller's": asyncpg_with_codecs,
    "asyncpg from a pool": asyncpg_from_a_pool,
    "SQLAlchemy connection": sqlalchemy_connection,
    "SQLAlchemy session": sqlalchemy_session,
    "SQLAlchemy async connection": sqlalchemy_async_connection("asyncpg"),
    "SQLAlchemy async session": sqlalchemy_async_session("asyncpg"),
    "SQLAlchemy async session over psycopg": sqlalchemy_async_session("psycopg"),
}
EVERY_POSTGRES = pytest.mark.parametrize("opened", POSTGRES.values(), ids=POSTGRES.keys())


@pytest.fixture
async def postgres(postgres_url: str) -> AsyncIterator[Docket]:
    async with Docket(new_id(), postgres_url) as docket:
        yield docket


async def keys_of(docket: Docket) -> set[str]:
    return {run.key for run in await docket.engine.find(RunQuery())}


class TestPostgres:
    @EVERY_POSTGRES
    async def test_a_run_is_there_once_the_callers_work_is_committed(
        self, postgres: Docket, postgres_url: str, opened: Open
    ) -> None:
        async with opened(postgres_url) as connection:
            await postgres.add(noop, key="one", connection=connection)(1)
            assert await keys_of(postgres) == set()
        assert await keys_of(postgres) == {"one"}

    @EVERY_POSTGRES
    async def test_a_run_is_gone_with_what_is_rolled_back(
        self, postgres: Docket, postgres_url: str, opened: Open
    ) -> None:
        async with rolled_back(opened, postgres_url) as connection:
            await postgres.add(noop, connection=connection)(1)
        assert await keys_of(postgres) == set()

    @EVERY_POSTGRES
    async def test_many_go_together(self, postgres: Docket, postgres_url: str, opened: Open) -> None:
        async with opened(postgres_url) as connection:
            call = postgres.call(noop)
            executions = await postgres.add_many(
                [call(number) for number in range(30)], chunk_size=7, connection=connection
            )
            assert await keys_of(postgres) == set()
        assert await keys_of(postgres) == {execution.key for execution in executions}

    async def test_an_idle_worker_need_not_look_by_itself(
        self, postgres: Docket, postgres_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("dovetail.worker.intake.FALLBACK_POLL", timedelta(hours=1))
        postgres.register(noop)
        async with at_work(Worker(postgres)):
            async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
                execution = await postgres.add(noop, connection=connection)(1)
            await soon(execution.get_result())

    async def test_a_run_is_replaced_within(self, postgres: Docket, postgres_url: str) -> None:
        soon = datetime.now(UTC) + timedelta(hours=1)
        await postgres.add(noop, when=soon, key="one")(1)
        async with rolled_back(psycopg_async, postgres_url) as connection:
            await postgres.replace(noop, soon, "one", connection=connection)(2)
        (run,) = await postgres.engine.find(RunQuery())
        async with psycopg_async(postgres_url) as connection:
            await postgres.replace(noop, soon, "one", connection=connection)(2)
        (again,) = await postgres.engine.find(RunQuery())
        assert (run.key, again.key) == ("one", "one")
        assert run.id != again.id

    async def test_an_open_transaction_holds_no_worker_up(self, postgres: Docket, postgres_url: str) -> None:
        await postgres.add(noop, key="before")(1)
        async with psycopg_async(postgres_url) as connection:
            run = NewRun(new_id(), "within", "noop", group="a")
            await postgres.engine.schedule_within(connection, [run])  # pyright: ignore[reportAttributeAccessIssue]
            await postgres.engine.schedule([NewRun(new_id(), "beside", "noop", group="a")])
            claimed = await postgres.engine.claim("worker", 10, lease=timedelta(seconds=30))
            assert {claim.key for claim in claimed.claims} == {"before", "beside"}
        claimed = await postgres.engine.claim("worker", 10, lease=timedelta(seconds=30))
        assert [claim.key for claim in claimed.claims] == ["within"]

    @EVERY_POSTGRES
    async def test_an_unknown_parent_is_an_error_of_ours(
        self, postgres: Docket, postgres_url: str, opened: Open
    ) -> None:
        run = NewRun(new_id(), "child", "noop", after=("nobody",))
        with pytest.raises(UnknownParent, match="'child' is to wait for 'nobody'"):
            async with opened(postgres_url) as connection:
                await postgres.engine.schedule_within(connection, [run])  # pyright: ignore[reportAttributeAccessIssue]
        assert await keys_of(postgres) == set()

    @pytest.mark.parametrize("connection", ["a url", 7, object(), sqlite3.connect(":memory:")], ids=type)
    async def test_anything_else_is_refused(self, postgres: Docket, connection: Any) -> None:
        with pytest.raises(InvalidType, match="connection must be a psycopg connection"):
            await postgres.add(noop, connection=connection)(1)

    async def test_a_connection_without_a_transaction_is_refused(self, postgres: Docket, postgres_url: str) -> None:
        async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as connection:
            with pytest.raises(InvalidArgument, match="no transaction open"):
                await postgres.add(noop, connection=connection)(1)
        connection = await asyncpg.connect(postgres_url)
        with pytest.raises(InvalidArgument, match="no transaction open"):
            await postgres.add(noop, connection=connection)(1)
        await connection.close()

    async def test_a_connection_of_sqlalchemys_that_commits_by_itself_is_refused(
        self, postgres: Docket, postgres_url: str
    ) -> None:
        engine = sqlalchemy.create_engine(_dialect(postgres_url, "psycopg"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection, Session(engine) as session:
            for each in (connection, session):
                with pytest.raises(InvalidArgument, match="no transaction open"):
                    await postgres.add(noop, connection=each)(1)
        engine.dispose()
        for driver in ("psycopg", "asyncpg"):
            async_engine = create_async_engine(_dialect(postgres_url, driver), isolation_level="AUTOCOMMIT")
            async with async_engine.connect() as connection, AsyncSession(async_engine) as session:
                for each in (connection, session):
                    with pytest.raises(InvalidArgument, match="no transaction open"):
                        await postgres.add(noop, connection=each)(1)
            await async_engine.dispose()

    async def test_a_connection_to_another_database_is_refused(self, postgres: Docket, postgres_url: str) -> None:
        name = f"other_{new_id().replace('-', '')}"
        elsewhere = urlunsplit(urlsplit(postgres_url)._replace(path=f"/{name}"))
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {name}".encode())
        async with await psycopg.AsyncConnection.connect(elsewhere) as connection:
            with pytest.raises(SchemaOutdated, match="schema 'dovetail'"):
                await postgres.add(noop, connection=connection)(1)
        other = await psycopg.AsyncConnection.connect(elsewhere)
        async with Docket(postgres.name, elsewhere), other as connection:
            with pytest.raises(InvalidArgument, match="does not hold this docket"):
                await postgres.add(noop, connection=connection)(1)
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())

    async def test_djangos_connection_is_taken(self, postgres: Docket, postgres_url: str) -> None:
        """Django is configured once a process, so this goes by a process of its own."""
        script = Path(__file__).parent / "django_enlisting.py"
        process = await asyncio.create_subprocess_exec(
            "python", str(script), postgres_url, postgres.name, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT, env={"PATH": str(Path(sys.executable).parent)},
        )  # fmt: skip
        said, _ = await process.communicate()
        assert process.returncode == 0, said.decode()
        assert await keys_of(postgres) == {"committed"}


# SQLite


@asynccontextmanager
async def sqlite_plain(path: str) -> AsyncIterator[Any]:
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    try:
        with connection:
            yield connection
    finally:
        connection.close()


@asynccontextmanager
async def sqlite_aio(path: str) -> AsyncIterator[Any]:
    async with aiosqlite.connect(path) as connection:
        try:
            yield connection
        except BaseException:
            await connection.rollback()
            raise
        await connection.commit()


@asynccontextmanager
async def sqlite_session(path: str) -> AsyncIterator[Any]:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    try:
        with Session(engine) as session, session.begin():
            yield session
    finally:
        engine.dispose()


@asynccontextmanager
async def sqlite_async_session(path: str) -> AsyncIterator[Any]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    try:
        async with AsyncSession(engine) as session, session.begin():
            yield session
    finally:
        await engine.dispose()


SQLITE: dict[str, Open] = {
    "sqlite3": sqlite_plain,
    "aiosqlite": sqlite_aio,
    "SQLAlchemy session": sqlite_session,
    "SQLAlchemy async session": sqlite_async_session,
}
EVERY_SQLITE = pytest.mark.parametrize("opened", SQLITE.values(), ids=SQLITE.keys())


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "store.db")


@pytest.fixture
async def sqlite(path: str) -> AsyncIterator[Docket]:
    async with Docket("tests", f"sqlite:///{path}") as docket:
        yield docket


class TestSqlite:
    @EVERY_SQLITE
    async def test_a_run_is_there_once_the_callers_work_is_committed(
        self, sqlite: Docket, path: str, opened: Open
    ) -> None:
        async with opened(path) as connection:
            await sqlite.add(noop, key="one", connection=connection)(1)
            assert await keys_of(sqlite) == set()
        assert await keys_of(sqlite) == {"one"}

    @EVERY_SQLITE
    async def test_a_run_is_gone_with_what_is_rolled_back(self, sqlite: Docket, path: str, opened: Open) -> None:
        async with rolled_back(opened, path) as connection:
            await sqlite.add(noop, connection=connection)(1)
        assert await keys_of(sqlite) == set()

    @EVERY_SQLITE
    async def test_many_go_together(self, sqlite: Docket, path: str, opened: Open) -> None:
        async with opened(path) as connection:
            call = sqlite.call(noop)
            executions = await sqlite.add_many([call(n) for n in range(30)], chunk_size=7, connection=connection)
        assert await keys_of(sqlite) == {execution.key for execution in executions}

    @EVERY_SQLITE
    async def test_a_batch_that_is_refused_leaves_nothing_in_a_transaction_that_goes_on(
        self, sqlite: Docket, path: str, opened: Open
    ) -> None:
        async with opened(path) as connection:
            await sqlite.add(noop, key="before", connection=connection)(1)
            first = sqlite.call(noop, key="first")(1)
            with pytest.raises(UnknownParent, match="'nobody'"):
                await sqlite.add_many([first, sqlite.call(noop, after=[first, "nobody"])(2)], connection=connection)
            await sqlite.add(noop, key="after", connection=connection)(3)
        assert await keys_of(sqlite) == {"before", "after"}

    async def test_another_file_is_refused(self, sqlite: Docket, tmp_path: Path) -> None:
        async with sqlite_plain(str(tmp_path / "other.db")) as connection:
            with pytest.raises(InvalidArgument, match="cannot span two files"):
                await sqlite.add(noop, connection=connection)(1)

    async def test_anything_else_is_refused(self, sqlite: Docket) -> None:
        with pytest.raises(InvalidType, match="connection must be a sqlite3 connection"):
            await sqlite.add(noop, connection="store.db")(1)

    async def test_a_docket_in_memory_is_refused(self) -> None:
        async with Docket("tests", f"memory://{new_id()}") as docket, sqlite_plain(":memory:") as connection:
            with pytest.raises(InvalidArgument, match="docket in memory"):
                await docket.add(noop, connection=connection)(1)


class WithoutTransactions:
    """An engine that can do no more than the contract asks of all."""

    def __init__(self, engine: Any) -> None:
        self.schedule = engine.schedule


async def test_an_engine_without_transactions_says_so(sqlite: Docket) -> None:
    sqlite._engine = WithoutTransactions(sqlite.engine)  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(UsageError, match="connection= needs a docket in a database with transactions"):
        await sqlite.add(noop, connection=object())(1)
