"""Several processes that add and work at once on one file."""

from __future__ import annotations

from dovetail import Docket
from dovetail.model import State
from tests.system.harness import Stage, are_over, runs_of
from tests.system.programs.tasks import wait_at
from tests.waiting import PATIENCE, eventually

PRODUCERS, EACH = 4, 500
WORKERS = 3


async def test_what_four_processes_add_three_workers_run_exactly_once(stage: Stage, docket: Docket) -> None:
    workers = [stage.start_worker(concurrency=10) for _ in range(WORKERS)]
    # Every worker has a part in it, be it ever so late.
    held = await docket.add_many(docket.call(wait_at)(stage.gate) for _ in range(WORKERS * 10))
    await eventually(lambda: len(stage.record.starts()) == len(held))
    producers = [stage.start("produce", EACH) for _ in range(PRODUCERS)]
    stage.open_gate()

    for producer in producers:
        assert await producer.ended() == 0, producer.said
    await eventually(lambda: are_over(docket), within=2 * PATIENCE)

    record = stage.record
    added = {line.run for line in record.of("added")} | {each.id for each in held}
    assert len(added) == PRODUCERS * EACH + len(held)
    assert {line.run for line in record.starts()} == added
    assert {line.run for line in record.ends()} == added
    assert record.more_than_once("start") == []
    assert {run.id for run in await runs_of(docket, State.COMPLETED)} == added
    assert {line.pid for line in record.starts()} == {worker.pid for worker in workers}
    assert {worker.exit_code for worker in workers} == {None}


async def test_processes_that_start_at_once_on_a_file_that_does_not_exist_all_get_in(stage: Stage) -> None:
    processes = [stage.start("produce", 10) for _ in range(6)]

    assert [await process.ended() for process in processes] == [0] * 6

    async with stage.docket() as docket:
        assert len(await runs_of(docket, State.QUEUED)) == 60
