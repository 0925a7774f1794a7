"""Hints between processes: nobody waits for a poll."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dovetail import Docket, ExecutionCancelled
from dovetail.engines.sqlite import doorbell
from tests.system.harness import Stage, are_over, set_stage, short_folder
from tests.system.programs.tasks import pause, wait_at
from tests.waiting import eventually, soon

HINTS_ONLY = "--hints-only"
"""A worker that looks at nothing by itself: what it does, it was told of."""


async def add_to_an_idle_docket(stage: Stage, docket: Docket) -> None:
    """One run, which starts and ends in another process that was idle."""
    run = await docket.add(pause)(0)
    await eventually(lambda: stage.record.starts(run.key))
    await eventually(lambda: are_over(docket))


@pytest.mark.parametrize("workers", [1, 2])
async def test_an_idle_worker_in_another_process_starts_a_run_at_once(
    stage: Stage, docket: Docket, workers: int
) -> None:
    for _ in range(workers):
        await stage.start_idle_worker(docket, HINTS_ONLY)
    for _ in range(20):
        await add_to_an_idle_docket(stage, docket)


async def test_a_waiter_in_another_process_hears_of_every_end(
    stage: Stage, docket: Docket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doorbell, "POLL", 3600.0)
    monkeypatch.setattr("dovetail.execution.LOOK_AGAIN", 3600.0)
    await stage.start_idle_worker(docket, HINTS_ONLY)
    for _ in range(300):
        # So short that it ends while the waiter still makes ready to listen.
        run = await docket.add(pause)(0)
        await soon(run.get_result())


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
        worker = await deep_stage.start_idle_worker(docket, HINTS_ONLY)
        for _ in range(10):
            await add_to_an_idle_docket(deep_stage, docket)
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
    await stage.start_idle_worker(docket, HINTS_ONLY)
    for _ in range(10):
        before = time.monotonic_ns()
        ahead = timedelta(milliseconds=150)
        run = await docket.add(pause, when=datetime.now(UTC) + ahead)(0)
        (start,) = await eventually(lambda run=run: stage.record.starts(run.key))
        assert (start.at - before) / 1e9 >= ahead.total_seconds(), "none starts early"


async def test_a_run_that_is_cancelled_stops_in_another_process_before_the_next_heartbeat(
    stage: Stage, docket: Docket
) -> None:
    await stage.start_idle_worker(docket, HINTS_ONLY, concurrency=20)
    runs = await docket.add_many(docket.call(wait_at)(stage.gate) for _ in range(9))
    await eventually(lambda: len(stage.record.starts()) == 9)
    for run in runs:
        await docket.cancel(run.key)
        await eventually(lambda run=run: stage.record.of("cut", run.key))
        with pytest.raises(ExecutionCancelled):
            await soon(run.get_result())
