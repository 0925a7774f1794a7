"""Reminders: hints that are given for a while, however often and from wherever they are asked for."""

from __future__ import annotations

import asyncio
import threading

import pytest

from dovetail.engine import reminding
from dovetail.engine.reminding import Reminders
from tests.waiting import eventually

DELAYS = (0.001, 0.002, 0.003)


@pytest.fixture(autouse=True)
def at_short_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reminding, "DELAYS", DELAYS)


async def test_what_was_scheduled_is_told_after_every_delay():
    told: list[int] = []
    Reminders(lambda: told.append(1)).begin()
    await eventually(lambda: len(told) == len(DELAYS))


async def test_however_much_is_scheduled_each_delay_passes_once_at_a_time():
    told: list[int] = []
    reminders = Reminders(lambda: told.append(1))
    for _ in range(100):
        reminders.begin()
    await eventually(lambda: len(told) == 2 * len(DELAYS))
    await asyncio.sleep(10 * DELAYS[-1])
    assert len(told) == 2 * len(DELAYS)


async def test_it_may_be_asked_for_in_another_thread():
    told: list[threading.Thread] = []
    await asyncio.to_thread(Reminders(lambda: told.append(threading.current_thread())).begin)
    await eventually(lambda: len(told) == len(DELAYS))
    assert set(told) == {threading.current_thread()}


async def test_nothing_is_told_after_the_end():
    told: list[int] = []
    reminders = Reminders(lambda: told.append(1))
    reminders.begin()
    await asyncio.sleep(0)
    reminders.begin()
    reminders.close()
    await asyncio.sleep(10 * DELAYS[-1])
    assert not told
