"""PostgreSQL against the model."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from dovetail.clock import VirtualClock
from dovetail.engines.postgres import PostgresEngine
from dovetail.model import new_id
from dovetail.testing.conformance.machine import CI, machine

pytestmark = pytest.mark.timeout(600)  # each step is several round trips, and the host may be busy

_url: str = ""


@pytest.fixture(scope="module", autouse=True)
def _server(postgres_url: str) -> Iterator[None]:
    """The machine's examples are made outside of pytest's fixtures, so they are told where the server is."""
    global _url
    _url = postgres_url
    yield
    _url = ""


def in_a_docket_of_its_own(clock: VirtualClock) -> PostgresEngine:
    return PostgresEngine(_url, new_id(), clock=clock)


TestPostgres = machine(in_a_docket_of_its_own, with_settings=settings(CI, max_examples=100)).TestCase
