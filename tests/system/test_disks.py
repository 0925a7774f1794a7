"""Disks that fill up, or take no more for a while: running work is not lost, and nobody has to restart anything."""

from __future__ import annotations

import contextlib
import resource
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dovetail import Docket, EngineFull, EngineUnavailable, Execution
from dovetail.model import State
from tests.system.harness import Process, Stage, are_over, runs_of, set_stage, short_folder
from tests.system.programs.tasks import carry, pause, wait_at
from tests.waiting import eventually, soon

SIZE = 16 * 1024 * 1024
LEASE = timedelta(seconds=20)
RUNNING = 8
LOAD = "x" * 2000


@contextlib.contextmanager
def small_disk(point: Path) -> Iterator[None]:
    """A disk of 16 MB, mounted here."""
    point.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={SIZE}", "none", str(point)]
    if subprocess.run(["mount", *options], capture_output=True, check=False).returncode:
        pytest.skip("no right to mount a small disk here; the tests with a limit on file sizes stand in for this one")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(point)], check=True)


@pytest.fixture
def stage_on_small_disk() -> Iterator[Stage]:
    with short_folder() as folder, small_disk(folder / "disk"), set_stage(folder, folder / "disk/store.db") as stage:
        yield stage


def filler(stage: Stage) -> Path:
    return stage.store.parent / "filler"


def fill(stage: Stage) -> None:
    """Leave not a byte on the disk."""
    with filler(stage).open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass


async def runs_at_the_gate(stage: Stage, docket: Docket, gate: str) -> list[Execution[Any]]:
    started = len(stage.record.starts())
    held = await docket.add_many(docket.call(wait_at)(gate) for _ in range(RUNNING))
    await eventually(lambda: len(stage.record.starts()) == started + RUNNING)
    return held


async def press_on(docket: Docket, calls: int) -> tuple[list[Execution[Any]], int]:
    """Add and add, whatever is said: what was accepted, and how many were refused."""
    accepted: list[Execution[Any]] = []
    refused = 0
    for _ in range(calls):
        try:
            accepted.append(await docket.add(carry)(LOAD))
        except EngineFull:
            refused += 1
    return accepted, refused


async def is_accepting(docket: Docket) -> bool:
    accepted, _ = await press_on(docket, 1)
    return bool(accepted)


async def are_completed(executions: list[Execution[Any]]) -> bool:
    for each in executions:
        await each.sync()
    return all(each.state is State.COMPLETED for each in executions)


async def test_running_work_ends_on_a_full_disk_while_new_work_is_refused(stage_on_small_disk: Stage) -> None:
    stage = stage_on_small_disk
    async with stage.docket() as docket:
        worker = await stage.start_idle_worker(docket, concurrency=RUNNING, lease=LEASE)
        held = await runs_at_the_gate(stage, docket, stage.gate)

        fill(stage)
        # A producer that does not give up must not use up the room in which running work is to end.
        accepted, refused = await press_on(docket, 4000)
        assert refused > 0
        stage.open_gate()
        await eventually(lambda: are_completed(held))

        filler(stage).unlink()
        await eventually(lambda: is_accepting(docket))
        later, refused = await press_on(docket, 50)
        assert refused == 0
        await eventually(lambda: are_over(docket))
        assert await are_completed(accepted + later)
    assert stage.record.more_than_once() == []
    assert {line.pid for line in stage.record.starts()} == {worker.pid}


async def test_a_disk_may_fill_up_a_second_time(stage_on_small_disk: Stage) -> None:
    stage = stage_on_small_disk
    async with stage.docket() as docket:
        await stage.start_idle_worker(docket, concurrency=RUNNING, lease=LEASE)
        for turn in ("first", "second"):
            gate = f"{stage.gate}-{turn}"
            held = await runs_at_the_gate(stage, docket, gate)
            fill(stage)
            _, refused = await press_on(docket, 100)
            assert refused > 0
            Path(gate).touch()
            await eventually(lambda held=held: are_completed(held))
            filler(stage).unlink()
            await eventually(lambda: are_over(docket))


def limit_files(process: Process, size: int) -> None:
    """Let no file of a process grow beyond so many bytes. Needs no rights, and can be taken back."""
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


async def test_outcomes_wait_for_a_store_that_cannot_be_written(stage: Stage, docket: Docket) -> None:
    worker = await stage.start_idle_worker(docket, concurrency=RUNNING)
    held = await runs_at_the_gate(stage, docket, stage.gate)

    limit_files(worker, Path(f"{stage.store}-wal").stat().st_size)
    stage.open_gate()
    await eventually(lambda: "could not be written, trying again" in worker.said)
    assert len(await runs_of(docket, State.RUNNING)) == RUNNING
    limit_files(worker, resource.RLIM_INFINITY)

    await eventually(lambda: are_completed(held))
    following = await docket.add(pause)(0)
    await soon(following.get_result())
    assert stage.record.more_than_once() == []
    assert {line.pid for line in stage.record.starts()} == {worker.pid}


async def test_a_producer_is_told_that_the_store_cannot_be_written(stage: Stage) -> None:
    async with stage.docket() as docket:
        await docket.add(pause)(0)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (Path(f"{stage.store}-wal").stat().st_size, hard))
        try:
            with pytest.raises(EngineUnavailable):
                await docket.add(pause)(0)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        await docket.add(pause)(0)
        assert len(await runs_of(docket, State.QUEUED)) == 2
