"""Recycling: when a worker process has done enough, and how it goes."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from dovetail import Docket, UsageError, Worker
from dovetail.model import State
from dovetail.worker.recycling import SPREAD, Limits, Wear, memory_used
from dovetail.worker.reloading import watched
from tests.by_hand import run_of
from tests.faults import behind_a_door
from tests.waiting import PATIENCE, soon


def test_without_limits_there_is_no_reason_to_go():
    assert not Limits()
    assert Wear(Limits()).reason_to_go(10**9) is None


def test_limits_differ_from_process_to_process_and_are_never_exceeded():
    first = [next(runs for runs in range(2000) if Wear(Limits(runs=1000)).reason_to_go(runs)) for _ in range(50)]
    assert max(first) <= 1000
    assert min(first) >= 1000 * (1 - SPREAD)
    assert len(set(first)) > 5


def test_age_is_a_reason(monkeypatch: pytest.MonkeyPatch):
    wear = Wear(Limits(age=timedelta(hours=1)))
    assert wear.reason_to_go(0) is None
    wear._began -= 3601  # pyright: ignore[reportPrivateUsage]
    assert "1:00:01 old" in (wear.reason_to_go(0) or "")


def test_memory_is_a_reason():
    ballast = bytearray(b"x") * (8 << 20)
    assert memory_used() > len(ballast)
    assert "MiB" in (Wear(Limits(memory=1)).reason_to_go(0) or "")
    assert Wear(Limits(memory=1 << 20)).reason_to_go(0) is None


@pytest.mark.parametrize("wrong", [{"max_runs": 0}, {"max_age": timedelta()}, {"max_memory": -1}, {"max_runs": 1.5}])
async def test_limits_that_make_no_sense_are_refused(wrong: dict[str, object]):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        await Worker.run(url="memory://", **wrong)  # type: ignore[arg-type]


async def test_a_worker_that_retires_lets_running_work_end_beyond_its_grace(docket: Docket):
    started, release = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        started.set()
        await release.wait()
        return "done"

    faults = behind_a_door(docket)
    worker = Worker(docket, shutdown_grace=timedelta())
    execution = await docket.add(work)()
    async with worker:
        working = asyncio.create_task(worker.run_forever())
        await soon(started.wait())
        worker.retire()
        late = await docket.add(work)()
        await faults.called("heartbeat", 3)
        assert not working.done()
        release.set()
        await soon(working)
    assert await execution.get_result() == "done"
    assert (await run_of(docket, id=late.id)).state is State.QUEUED


async def test_a_worker_that_retires_still_obeys_a_stop(docket: Docket):
    started = asyncio.Event()

    async def work() -> None:
        started.set()
        await asyncio.Event().wait()

    worker = Worker(docket, shutdown_grace=timedelta())
    execution = await docket.add(work)()
    async with worker:
        working = asyncio.create_task(worker.run_forever())
        await soon(started.wait())
        worker.retire()
        worker.stop()
        await soon(working)
    assert (await run_of(docket, id=execution.id)).state is State.QUEUED


async def test_a_worker_is_ready_once_it_has_claimed_and_until_it_stops(docket: Docket):
    async def work() -> None: ...

    worker = Worker(docket)
    assert not worker.is_ready
    assert (worker.last_claim_at, worker.attempts_made) == (None, 0)
    async with worker:
        working = asyncio.create_task(worker.run_forever())
        await (await docket.add(work)()).get_result(timeout=timedelta(seconds=PATIENCE))
        assert worker.is_ready
        assert not worker.is_stuck
        assert worker.last_claim_at is not None
        assert worker.attempts_made == 1
        worker.stop()
        assert not worker.is_ready
        await soon(working)


def test_what_is_watched_is_the_current_directory_and_packages_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    here, there = tmp_path / "here", tmp_path / "there"
    for package in (here / "inside_shop", there / "outside_shop"):
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.chdir(here)
    found = watched(["inside_shop.tasks:tasks", "outside_shop:tasks", "dovetail.tasks:standard_tasks", "no_such:x"])
    assert found == [here, there / "outside_shop"]
