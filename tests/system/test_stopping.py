"""Workers that are told to stop: running work ends or goes elsewhere, at no cost."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from dovetail import Docket, Execution
from dovetail.model import State
from tests.system.harness import Process, Stage, are_over, runs_of
from tests.system.programs.tasks import pause, stop_worker, wait_at, wait_in_thread_at
from tests.waiting import eventually, soon

RUSH = 1500


async def ask_to_stop(stage: Stage, worker: Process, number: signal.Signals = signal.SIGTERM) -> None:
    """Send a signal, and wait until the worker has heard it."""
    heard = len(stage.record.of("stop", pid=worker.pid))
    worker.send(number)
    await eventually(lambda: len(stage.record.of("stop", pid=worker.pid)) > heard)


async def in_the_hands_of(
    stage: Stage, docket: Docket, worker: Process, task: Callable[[str], Any], count: int
) -> list[Execution[Any]]:
    """Runs that this worker has started and that wait at the gate."""
    held = await docket.add_many(docket.call(task)(stage.gate) for _ in range(count))
    await eventually(lambda: len(stage.record.in_progress(worker.pid)) == count)
    return held


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_worker_that_is_told_to_stop_ends_what_it_runs_and_starts_nothing_new(
    stage: Stage, docket: Docket, number: signal.Signals
) -> None:
    worker = await stage.start_idle_worker(docket, concurrency=3)
    held = await in_the_hands_of(stage, docket, worker, wait_at, 2)

    await ask_to_stop(stage, worker, number)
    late = await docket.add_many(docket.call(pause)(1) for _ in range(5))
    stage.open_gate()

    assert await worker.ended() == 0
    assert [await soon(each.get_result()) for each in held] == [worker.pid, worker.pid]
    assert {line.key for line in stage.record.starts()} == {each.key for each in held}
    for each in late:
        await each.sync()
        assert each.state is State.QUEUED
    assert await docket.workers() == []


@pytest.mark.parametrize("task", [wait_at, wait_in_thread_at])
async def test_a_second_signal_hands_running_work_back_at_once_and_at_no_cost(
    stage: Stage, docket: Docket, task: Callable[[str], Any]
) -> None:
    leaving = await stage.start_idle_worker(docket)
    held = await in_the_hands_of(stage, docket, leaving, task, 2)
    staying = await stage.start_idle_worker(docket)
    await ask_to_stop(stage, leaving)
    assert leaving.is_running

    leaving.send(signal.SIGTERM)

    await eventually(lambda: len(stage.record.starts(pid=staying.pid)) == 2)
    # The gate is still closed: neither process nor thread may wait for it.
    assert await leaving.ended() == 0
    stage.open_gate()
    for each in held:
        assert await soon(each.get_result()) == staying.pid
        assert each.run is not None
        assert (each.run.attempt, each.run.crashes) == (1, 0)
    assert [info.pid for info in await docket.workers()] == [staying.pid]


async def test_a_worker_that_stops_in_the_middle_of_a_rush_keeps_nothing_to_itself(
    stage: Stage, docket: Docket
) -> None:
    calls = [docket.call(pause)(0) for _ in range(RUSH)]
    calls[RUSH // 10] = docket.call(stop_worker)()
    await docket.add_many(calls)

    leaving = stage.start_worker()

    assert await leaving.ended() == 0
    assert len(stage.record.starts()) < RUSH, "it was stopped in the middle"
    assert await runs_of(docket, State.RUNNING) == []
    stage.start_worker()
    await eventually(lambda: are_over(docket))
    assert len(stage.record.ends()) == len(await runs_of(docket, State.COMPLETED)) == RUSH
    assert stage.record.more_than_once() == []
    assert {run.attempt for run in await runs_of(docket)} == {1}
