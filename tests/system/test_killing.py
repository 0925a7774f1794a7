"""Workers that are killed, or that their tasks kill: nothing is lost, and what starts twice has a reason."""

from __future__ import annotations

import random
from itertools import pairwise

from dovetail import Docket
from dovetail.model import Run, State
from tests.system.harness import LEASE, Process, Record, Stage, are_over, runs_of
from tests.system.programs.tasks import EXIT_OF_THE_PILL, pause, pause_in_thread, swallow_pill, wait_at
from tests.waiting import PATIENCE, eventually, soon

RUNS = 300
KILLS = 25
CRASH_LIMIT = 3


class Doomed:
    """A worker that will be killed in the middle of a run, after so many others."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._ends_before = random.randrange(6)

    def is_due(self, record: Record) -> bool:
        assert self.process.is_running, self.process.said
        pid = self.process.pid
        return len(record.ends(pid=pid)) >= self._ends_before and bool(record.in_progress(pid))


async def kill_many(stage: Stage, kills: int) -> dict[int, int]:
    """Kill one worker after the other in the middle of runs, with three at any time; who was killed, and when."""
    workers = [Doomed(stage.start_worker(lease=LEASE)) for _ in range(3)]
    killed: dict[int, int] = {}
    while len(killed) < kills:
        victim = await eventually(lambda: next((w for w in workers if w.is_due(stage.record)), None))
        victim.process.kill()
        killed[victim.process.pid] = victim.process.killed_at
        workers[workers.index(victim)] = Doomed(stage.start_worker(lease=LEASE))
    return killed


def unexplained_repeats(record: Record, killed: dict[int, int]) -> list[str]:
    """Runs that started again although the worker before was not killed, or before it was."""
    return [
        run
        for run, starts in record.starts_by_run().items()
        for earlier, later in pairwise(starts)
        if earlier.pid not in killed or later.at < killed[earlier.pid] or later.epoch <= earlier.epoch
    ]


def is_explained_as_poisoned(run: Run, record: Record, killed: dict[int, int]) -> bool:
    """Whether as many leases of a failed run lapsed as it takes, none of them that of a worker still alive."""
    starts = record.starts_by_run().get(run.id, [])
    return run.crashes + 1 >= CRASH_LIMIT and all(start.pid in killed for start in starts)


async def test_every_run_completes_though_workers_are_killed_in_the_middle(stage: Stage, docket: Docket) -> None:
    tasks = [random.choice([pause, pause_in_thread]) for _ in range(RUNS)]
    added = await docket.add_many(docket.call(task)(random.randint(10, 50)) for task in tasks)

    killed = await kill_many(stage, KILLS)
    await eventually(lambda: are_over(docket), within=2 * PATIENCE)

    record = stage.record
    interrupted = [line for pid in killed for line in record.in_progress(pid)]
    assert len(interrupted) >= KILLS, "each kill hit at least one run"
    assert unexplained_repeats(record, killed) == []
    assert [pair for pair in record.overlaps() if pair[0].pid not in killed] == []
    assert {run.id for run in await runs_of(docket)} == {each.id for each in added}
    failed = await runs_of(docket, State.FAILED)
    assert [run for run in failed if not is_explained_as_poisoned(run, record, killed)] == []
    completed = await runs_of(docket, State.COMPLETED)
    assert len(completed) + len(failed) == RUNS
    last_ends = {line.run: line.epoch for line in record.ends()}
    assert [run.id for run in completed if last_ends.get(run.id) != run.epoch] == []


async def test_a_task_that_kills_its_worker_starts_three_times_and_then_fails(stage: Stage, docket: Docket) -> None:
    pill = await docket.add(swallow_pill)()
    worker = stage.start_worker(lease=LEASE)

    async def is_over() -> bool:
        nonlocal worker
        if not worker.is_running:
            assert worker.exit_code == EXIT_OF_THE_PILL, worker.said
            worker = stage.start_worker(lease=LEASE)
        await pill.sync()
        return pill.state.is_terminal

    await eventually(is_over, within=2 * PATIENCE)

    starts = stage.record.starts(pill.key)
    assert len(starts) == CRASH_LIMIT
    assert len({start.pid for start in starts}) == CRASH_LIMIT
    assert pill.state is State.FAILED
    assert pill.error is not None
    assert "poisoned" in pill.error.lower()
    bystander = await docket.add(pause)(1)
    await soon(bystander.get_result())


async def test_a_killed_workers_run_starts_elsewhere_soon_at_default_settings(stage: Stage, docket: Docket) -> None:
    run = await docket.add(wait_at)(stage.gate)
    holder = await stage.start_idle_worker(docket, lease=None)
    await eventually(lambda: stage.record.starts(run.key))
    await stage.start_idle_worker(docket, lease=None)
    # Killed just after it renewed its lease, which is when the wait for it is longest.
    seen = (await lease_of(docket)).lease_until
    await eventually(lambda: lease_is_beyond(docket, seen))

    holder.kill()

    assert holder.killed_at is not None
    _, again = await eventually(lambda: len(starts := stage.record.starts(run.key)) == 2 and starts)
    # Ten until the lease lapses and at most five until the next look; the rest is for a machine that is busy.
    assert again.at - holder.killed_at < 30_000_000_000
    stage.open_gate()
    assert await soon(run.get_result()) == again.pid


async def lease_of(docket: Docket) -> Run:
    (run,) = await runs_of(docket, State.RUNNING)
    return run


async def lease_is_beyond(docket: Docket, before: object) -> bool:
    return (await lease_of(docket)).lease_until != before
