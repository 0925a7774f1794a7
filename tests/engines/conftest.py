"""Servers that the tests of the engines share: one of a kind for each process that runs tests."""

from collections.abc import Iterator

import pytest

from tests.servers import redis as servers


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
