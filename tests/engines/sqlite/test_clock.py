"""The host's clock may be set, forward or back; leases must not notice."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dovetail.clock import SystemClock
from dovetail.clock import system as clocks
from dovetail.engines.sqlite import SqliteEngine
from dovetail.model import Finished
from dovetail.testing.conformance.vocabulary import HOUR, SECOND, a_run, beat, completed, keys, place, start_one, take
from tests.engines.sqlite.words import Opened

LEASE = timedelta(seconds=10)


class Host:
    """A machine whose clock can be set. Stands in for the module `time`."""

    def __init__(self) -> None:
        self._wall = 1_900_000_000_000_000_000
        self._ticks = 5_000_000_000

    def time_ns(self) -> int:
        return self._wall

    def monotonic_ns(self) -> int:
        return self._ticks

    def monotonic(self) -> float:
        return self._ticks / 1e9

    def goes_on(self, duration: timedelta) -> None:
        """Time passes."""
        self._ticks += round(duration.total_seconds() * 1e9)
        self._wall += round(duration.total_seconds() * 1e9)

    def is_set(self, by: timedelta) -> None:
        """Somebody sets the clock. No time passes."""
        self._wall += round(by.total_seconds() * 1e9)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    host = Host()
    monkeypatch.setattr(clocks, "time", host)
    return host


@pytest.fixture
def system_clock(host: Host) -> SystemClock:
    return SystemClock()


@pytest.fixture
async def engine(opened: Opened, system_clock: SystemClock) -> SqliteEngine:
    return await opened(clock=system_clock)


def passed(clock: SystemClock, since: int) -> timedelta:
    return timedelta(microseconds=clock.microseconds() - since)


# The clock by itself


def test_the_clock_goes_with_the_host(system_clock: SystemClock, host: Host) -> None:
    before = system_clock.microseconds()
    assert before == host.time_ns() // 1000
    host.goes_on(HOUR)
    assert passed(system_clock, before) == HOUR


def test_the_clock_never_goes_back(system_clock: SystemClock, host: Host) -> None:
    seen = [system_clock.microseconds()]
    for step in (-HOUR, HOUR, -SECOND, timedelta(), -HOUR, 2 * HOUR, -HOUR):
        host.is_set(step)
        host.goes_on(SECOND)
        seen.append(system_clock.microseconds())
    assert seen == sorted(seen)


def test_a_clock_that_was_set_back_goes_on_at_half_its_pace(system_clock: SystemClock, host: Host) -> None:
    before = system_clock.microseconds()
    host.is_set(-HOUR)
    for _ in range(60):
        host.goes_on(SECOND)
        system_clock.microseconds()
    assert passed(system_clock, before) == 30 * SECOND


def test_a_clock_that_was_set_back_meets_the_host_again(system_clock: SystemClock, host: Host) -> None:
    system_clock.microseconds()
    host.is_set(-HOUR)
    host.goes_on(HOUR)
    assert system_clock.microseconds() > host.time_ns() // 1000
    host.goes_on(2 * HOUR)
    assert system_clock.microseconds() == host.time_ns() // 1000


def test_a_clock_that_was_set_forward_knows_it_for_a_while(system_clock: SystemClock, host: Host) -> None:
    assert not system_clock.leapt_within(LEASE)
    host.is_set(HOUR)
    system_clock.microseconds()
    assert system_clock.leapt_within(LEASE)
    host.goes_on(LEASE - SECOND)
    assert system_clock.leapt_within(LEASE)
    host.goes_on(SECOND)
    assert not system_clock.leapt_within(LEASE)


def test_time_that_passes_unwatched_is_no_leap(system_clock: SystemClock, host: Host) -> None:
    system_clock.microseconds()
    host.goes_on(24 * HOUR)
    system_clock.microseconds()
    assert not system_clock.leapt_within(LEASE)


@pytest.mark.parametrize("by", [SECOND, 4 * SECOND, -HOUR])
def test_a_small_step_or_one_back_is_no_leap(system_clock: SystemClock, host: Host, by: timedelta) -> None:
    host.is_set(by)
    host.goes_on(SECOND)
    system_clock.microseconds()
    assert not system_clock.leapt_within(LEASE)


def test_a_clock_can_be_brought_up_to_that_of_another_process(system_clock: SystemClock, host: Host) -> None:
    ahead = system_clock.microseconds() + 60_000_000
    system_clock.advance_to(ahead)
    host.goes_on(SECOND)
    assert system_clock.microseconds() > ahead


# Leases, when it was set forward


async def test_a_leap_forward_ends_no_lease(engine: SqliteEngine, host: Host) -> None:
    claim = await start_one(engine, a_run("a"), worker="alive")
    host.is_set(HOUR)
    assert await take(engine, worker="greedy", lease=LEASE) == []
    assert await engine.finish([completed(claim)]) == [Finished.DONE]


async def test_a_leap_forward_that_something_else_noticed_first_ends_no_lease(engine: SqliteEngine, host: Host) -> None:
    claim = await start_one(engine, a_run("a"), worker="alive")
    host.is_set(HOUR)
    await place(engine, a_run("b", due=24 * HOUR))
    assert await take(engine, worker="greedy", lease=LEASE) == []
    assert await engine.finish([completed(claim)]) == [Finished.DONE]


async def test_a_worker_that_beats_after_a_leap_keeps_its_lease(engine: SqliteEngine, host: Host) -> None:
    await place(engine, a_run("a"))
    (claim,) = await take(engine, 1, worker="alive", lease=LEASE)
    host.is_set(HOUR)
    assert await take(engine, worker="greedy", lease=LEASE) == []
    host.goes_on(LEASE / 2)
    await beat(engine, claim, worker="alive", lease=LEASE)
    host.goes_on(LEASE * 3 / 4)
    assert await take(engine, worker="greedy", lease=LEASE) == []


async def test_a_worker_that_is_gone_loses_its_lease_a_while_after_a_leap(engine: SqliteEngine, host: Host) -> None:
    await place(engine, a_run("a"))
    await take(engine, 1, worker="gone", lease=LEASE)
    host.is_set(HOUR)
    assert await take(engine, worker="greedy", lease=LEASE) == []
    host.goes_on(LEASE)
    (claim,) = await take(engine, worker="greedy", lease=LEASE)
    assert claim.redelivered


async def test_a_leap_forward_keeps_no_ready_run_from_starting(engine: SqliteEngine, host: Host) -> None:
    await place(engine, a_run("ready"), a_run("due soon", due=SECOND))
    host.is_set(HOUR)
    assert len(await take(engine, lease=LEASE)) == 2


async def test_a_worker_with_nothing_to_do_after_a_leap_is_told_to_wait(engine: SqliteEngine, host: Host) -> None:
    await start_one(engine, a_run("a"), worker="gone")
    host.is_set(HOUR)
    await engine.claim("idle", 1, lease=LEASE)
    claimed = await engine.claim("idle", 1, lease=LEASE)
    assert claimed.wait is None or claimed.wait > timedelta()


async def test_a_worker_is_told_when_the_grace_after_a_leap_ends(engine: SqliteEngine, host: Host) -> None:
    await start_one(engine, a_run("a"), worker="gone")
    host.is_set(HOUR)
    await engine.claim("idle", 1, lease=LEASE)
    claimed = await engine.claim("idle", 1, lease=LEASE)
    assert claimed.wait is not None
    assert claimed.wait <= LEASE


# Leases, when it was set back


async def test_a_lease_ends_although_the_clock_was_set_back(engine: SqliteEngine, host: Host) -> None:
    await place(engine, a_run("a"))
    await take(engine, 1, worker="gone", lease=LEASE)
    host.is_set(-HOUR)
    host.goes_on(LEASE)
    assert await take(engine, worker="greedy", lease=LEASE) == []
    host.goes_on(LEASE)
    assert len(await take(engine, worker="greedy", lease=LEASE)) == 1


async def test_what_is_due_starts_although_the_clock_was_set_back(engine: SqliteEngine, host: Host) -> None:
    await place(engine, a_run("ready"), a_run("soon", due=10 * SECOND))
    host.is_set(-HOUR)
    assert keys(await take(engine, lease=HOUR)) == ["ready"]
    host.goes_on(20 * SECOND)
    assert keys(await take(engine, lease=HOUR)) == ["soon"]


async def test_a_process_that_starts_after_the_clock_was_set_back_does_not_fall_behind(
    opened: Opened, engine: SqliteEngine, host: Host
) -> None:
    """What was due for another process is due for this one too."""
    await place(engine, a_run("a", due=timedelta(milliseconds=1)), a_run("b"))
    host.goes_on(SECOND)
    await beat(engine)
    host.is_set(-HOUR)
    newcomer = await opened(clock=SystemClock(), lane="newcomer")
    assert len(await take(newcomer, lease=LEASE)) == 2
