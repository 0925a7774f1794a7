"""A PostgreSQL server for the whole session, and whichever the environment names."""

import os
from collections.abc import Iterator

import pytest

from tests.servers.postgres import PostgresServer


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    server = PostgresServer().create().start()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def postgres_url(postgres_server: PostgresServer) -> str:
    return os.environ.get("DOVETAIL_TEST_POSTGRES_URL") or postgres_server.url()
