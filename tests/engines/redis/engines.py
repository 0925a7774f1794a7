"""Short ways to make engines for the tests of this folder. All of them go by the server's own clock."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

from dovetail.clock import SYSTEM_CLOCK
from dovetail.engines.redis import RedisEngine
from dovetail.errors import EngineUnavailable, OutcomeUnknown
from dovetail.model import Claim, NewRun, Retention, Settle, State, new_id
from tests.servers.redis import Server
from tests.waiting import eventually

T = TypeVar("T")

LEASE = timedelta(seconds=30)
AT_ONCE = Retention.of(timedelta())


def engine(url: str, docket: str | None = None, durability: str = "process") -> RedisEngine:
    return RedisEngine(url, docket or new_id(), clock=SYSTEM_CLOCK, durability=durability)


@contextlib.asynccontextmanager
async def on(server: Server, docket: str | None = None) -> AsyncIterator[RedisEngine]:
    """An engine on an empty docket, which must be empty again in the end: whatever a test does, it finishes."""
    async with engine(server.url, docket) as opened:
        yield opened
        assert await opened.residue() == {}


def a_run(key: str | None = None, **fields: Any) -> NewRun:
    """A run of which nothing is kept when it is over."""
    id = new_id()
    return NewRun(id, key or id, "task", retention=fields.pop("retention", AT_ONCE), **fields)


async def take(opened: RedisEngine, want: int = 10, **fields: Any) -> list[Claim]:
    return (await opened.claim("worker", want, lease=fields.pop("lease", LEASE), **fields)).claims


async def until_known(ask: Callable[[], Awaitable[T]]) -> T:
    """As one does who wants to be sure: again, until there is an answer."""
    while True:
        try:
            return await ask()
        except (EngineUnavailable, OutcomeUnknown):
            continue


async def until_empty(opened: RedisEngine) -> None:
    async def is_empty() -> bool:
        return not await opened.residue()

    await eventually(is_empty)


def completed(*claims: Claim) -> list[Settle]:
    return [Settle(claim, State.COMPLETED) for claim in claims]
