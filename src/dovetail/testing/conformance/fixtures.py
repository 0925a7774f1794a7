"""What the tests are handed. An engine's author supplies `connect`; the rest follows from it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.testing.conformance.vocabulary import Another

Connect = Callable[[], Engine]
"""Makes an engine, not open yet."""


class Fixtures:
    """The base of every area of the suite."""

    @pytest.fixture
    def clock(self) -> VirtualClock:
        """The time of the store. `clock.jump` moves it; nothing else does."""
        return VirtualClock()

    @pytest.fixture
    def connect(self) -> Connect:
        """How to make an engine on the store under test: to be overridden."""
        raise NotImplementedError("define the fixture `connect` in your test class: a callable that makes an engine")

    @pytest.fixture
    async def another(self, connect: Connect) -> AsyncIterator[Another]:
        """Opens one more connection to the same store and docket, closed when the test is over."""
        async with AsyncExitStack() as opened:

            async def open_one() -> Engine:
                return await opened.enter_async_context(connect())

            yield open_one

    @pytest.fixture
    async def engine(self, another: Another) -> Engine:
        """An open engine on an empty store."""
        return await another()
