"""Workers that live but do not move: a lease is lost only when nobody renews it, and what comes late is refused."""

from __future__ import annotations

import signal
from datetime import timedelta

from dovetail import Docket
from dovetail.model import State
from tests.system.harness import LEASE, Stage
from tests.system.programs import tasks
from tests.system.programs.tasks import block, block_at, pause, wait_at
from tests.waiting import eventually, soon


async def test_the_late_outcome_of_a_worker_that_was_suspended_is_refused(stage: Stage, docket: Docket) -> None:
    # The body keeps the loop, so nothing can tell it that the run is lost: it ends, late, and its outcome is sent.
    run = await docket.add(block_at)(stage.gate)
    late = await stage.start_idle_worker(docket, lease=LEASE)
    (first,) = await eventually(lambda: stage.record.starts(run.key))
    await stage.suspend(late)
    await stage.start_idle_worker(docket, lease=LEASE)
    _, second = await eventually(lambda: len(starts := stage.record.starts(run.key)) == 2 and starts)

    stage.open_gate()
    assert await soon(run.get_result()) == second.pid
    assert run.run is not None
    outcome = run.run
    late.send(signal.SIGCONT)

    await eventually(lambda: stage.record.ends(run.key, first.pid))
    await eventually(lambda: "came too late" in late.said)
    await run.sync()
    assert run.run == outcome
    assert (outcome.state, outcome.epoch, outcome.crashes) == (State.COMPLETED, second.epoch, 1)
    assert second.epoch > first.epoch
    assert second.at - first.at >= LEASE / timedelta(microseconds=1) * 1000
    assert stage.record.overlaps() == [(first, second)]


async def test_a_worker_that_was_suspended_stops_what_it_has_lost_and_goes_on(stage: Stage, docket: Docket) -> None:
    run = await docket.add(wait_at)(stage.gate)
    late = await stage.start_idle_worker(docket, lease=LEASE)
    await eventually(lambda: stage.record.starts(run.key))
    await stage.suspend(late)
    other = await stage.start_idle_worker(docket, lease=LEASE)
    _, second = await eventually(lambda: len(starts := stage.record.starts(run.key)) == 2 and starts)

    late.send(signal.SIGCONT)
    await eventually(lambda: stage.record.of("cut", run.key, late.pid))
    stage.open_gate()

    assert await soon(run.get_result()) == second.pid == other.pid
    assert [line.pid for line in stage.record.ends(run.key)] == [other.pid]
    other.kill()
    following = await docket.add(pause)(1)
    await soon(following.get_result())
    assert [line.pid for line in stage.record.starts(following.key)] == [late.pid]


async def test_a_task_that_blocks_the_event_loop_for_three_leases_starts_once(stage: Stage, docket: Docket) -> None:
    blocker = await stage.start_idle_worker(docket, lease=LEASE)
    run = await docket.add(block)(round(3 * LEASE / timedelta(milliseconds=1)))
    await eventually(lambda: stage.record.starts(run.key))
    idle = await stage.start_idle_worker(docket, lease=LEASE)

    await soon(run.get_result())

    assert [line.pid for line in stage.record.starts(run.key)] == [blocker.pid]
    assert stage.record.overlaps() == []
    assert run.run is not None
    assert run.run.crashes == 0
    # The other worker was there all along and would have taken the run over.
    assert idle.is_running
    assert await stage.is_seen(idle, docket)
    assert f"{tasks.__file__}:{line_that_blocks()}" in blocker.said


def line_that_blocks() -> int:
    assert tasks.__file__
    with open(tasks.__file__) as file:
        return next(number for number, line in enumerate(file, 1) if line.rstrip().endswith("# the line that blocks"))
