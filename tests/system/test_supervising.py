"""`dovetail worker --processes`: a supervisor and its worker processes, as a system sees them."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

from dovetail import Docket, ExecutionState
from dovetail.model import State
from tests.system.harness import LEASE, LONG_LEASE, Process, Stage, are_over, runs_of
from tests.system.programs.tasks import ignore_everything, leak, pause, swallow_pill, wait_at
from tests.waiting import PATIENCE, eventually

SOON = timedelta(seconds=PATIENCE)


async def pids_of(docket: Docket) -> set[int]:
    return {info.pid for info in await docket.workers() if info.pid}


async def members(docket: Docket, count: int, but: set[int] | None = None) -> set[int]:
    """The worker processes that the docket hears of, once there are so many that are not among others."""

    async def are_there() -> set[int] | None:
        found = await pids_of(docket) - (but or set())
        return found if len(found) >= count else None

    return await eventually(are_there)


def supervisor(stage: Stage, *options: str, lease: timedelta = LONG_LEASE) -> Process:
    return stage.start("command", f"--lease={lease.total_seconds():.0f}", *options)


async def test_work_is_shared_and_a_signal_lets_running_work_end(stage: Stage, docket: Docket) -> None:
    process = supervisor(stage, "--processes=2", "--name=sup", "--concurrency=1")
    pids = await members(docket, 2)
    assert process.pid not in pids
    assert {info.name for info in await docket.workers()} == {f"sup#{pid}" for pid in pids}
    runs = [await docket.add(wait_at)(stage.gate) for _ in range(2)]
    await eventually(lambda: len(stage.record.starts()) == 2)

    process.send(signal.SIGTERM)
    await eventually(lambda: "told to stop" in process.said)
    stage.open_gate()

    assert {await run.get_result(timeout=SOON) for run in runs} == pids
    assert await process.ended() == 0


async def test_a_worker_that_is_killed_is_replaced(stage: Stage, docket: Docket) -> None:
    process = supervisor(stage, "--processes=2")
    first = await members(docket, 2)
    victim = min(first)

    os.kill(victim, signal.SIGKILL)

    await members(docket, 1, but=first)
    assert f"worker process {victim} was killed by SIGKILL" in process.said
    await (await docket.add(pause)(1)).get_result(timeout=SOON)
    process.send(signal.SIGINT)
    assert await process.ended() == 0


async def test_a_supervisor_gives_up_when_no_worker_can_start(stage: Stage) -> None:
    process = supervisor(stage, "--processes=2", "--tasks=no.such:thing")
    began = time.monotonic()
    assert await process.ended() == 1
    assert "gives up" in process.said
    assert "ended with exit code 1" in process.said
    assert time.monotonic() - began > 4, "it went slower with each death"
    assert process.said.count("started (place 0)") <= 5


async def test_a_second_signal_hands_running_work_back_at_once(stage: Stage, docket: Docket) -> None:
    process = supervisor(stage, "--processes=2", "--grace=600")
    run = await docket.add(wait_at)(stage.gate)
    await eventually(lambda: stage.record.starts(run.key))
    process.send(signal.SIGTERM)
    await eventually(lambda: "told to stop" in process.said)
    process.send(signal.SIGTERM)
    assert await process.ended() == 0
    (back,) = await runs_of(docket)
    assert (back.state, back.attempt, back.crashes) == (State.QUEUED, 1, 0)


async def test_workers_stop_when_their_supervisor_is_killed(stage: Stage, docket: Docket) -> None:
    process = supervisor(stage, "--processes=2")
    await members(docket, 2)
    process.kill()

    async def have_left() -> bool:
        return not await pids_of(docket)

    await eventually(have_left)
    assert "the supervisor is gone" in process.said


async def test_worn_workers_are_replaced_and_nothing_is_lost(stage: Stage, docket: Docket) -> None:
    process = supervisor(stage, "--processes=2", "--max-runs=20", "--concurrency=4")
    added = await docket.add_many(docket.call(pause)(20) for _ in range(200))
    await eventually(lambda: are_over(docket), within=2 * PATIENCE)
    assert {run.id for run in await runs_of(docket, State.COMPLETED)} == {each.id for each in added}
    assert stage.record.more_than_once() == []
    assert len({line.pid for line in stage.record.starts()}) >= 4
    process.send(signal.SIGTERM)
    assert await process.ended() == 0


async def test_a_leak_is_bounded_by_recycling_and_nothing_is_lost(stage: Stage, docket: Docket) -> None:
    added = await docket.add_many(docket.call(leak)(10) for _ in range(60))
    process = supervisor(stage, "--processes=2", "--max-memory=200", "--concurrency=1")
    await eventually(lambda: are_over(docket), within=2 * PATIENCE)
    assert len(await runs_of(docket, State.COMPLETED)) == len(added)
    assert stage.record.more_than_once() == []
    assert "MiB of memory" in process.said
    ends = Counter(line.pid for line in stage.record.ends())
    assert max(ends.values()) < 60 / 2, "none of them has run its share to the end"
    process.send(signal.SIGTERM)
    assert await process.ended() == 0


async def test_a_worker_that_waits_out_a_long_run_has_a_successor_meanwhile(stage: Stage, docket: Docket) -> None:
    process = supervisor(stage, "--processes=2", "--max-age=3", "--concurrency=4", "--grace=1")
    long = await docket.add(wait_at)(stage.gate)
    (start,) = await eventually(lambda: stage.record.starts(long.key))
    await eventually(lambda: f"worker process {start.pid} makes room" in process.said)
    await members(docket, 1, but={start.pid})
    await (await docket.add(pause)(1)).get_result(timeout=SOON)
    stage.open_gate()
    assert await long.get_result(timeout=SOON) == start.pid
    assert len(stage.record.starts(long.key)) == 1
    process.send(signal.SIGTERM)
    assert await process.ended() == 0


async def test_without_a_supervisor_a_worn_worker_just_ends(stage: Stage, docket: Docket) -> None:
    await docket.add_many(docket.call(pause)(20) for _ in range(40))
    assert await stage.start("command", "--max-runs=10", "--concurrency=2").ended() == 0
    assert 9 <= len(stage.record.ends()) < 40
    assert not await runs_of(docket, State.RUNNING)


async def test_a_body_that_lets_nothing_end_it_does_not_hold_the_process(stage: Stage, docket: Docket) -> None:
    run = await docket.add(ignore_everything)()
    process = stage.start("command", "--grace=0.5")
    await eventually(lambda: stage.record.starts(run.key))
    process.send(signal.SIGTERM)
    assert await process.ended() == 0
    assert "are left behind" in process.said


async def test_a_process_with_a_body_that_ignores_its_cancellation_is_replaced(stage: Stage, docket: Docket) -> None:
    process = supervisor(stage, "--processes=2", "--concurrency=1", lease=LEASE)
    run = await docket.add(ignore_everything)()
    (start,) = await eventually(lambda: stage.record.starts(run.key))
    await docket.cancel(run.key)
    await eventually(lambda: f"worker process {start.pid} makes room" in process.said)
    await members(docket, 2, but={start.pid})

    async def is_over() -> bool:
        await run.sync()
        return run.state is ExecutionState.CANCELLED

    await eventually(is_over)
    assert len(stage.record.starts(run.key)) == 1
    process.send(signal.SIGTERM)
    assert await process.ended() == 0


async def test_files_that_change_start_the_workers_anew(stage: Stage, docket: Docket) -> None:
    package = Path(stage.folder) / "shop"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "tasks.py").write_text("tasks = []\n")
    environment = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(stage.folder)
    try:
        process = supervisor(stage, "--reload", "--tasks=shop.tasks:tasks")
    finally:
        os.environ.pop("PYTHONPATH")
        if environment is not None:
            os.environ["PYTHONPATH"] = environment
    first = await members(docket, 1)
    (package / "tasks.py").write_text("async def fresh(): return 'fresh'\ntasks = [fresh]\n")
    await eventually(lambda: "tasks.py changed" in process.said)
    await members(docket, 1, but=first)
    assert "* fresh()" in process.said
    process.send(signal.SIGTERM)
    assert await process.ended() == 0


async def test_a_task_that_crashes_its_workers_takes_no_other_with_it(stage: Stage, docket: Docket) -> None:
    pill = await docket.add(swallow_pill, priority=1)()
    others = await docket.add_many(docket.call(pause)(300) for _ in range(40))
    process = supervisor(stage, "--processes=2", "--concurrency=8", lease=LEASE)
    await eventually(lambda: are_over(docket), within=2 * PATIENCE)
    assert [run.id for run in await runs_of(docket, State.FAILED)] == [pill.id]
    assert len(await runs_of(docket, State.COMPLETED)) == len(others)
    assert len(stage.record.starts(pill.key)) == 3
    process.send(signal.SIGTERM)
    assert await process.ended() == 0
