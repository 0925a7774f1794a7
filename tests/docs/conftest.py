"""A server for the programs of the pages that need one."""

from collections.abc import Iterator

import psycopg
import pytest

from dovetail.model import new_id
from tests.servers.postgres import PostgresServer


@pytest.fixture(scope="session")
def postgres_for_pages() -> Iterator[PostgresServer]:
    server = PostgresServer().create().start()
    yield server
    server.remove()


@pytest.fixture
def database_url(request: pytest.FixtureRequest) -> str:
    """An empty database. The server is only started for a program that wants one."""
    server: PostgresServer = request.getfixturevalue("postgres_for_pages")
    name = f"page_{new_id().replace('-', '')}"
    with psycopg.connect(server.url(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}".encode())
    return server.url(name)
