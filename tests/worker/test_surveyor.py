"""The surveyor: how often it looks at everything, by how long that takes."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from dovetail.errors import EngineUnavailable
from dovetail.model import Survey
from dovetail.worker import surveyor as surveyor_module
from dovetail.worker.surveyor import SHARE, Surveyor
from dovetail.worker.telemetry import Telemetry

SECOND = timedelta(seconds=1)


class Store:
    """A store whose answers take some time, and the clock by which they do."""

    def __init__(self, *takes: timedelta) -> None:
        self.pauses: list[timedelta] = []
        self.asked = 0
        self._takes = takes
        self._now = 0.0
        self.is_away = False

    async def survey(self) -> Survey:
        self._now += self._takes[self.asked].total_seconds()
        self.asked += 1
        if self.is_away:
            raise EngineUnavailable("away")
        return Survey(datetime.now(UTC), [], [])

    def monotonic(self) -> float:
        return self._now

    async def rest(self, event: asyncio.Event | None, pause: timedelta) -> None:
        self.pauses.append(pause)
        if self.asked == len(self._takes):
            raise asyncio.CancelledError


@pytest.fixture(autouse=True)
def metered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveyor_module, "is_metering", lambda: True)


async def looks(store: Store) -> Surveyor:
    """Let a surveyor look for as often as the store answers."""
    surveyor = Surveyor(cast("Any", store), cast("Any", store), Telemetry(), lambda: SECOND)
    with pytest.raises(asyncio.CancelledError):
        await surveyor.run()
    return surveyor


async def test_it_looks_at_every_heartbeat():
    await looks(store := Store(*[timedelta()] * 3))
    assert store.pauses == [SECOND] * 3


async def test_one_that_took_long_once_does_not_count():
    await looks(store := Store(SECOND, timedelta(), SECOND, timedelta()))
    assert store.pauses == [SECOND] * 4


async def test_what_always_takes_long_is_a_small_part_of_the_time():
    await looks(store := Store(*[SECOND] * 3))
    assert store.pauses == [SECOND, SECOND * SHARE, SECOND * SHARE]


async def test_one_that_is_slow_does_not_hold_up_the_end():
    surveyor = await looks(store := Store(SECOND))
    await surveyor.look_again()
    assert store.asked == 1


async def test_a_store_that_is_away_is_asked_again():
    store = Store(timedelta(), timedelta())
    store.is_away = True
    await looks(store)
    assert store.asked == 2
