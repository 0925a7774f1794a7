"""Processes of tasks: they go with their worker, whatever they are doing, and block nobody but themselves."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from dovetail import Docket
from dovetail.model import State
from tests.stores import Stores
from tests.system.harness import LEASE, Stage, runs_of, set_stage, short_folder
from tests.system.programs.tasks import hold_the_interpreter, pause, wait_abroad_at
from tests.waiting import PATIENCE, eventually, is_gone, soon

FOR_EVER = 10**9
A_WHILE = LEASE.total_seconds() + 1
"""Seconds: longer than a lease."""


class ElsewhereStage(Stage):
    """A docket on a server, and the processes that play on it."""

    def check(self) -> None:
        for process in self.processes:
            assert "Traceback" not in process.said


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def stage(request: pytest.FixtureRequest, stores: Stores) -> Iterator[Stage]:
    with short_folder() as folder:
        if request.param == "sqlite":
            with set_stage(folder) as stage:
                yield stage
            return
        with stores.place(request.param) as url:
            stage = ElsewhereStage(folder, folder)
            stage.url = url
            try:
                yield stage
            finally:
                stage.clear()
            stage.check()


@pytest.mark.parametrize("how", ["waits", "holds the interpreter"])
async def test_a_process_dies_with_its_worker_and_the_run_starts_elsewhere(
    stage: Stage, docket: Docket, how: str
) -> None:
    if how == "waits":
        run = await docket.add(wait_abroad_at)(stage.gate)
    else:
        run = await docket.add(hold_the_interpreter)(FOR_EVER)
    worker = stage.start_worker(lease=LEASE)
    (first,) = await eventually(lambda: stage.record.starts(run.key))
    assert first.pid != worker.pid

    worker.kill()

    await eventually(lambda: is_gone(first.pid))
    other = stage.start_worker()
    _, second = await eventually(lambda: len(starts := stage.record.starts(run.key)) == 2 and starts)
    assert second.epoch > first.epoch
    assert second.pid not in (first.pid, worker.pid, other.pid)
    stage.open_gate()
    if how == "waits":
        assert await soon(run.get_result()) == second.pid
    else:
        await docket.cancel(run.key)
        await eventually(lambda: is_gone(second.pid))


async def test_a_body_that_holds_the_interpreter_for_longer_than_a_lease_runs_once(
    stage: Stage, docket: Docket
) -> None:
    for _ in range(2):
        stage.start_worker(lease=LEASE)
    run = await docket.add(hold_the_interpreter)(A_WHILE)
    await eventually(lambda: stage.record.starts(run.key))
    bystander = await docket.add(pause)(1)
    await soon(bystander.get_result())
    await run.get_result(timeout=timedelta(seconds=2 * PATIENCE))
    assert len(stage.record.starts(run.key)) == 1
    (done,) = [each for each in await runs_of(docket, State.COMPLETED) if each.id == run.id]
    assert (done.attempt, done.crashes) == (1, 0)
