"""Servers that the tests of the engines share: one of a kind for each process that runs tests, unless the environment
names another; and users of each role of PostgreSQL."""

import asyncio
import os
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from dovetail.clock import SYSTEM_CLOCK
from dovetail.engines.postgres import PostgresEngine
from tests.servers import redis as servers
from tests.servers.postgres import PostgresServer


@pytest.fixture(scope="session")
def valkey() -> Iterator[servers.Server]:
    with servers.server("valkey") as server:
        yield server


@pytest.fixture(scope="session")
def redis_6_2() -> Iterator[servers.Server]:
    with servers.server("redis") as server:
        yield server


@pytest.fixture(scope="session")
def valkey_cluster() -> Iterator[servers.Cluster]:
    with servers.cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def watched_by_sentinels() -> Iterator[servers.Watched]:
    with servers.sentinels() as watched:
        yield watched


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    server = PostgresServer().create().start()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def postgres_url(request: pytest.FixtureRequest) -> str:
    named = os.environ.get("DOVETAIL_TEST_POSTGRES_URL")
    return named or request.getfixturevalue("postgres_server").url()


@pytest.fixture(scope="session")
def users(postgres_url: str) -> dict[str, str]:
    """The URL of a user of each role, on a schema that is there."""
    engine = PostgresEngine(postgres_url, "any", clock=SYSTEM_CLOCK)
    asyncio.run(engine.migrate())
    found: dict[str, str] = {}
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("SELECT pg_advisory_lock(78)")
        admin.execute(engine.roles().encode())
        for role in ("enqueuer", "worker", "reader"):
            user = f"test_{role}"
            if not admin.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (user,)).fetchone():
                admin.execute(f"CREATE ROLE {user} LOGIN PASSWORD 'secret'; GRANT dovetail_{role} TO {user}".encode())
            found[role] = as_user(postgres_url, user)
    return found


@pytest.fixture(scope="session")
def as_worker(users: dict[str, str]) -> str:
    return users["worker"]


def as_user(url: str, user: str, password: str = "secret") -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{user}:{password}@{host}"))
