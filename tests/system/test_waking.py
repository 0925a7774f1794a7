"""Hints between processes: nobody waits for a poll."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

import pytest

from dovetail import Docket, ExecutionCancelled
from dovetail.engines.sqlite.doorbell import POLL
from tests.system.harness import Stage, are_over, set_stage, short_folder
from tests.system.programs.tasks import pause, wait_at
from tests.waiting import eventually

SOON = 0.1
"""Seconds. A few milliseconds are usual; a busy machine may take longer, but nothing like a poll."""
LONG_LEASE = timedelta(seconds=60)


async def seconds_to_start(stage: Stage, docket: Docket) -> float:
    """How long from the call of `add` to the first line of the body, in another process that was idle."""
    before = time.monotonic_ns()
    run = await docket.add(pause)(0)
    (start,) = await eventually(lambda: stage.record.starts(run.key))
    await eventually(lambda: are_over(docket))
    return (start.at - before) / 1e9


@pytest.mark.parametrize("workers", [1, 2])
async def test_an_idle_worker_in_another_process_starts_a_run_at_once(
    stage: Stage, docket: Docket, workers: int
) -> None:
    assert SOON < POLL / 5
    for _ in range(workers):
        await stage.start_idle_worker(docket, lease=LONG_LEASE)
    await seconds_to_start(stage, docket)

    waits = [await seconds_to_start(stage, docket) for _ in range(20)]

    assert median(waits) < SOON, waits


async def test_a_waiter_in_another_process_hears_of_every_end(stage: Stage, docket: Docket) -> None:
    await stage.start_idle_worker(docket, lease=LONG_LEASE)
    waits: list[float] = []
    for _ in range(300):
        # So short that it ends while the waiter still makes ready to listen.
        run = await docket.add(pause)(0)
        await run.get_result(timeout=timedelta(seconds=20))
        heard = time.monotonic_ns()
        (end,) = stage.record.ends(run.key)
        waits.append((heard - end.at) / 1e9)

    assert median(waits) < SOON, waits
    # One is forgiven: a busy machine may stall. An end that is missed shows when the next poll finds it.
    assert sorted(waits)[-2] < POLL * 0.9, sorted(waits)[-10:]


@pytest.fixture
def deep_stage() -> Iterator[Stage]:
    """A stage whose store has a path that no socket can have."""
    with short_folder() as folder:
        deep = folder / ("deep" * 30)
        deep.mkdir()
        with set_stage(folder, deep / "store.db") as stage:
            yield stage


async def test_a_worker_on_a_file_deep_down_need_not_wait_for_a_poll_either(deep_stage: Stage) -> None:
    async with deep_stage.docket() as docket:
        worker = await deep_stage.start_idle_worker(docket, lease=LONG_LEASE)

        waits = [await seconds_to_start(deep_stage, docket) for _ in range(10)]

        assert median(waits) < POLL / 4, waits
        worker.send(signal.SIGTERM)
        assert await worker.ended() == 0


async def test_a_worker_that_was_killed_leaves_no_doorbell_behind(stage: Stage, docket: Docket) -> None:
    def bells() -> list[Path]:
        return [bell for bell in Path(f"{stage.store}-bells").iterdir() if bell.name.startswith(f"{killed.pid}-")]

    killed = await stage.start_idle_worker(docket)
    await eventually(bells)

    killed.kill()
    await docket.add(pause)(0)

    await eventually(lambda: not bells())


async def test_a_run_for_later_starts_when_it_is_due(stage: Stage, docket: Docket) -> None:
    await stage.start_idle_worker(docket, lease=LONG_LEASE)
    delays: list[float] = []
    for _ in range(10):
        before = time.monotonic_ns()
        ahead = timedelta(milliseconds=150)
        run = await docket.add(pause, when=datetime.now(UTC) + ahead)(0)
        (start,) = await eventually(lambda run=run: stage.record.starts(run.key))
        delays.append((start.at - before) / 1e9 - ahead.total_seconds())

    assert min(delays) >= 0, "none starts early"
    assert median(delays) < SOON, delays


async def test_a_run_that_is_cancelled_stops_in_another_process_before_the_next_heartbeat(
    stage: Stage, docket: Docket
) -> None:
    # A heartbeat comes every two seconds, and would bring the word as well.
    await stage.start_idle_worker(docket, lease=LONG_LEASE, concurrency=20)
    runs = await docket.add_many(docket.call(wait_at)(stage.gate) for _ in range(9))
    await eventually(lambda: len(stage.record.starts()) == 9)
    waits: list[float] = []
    for run in runs:
        before = time.monotonic_ns()
        await docket.cancel(run.key)
        (cut,) = await eventually(lambda run=run: stage.record.of("cut", run.key))
        waits.append((cut.at - before) / 1e9)
        with pytest.raises(ExecutionCancelled):
            await run.get_result(timeout=timedelta(seconds=20))

    assert median(waits) < SOON, waits
