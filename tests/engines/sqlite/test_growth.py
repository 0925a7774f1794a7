"""A store that is swept does not grow: what is forgotten makes room for what comes."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

from dovetail.clock import VirtualClock
from dovetail.engines.sqlite import SqliteEngine
from dovetail.model import Limit, Retention, new_id
from dovetail.testing.conformance.vocabulary import (
    SECOND,
    a_run,
    assert_empty,
    complete,
    complete_one_by_one,
    fail,
    place,
    sweep_all,
    take,
)
from tests.engines.sqlite.words import by_hand, log_size
from tests.waiting import GLANCE, PATIENCE

BRIEFLY = Retention.of(SECOND)
CROWD = 10_000


async def live_and_be_forgotten(engine: SqliteEngine, clock: VirtualClock, count: int) -> None:
    for _ in range(count // 1000):
        ids = [new_id() for _ in range(1000)]
        await place(engine, *(a_run(id, payload=bytes(200), retention=BRIEFLY).but(id=id) for id in ids))
        await complete(engine, *await take(engine, 1000))
    clock.jump(timedelta(minutes=1))
    await sweep_all(engine)
    await assert_empty(engine)


def size_of(path: Path) -> int:
    """The whole of it, once the log is written back. The engine tends its file after it has answered."""
    deadline = time.monotonic() + PATIENCE
    with by_hand(path) as db:
        while log_size(path):
            assert time.monotonic() < deadline
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            time.sleep(GLANCE)
    return path.stat().st_size


async def test_one_crowd_after_another_takes_no_more_room_than_the_first(
    engine: SqliteEngine, path: Path, clock: VirtualClock
) -> None:
    sizes: list[int] = []
    for _ in range(5):
        await live_and_be_forgotten(engine, clock, CROWD)
        sizes.append(size_of(path))
    assert sizes[-1] <= 2 * sizes[0]


async def test_a_long_life_in_a_small_store_takes_little_room(
    engine: SqliteEngine, path: Path, clock: VirtualClock
) -> None:
    """All the parts: keys, limits, groups, failures and parents."""
    sizes: list[int] = []
    for _ in range(6):
        for n in range(50):
            limits = (Limit("slots", 2), Limit("rate", 1000, SECOND))
            await place(engine, a_run(f"{n}", limits=limits, group=f"{n % 5}", retention=BRIEFLY))
            await place(engine, a_run(f"child {n}", after=(f"{n}",), retention=BRIEFLY))
            (claim,) = await take(engine, 1)
            await (fail if n % 2 else complete)(engine, claim)
        await complete_one_by_one(engine)
        clock.jump(timedelta(minutes=1))
        await sweep_all(engine)
        await assert_empty(engine)
        sizes.append(size_of(path))
    assert sizes[-1] <= 2 * sizes[0]


async def test_a_store_that_is_empty_again_gives_its_room_back(
    engine: SqliteEngine, path: Path, clock: VirtualClock
) -> None:
    before = size_of(path)
    await engine.schedule(
        [a_run(id := new_id(), payload=bytes(200), retention=BRIEFLY).but(id=id) for _ in range(CROWD)]
    )
    crowded = size_of(path)
    await complete(engine, *await take(engine, CROWD))
    clock.jump(timedelta(minutes=1))
    for _ in range(50):
        await engine.sweep()
    assert size_of(path) - before < (crowded - before) / 2
