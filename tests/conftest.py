"""Fixtures: a docket in memory, and workers with a short lease and little patience."""

import signal
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from dovetail import Docket, Worker
from dovetail.clock import VirtualClock
from dovetail.worker.threads import Threads
from tests.by_hand import ByHand
from tests.stores import ON_EVERY_STORE, STORES, Stores
from tests.waiting import PATIENCE

MakeWorker = Callable[..., Worker]

# How long an example takes says more about the host than about the code: on a busy one, any takes 200 ms once.
settings.register_profile(
    "patient", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("patient")


def pytest_configure() -> None:
    """A shell lets what it runs in the background ignore Ctrl-C, and so would all the programs that tests start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("DOVETAIL_URL", "DOVETAIL_NAME", "DOVETAIL_CODEC"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture(autouse=True)
def busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers, answers in time, however busy the machine."""
    for limit in ("lane.READING", "lane.PATIENCE", "routing.CONNECTING", "listening.SUBSCRIBING"):
        monkeypatch.setattr(f"dovetail.engines.redis.{limit}", PATIENCE)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "url" in metafunc.fixturenames and metafunc.definition.nodeid.startswith(ON_EVERY_STORE):
        metafunc.parametrize("url", STORES, indirect=True)


@pytest.fixture(scope="session")
def stores() -> Iterator[Stores]:
    with Stores() as stores:
        yield stores


@pytest.fixture
def url(request: pytest.FixtureRequest, stores: Stores) -> Iterator[str]:
    """A store that no other test knows."""
    with stores.place(getattr(request, "param", "memory")) as url:
        yield url


@pytest.fixture
async def docket(url: str) -> AsyncIterator[Docket]:
    async with Docket("tests", url, heartbeat_interval=timedelta(milliseconds=50), missed_heartbeats=1200) as docket:
        yield docket


@pytest.fixture
async def pickling(url: str) -> AsyncIterator[Docket]:
    """A docket whose codec is pickle."""
    async with Docket("pickling", url, codec="pickle") as docket:
        yield docket


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(patience=timedelta(seconds=PATIENCE))


@pytest.fixture
async def still(url: str, clock: VirtualClock) -> AsyncIterator[Docket]:
    """A docket whose time stands still until the test moves the clock."""
    async with Docket("tests", url, clock=clock) as docket:
        yield docket


@pytest.fixture
def threads() -> Iterator[Threads]:
    threads = Threads()
    yield threads
    threads.shutdown()


@pytest.fixture
def by_hand(still: Docket, threads: Threads) -> ByHand:
    """The work of the still docket, one claim at a time."""
    return ByHand(still, threads)


@pytest.fixture
def make_worker(docket: Docket) -> MakeWorker:
    def make(of: Docket = docket, **settings: Any) -> Worker:
        settings = {
            "name": "worker",
            "redelivery_timeout": timedelta(minutes=1),
            "reconnection_delay": timedelta(milliseconds=10),
            "shutdown_grace": timedelta(minutes=1),
            **settings,
        }
        return Worker(of, **settings)

    return make


@pytest.fixture
def never_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that look only when there is reason to: none is saved by a look that comes by itself."""
    monkeypatch.setattr("dovetail.worker.intake.FALLBACK_POLL", timedelta(hours=1))


@pytest.fixture
def worker(make_worker: MakeWorker) -> Worker:
    """A worker of the docket, not entered: its `run_*` methods do that."""
    return make_worker()
