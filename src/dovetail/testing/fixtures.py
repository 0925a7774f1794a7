"""Fixtures of the pytest plugin. Each may be overridden; those that build on it follow.

What a fixture needs is imported when it is first used.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dovetail.clock import Clock, VirtualClock
    from dovetail.docket import Docket
    from dovetail.worker import Worker

# In its strict mode pytest-asyncio runs only fixtures of its own kind; anyio takes any.
_asyncio: Any = sys.modules.get("pytest_asyncio")
_fixture: Any = pytest.fixture if _asyncio is None else _asyncio.fixture


@pytest.fixture
def dovetail_clock() -> VirtualClock:
    """A clock that stands still until the test moves it: await dovetail_clock.advance(timedelta(days=31))."""
    from dovetail.clock import VirtualClock

    return VirtualClock()


@pytest.fixture
def dovetail_url() -> str:
    """A store in memory that no other test knows."""
    from dovetail.model import new_id

    return f"memory://{new_id()}"


@_fixture
async def _dovetail_strays(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """Once the docket is closed: no thread and no asyncio task is left, if the test asked for the leak check."""
    if _asyncio is not None and "anyio_backend" in request.fixturenames:
        pytest.fail(
            "anyio runs this test and pytest-asyncio the fixtures, each on a loop of its own: use -p no:asyncio"
        )
    if "dovetail_leak_check" not in request.fixturenames:
        yield
        return
    from dovetail.testing.leaks import leak_check

    async with leak_check():
        yield


@_fixture
async def dovetail_docket(dovetail_url: str, dovetail_clock: Clock, _dovetail_strays: None) -> AsyncIterator[Docket]:
    """An open docket in memory, on the virtual clock."""
    from dovetail.docket import Docket

    async with Docket("tests", dovetail_url, clock=dovetail_clock) as docket:
        yield docket


@_fixture
async def dovetail_worker(dovetail_docket: Docket) -> AsyncIterator[Worker]:
    """A worker of the docket that runs in the background."""
    from dovetail.testing.draining import background_worker, worker_of

    async with background_worker(worker_of(dovetail_docket, automatic=True)) as worker:
        yield worker


@_fixture
async def dovetail_leak_check(dovetail_docket: Docket) -> AsyncIterator[None]:
    """After the test nothing is left in the docket; nor, once it is closed, of it in the process."""
    from dovetail.testing.leaks import leak_check

    async with leak_check(dovetail_docket):
        yield
