"""The schema: made once however many start at once, the same by every way, and refused where it does not fit."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
import pytest

from dovetail.clock import SYSTEM_CLOCK
from dovetail.engines.postgres import PostgresEngine, migrating
from dovetail.errors import EngineUnavailable, InvalidArgument, InvalidURL, SchemaOutdated
from dovetail.model import new_id
from tests.engines.conftest import as_user
from tests.servers.postgres import PostgresServer

DIGESTS = {1: "b2ba579ad4727df5"}
"""Of the functions, by the version of the schema that they belong to."""


def engine_on(url: str, schema: str | None = None, **options: str) -> PostgresEngine:
    query = {**({"schema": schema} if schema else {}), **options}
    return PostgresEngine(f"{url}?{'&'.join(f'{k}={v}' for k, v in query.items())}", "docket", clock=SYSTEM_CLOCK)


@pytest.fixture
async def schema(postgres_url: str) -> AsyncIterator[str]:
    """A name that no schema has yet."""
    name = f"s{new_id().replace('-', '')}"
    yield name
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"DROP SCHEMA IF EXISTS {name}, {name}_2 CASCADE".encode())


def contents(url: str, schema: str) -> dict[str, Any]:
    """Everything that stands in a schema, as text, without its name."""
    queries = {
        "columns": "SELECT table_name, column_name, data_type, is_nullable, column_default, collation_name"
        " FROM information_schema.columns WHERE table_schema = %s ORDER BY 1, 2",
        "indexes": "SELECT indexdef FROM pg_indexes WHERE schemaname = %s ORDER BY 1",
        "functions": "SELECT pg_get_functiondef(p.oid) FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace"
        " WHERE nspname = %s ORDER BY 1",
        "options": "SELECT relname, reloptions FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace"
        " WHERE nspname = %s ORDER BY 1",
    }
    with psycopg.connect(url) as connection:
        return {
            kind: str(connection.execute(query.encode(), (schema,)).fetchall()).replace(schema, "SCHEMA")
            for kind, query in queries.items()
        }


async def test_many_that_start_at_once_make_one_schema(postgres_url: str, schema: str) -> None:
    engines = [engine_on(postgres_url, schema) for _ in range(12)]
    await asyncio.gather(*(engine.__aenter__() for engine in engines))
    await asyncio.gather(*(engine.__aexit__() for engine in engines))
    assert await engine_on(postgres_url, schema).plan() == []


async def test_the_migrated_schema_is_the_declared_one(postgres_url: str, schema: str) -> None:
    by_hand = f"{schema}_2"
    assert await engine_on(postgres_url, schema).migrate() == 1
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(engine_on(postgres_url, by_hand).script().encode())
    assert contents(postgres_url, schema) == contents(postgres_url, by_hand)


async def test_a_plan_changes_nothing(postgres_url: str, schema: str) -> None:
    assert await engine_on(postgres_url, schema).plan() == ["001_tables"]
    assert await engine_on(postgres_url, schema).plan() == ["001_tables"]


async def test_migrating_twice_is_migrating_once(postgres_url: str, schema: str) -> None:
    assert [await engine_on(postgres_url, schema).migrate() for _ in range(2)] == [1, 1]


async def test_a_version_that_is_not_known_is_refused(postgres_url: str, schema: str) -> None:
    with pytest.raises(InvalidArgument, match="no schema version 99"):
        await engine_on(postgres_url, schema).migrate(99)


async def test_a_newer_schema_is_refused(postgres_url: str, schema: str) -> None:
    await engine_on(postgres_url, schema).migrate()
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"UPDATE {schema}.schema_version SET version = 99".encode())
    with pytest.raises(SchemaOutdated, match="version 99, made by a newer Dovetail"):
        await engine_on(postgres_url, schema).__aenter__()
    with pytest.raises(SchemaOutdated, match="version 99, made by a newer Dovetail"):
        await engine_on(postgres_url, schema).migrate()


async def test_whoever_is_migrating_is_waited_for(postgres_url: str, schema: str) -> None:
    """Longer than the lock timeout: the step gives way and tries again."""
    async with await psycopg.AsyncConnection.connect(postgres_url) as other:
        await other.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"dovetail/migrate/{schema}",))
        waiting = asyncio.create_task(engine_on(postgres_url, schema).migrate(), name="migrating")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(waiting), 2.5)
    assert await waiting == 1


@pytest.mark.parametrize("name", ["Robert'; DROP", "UPPER", "1st", "pg_own", "", "a" * 44, "a-b"])
def test_a_schema_must_have_a_plain_name(name: str) -> None:
    with pytest.raises(InvalidURL, match="schema must be a plain name"):
        PostgresEngine(f"postgresql://localhost/x?schema={quote(name)}", "docket", clock=SYSTEM_CLOCK)


async def test_a_user_without_rights_is_told_so(postgres_url: str, schema: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("SELECT pg_advisory_lock(79)")
        if not admin.execute("SELECT 1 FROM pg_roles WHERE rolname = 'test_nobody'").fetchone():
            admin.execute("CREATE ROLE test_nobody LOGIN PASSWORD 'secret'")
    url = as_user(postgres_url, "test_nobody")
    with pytest.raises(EngineUnavailable, match="no right to do that"):
        await engine_on(url, schema).__aenter__()
    await engine_on(postgres_url, schema).migrate()
    with pytest.raises(EngineUnavailable, match="no right to do that"):
        await engine_on(url, schema).__aenter__()


async def test_functions_of_others_in_the_schema_are_left_alone(postgres_url: str, schema: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.theirs (n int)".encode())
        admin.execute(f"CREATE FUNCTION {schema}.claim(n int) RETURNS int LANGUAGE sql AS 'SELECT n'".encode())
        await engine_on(postgres_url, schema).migrate()
        admin.execute(engine_on(postgres_url, schema).roles().encode())
        try:
            rights = admin.execute(
                "SELECT has_function_privilege('public', %s, 'EXECUTE'),"
                " has_function_privilege('public', %s, 'EXECUTE'), has_table_privilege(%s, %s, 'SELECT')",
                (f"{schema}.claim(int)", f"{schema}.sweep(bigint, bigint, bigint, bigint)", f"{schema}_reader",
                 f"{schema}.theirs"),
            ).fetchone()  # fmt: skip
            assert rights == (True, False, False)
        finally:
            drop_roles(admin, schema)


async def test_an_owner_may_migrate_without_the_right_to_create_schemas(postgres_url: str, schema: str) -> None:
    await engine_on(postgres_url, schema).migrate()
    user = f"{schema}_u"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(engine_on(postgres_url, schema).roles().encode())
        admin.execute(f"CREATE ROLE {user} LOGIN PASSWORD 'secret'; GRANT {schema}_owner TO {user}".encode())
        try:
            admin.execute(f"UPDATE {schema}.schema_version SET version = 1".encode())
            with psycopg.connect(as_user(postgres_url, user), autocommit=True) as owner:
                owner.execute(f"ALTER TABLE {schema}.run ADD COLUMN extra int".encode())
                with owner.transaction():
                    owner.execute(migrating.script(schema, version=1).encode())
            async with engine_on(as_user(postgres_url, user), schema) as engine:
                assert await engine.holds() == []
        finally:
            drop_roles(admin, schema, user)


def drop_roles(admin: psycopg.Connection[Any], schema: str, *users: str) -> None:
    names = ", ".join([*(f"{schema}_{role}" for role in ("owner", "enqueuer", "worker", "reader")), *users])
    admin.execute(f"DROP OWNED BY {names} CASCADE; DROP ROLE {names}".encode())


async def test_a_read_only_server_is_refused(postgres_url: str) -> None:
    read_only = engine_on(postgres_url, None, options="-c%20default_transaction_read_only%3Don")
    with pytest.raises(EngineUnavailable, match="read-only transactions; Dovetail writes"):
        await read_only.__aenter__()


async def test_a_server_that_is_not_there_is_an_error_of_ours() -> None:
    with pytest.raises(EngineUnavailable, match=r"cannot reach postgresql://127\.0\.0\.1:1/x"):
        await PostgresEngine("postgresql://127.0.0.1:1/x", "docket", clock=SYSTEM_CLOCK).__aenter__()


async def test_a_password_is_never_shown() -> None:
    with pytest.raises(EngineUnavailable) as refused:
        await PostgresEngine("postgresql://me:secret@127.0.0.1:1/x", "docket", clock=SYSTEM_CLOCK).__aenter__()
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("option", ["password=secret", "sslmode=disable&sslpassword=secret", "p%61ssword=secret"])
async def test_a_password_among_the_options_is_never_shown(option: str) -> None:
    with pytest.raises(InvalidURL) as refused:
        PostgresEngine(f"postgresql://me@127.0.0.1:1/x?{option}&pooled=maybe", "docket", clock=SYSTEM_CLOCK)
    assert "secret" not in str(refused.value)
    assert "***&pooled=maybe" in str(refused.value)


def test_an_address_that_cannot_be_read_is_not_shown() -> None:
    with pytest.raises(InvalidURL, match=r":\*\*\*@.*cannot be read"):
        PostgresEngine("postgresql://me:secret@[::1/x", "docket", clock=SYSTEM_CLOCK)


async def test_a_database_that_is_not_unicode_is_refused(postgres_url: str) -> None:
    name = f"latin_{new_id().replace('-', '')}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(
            f"CREATE DATABASE {name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0".encode()
        )
        try:
            url = urlunsplit(urlsplit(postgres_url)._replace(path=f"/{name}"))
            with pytest.raises(EngineUnavailable, match="the database keeps text as LATIN1; Dovetail needs UTF8"):
                await engine_on(url).__aenter__()
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


async def test_a_standby_is_refused_and_what_it_becomes_is_taken(postgres_server: PostgresServer) -> None:
    primary = PostgresServer(None, "-c", "fsync=off", "-c", "wal_level=replica").create().start()
    standby = PostgresServer(None, "-c", "fsync=off")
    try:
        standby.copy_of(primary, "-R").start()
        with pytest.raises(EngineUnavailable, match="is a standby"):
            await engine_on(standby.url(), None).__aenter__()
        primary.stop()
        standby.promote()
        async with engine_on(standby.url(), None) as engine:
            assert await engine.holds() == []
    finally:
        standby.remove()
        primary.remove()


def test_functions_change_only_with_a_new_version() -> None:
    """Workers of two versions share a schema, so a released function is not to change under an old caller: add a
    migration (it may be empty but for a comment), see that old callers are still served, and note the digest here."""
    digest = hashlib.sha256(migrating.functions("dovetail").encode()).hexdigest()[:16]
    assert DIGESTS.get(migrating.newest()) == digest, f"the functions of version {migrating.newest()} are now {digest}"
