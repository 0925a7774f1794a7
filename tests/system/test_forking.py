"""Processes that fork with a docket open: each side has the store to itself."""

from __future__ import annotations

from collections import Counter

from dovetail import Docket
from tests.system.harness import Stage, runs_of
from tests.system.programs.fork import CHILDREN, EACH
from tests.system.programs.tasks import fork_and_add
from tests.waiting import eventually, soon


async def test_both_sides_of_a_fork_go_on_adding_and_lose_nothing(stage: Stage) -> None:
    # Nobody else has the file open: when the parent closes it, only the children keep it alive.
    process = stage.start("fork")

    assert await process.ended() == 0, process.said

    acknowledged = stage.record.of("acknowledged")
    by_process = Counter(line.pid for line in acknowledged)
    assert len(by_process) == CHILDREN + 1
    assert all(count == 2 * EACH for pid, count in by_process.items() if pid != process.pid)
    async with stage.docket() as docket:
        kept = {run.id for run in await runs_of(docket)}
    assert {line.run for line in acknowledged} - kept == set()


async def test_a_child_made_by_fork_opens_the_store_for_itself(stage: Stage) -> None:
    process = stage.start("fork")

    assert await process.ended() == 0, process.said

    opened = {(line.pid, line.key) for line in stage.record.of("opened")}
    children = {line.pid for line in stage.record.of("halfway")}
    assert opened == {(pid, name) for pid in children for name in ("database", "log", "memory")}


async def test_a_task_may_fork_and_its_child_may_add(stage: Stage, docket: Docket) -> None:
    worker = await stage.start_idle_worker(docket)

    forked = await docket.add(fork_and_add)("from-the-child")

    assert await soon(forked.get_result()) == 0, worker.said
    (start,) = await eventually(lambda: stage.record.starts("from-the-child"))
    assert start.pid == worker.pid
    assert stage.record.more_than_once() == []
