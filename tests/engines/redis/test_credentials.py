"""Credentials that a provider gives: tokens that are rotated, and so cannot stand in a URL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis.credentials import CredentialProvider

from dovetail import Docket, EngineUnavailable, StrikeList, UsageError, Worker
from dovetail.errors import InvalidType
from tests.servers import redis as servers
from tests.servers.redis import Server

PASSWORD = "token"


class Rotating(CredentialProvider):
    """Gives what is the right answer at that moment, and counts how often it was asked."""

    def __init__(self, password: str = PASSWORD) -> None:
        self.password = password
        self.asked = 0

    def get_credentials(self) -> tuple[str, str]:
        self.asked += 1
        return "default", self.password


class Broken(CredentialProvider):
    def get_credentials(self) -> tuple[str, str]:
        raise LookupError("the identity service is away")


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    """A server that asks for a password."""
    with servers.server(password=PASSWORD) as server:
        yield server


def url_of(server: Server) -> str:
    return f"redis://127.0.0.1:{server.port}"


async def twice(number: int) -> int:
    return number * 2


async def test_a_docket_its_worker_and_its_lent_client_sign_in_with_the_provider(guarded: Server):
    async with Docket("signed-in", url_of(guarded), credential_provider=Rotating()) as docket:
        execution = await docket.add(twice)(21)
        async with Worker(docket) as worker:
            await worker.run_until_finished()
        assert await execution.get_result() == 42
        async with docket.redis() as redis:
            assert await redis.ping()


async def test_every_connection_asks_anew(guarded: Server):
    provider = Rotating("of yesterday")
    docket = Docket("signed-in", url_of(guarded), credential_provider=provider)
    with pytest.raises(EngineUnavailable, match="refuses the user name or password"):
        await docket.__aenter__()
    provider.password = PASSWORD
    async with docket:
        assert await docket.snapshot()
    assert provider.asked >= 2


async def test_a_strike_list_signs_in_with_it_too(guarded: Server):
    async with StrikeList(url_of(guarded), "signed-in", credential_provider=Rotating()) as strikes:
        await strikes.strike("twice")
        assert strikes.task_strikes
        await strikes.restore("twice")


async def test_a_provider_that_fails_is_an_outage_of_which_it_is_the_reason(guarded: Server):
    docket = Docket("signed-in", url_of(guarded), credential_provider=Broken())
    with pytest.raises(EngineUnavailable, match=r"no credentials \(LookupError: the identity service is away"):
        await docket.__aenter__()


def test_a_url_that_holds_credentials_leaves_no_room_for_a_provider():
    with pytest.raises(ValueError, match="holds credentials, and so does credential_provider") as refusal:
        Docket(url="redis://ann:sesame@localhost", credential_provider=Rotating())
    assert "sesame" not in str(refusal.value)


def test_something_that_is_no_provider_is_refused():
    with pytest.raises(InvalidType, match="must be a CredentialProvider of redis-py"):
        Docket(url="redis://localhost", credential_provider="sesame")  # pyright: ignore[reportArgumentType]


def test_a_store_that_one_does_not_sign_in_to_refuses_it():
    with pytest.raises(UsageError, match="credential_provider needs a docket in Redis or Valkey"):
        Docket(url="sqlite:///never.db", credential_provider=Rotating())


async def test_memory_asks_nobody_so_that_tests_can_use_it_unchanged():
    provider = Rotating()
    async with Docket("signed-in", "memory://signed-in", credential_provider=provider):
        assert provider.asked == 0
