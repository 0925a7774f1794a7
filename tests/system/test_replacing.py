"""A file that is deleted or replaced under those who have it open: they say so, and accept nothing more."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail import Docket, EngineUnavailable
from tests.system.harness import Stage
from tests.system.programs.tasks import pause
from tests.waiting import eventually

SAID = "was deleted or replaced"
NEW = 10


def delete(stage: Stage) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{stage.store}{suffix}").unlink(missing_ok=True)


async def replace(stage: Stage) -> None:
    """Put another store in its place, with runs of its own."""
    delete(stage)
    assert await stage.start("produce", NEW).ended() == 0


async def test_nothing_is_accepted_for_a_file_that_was_deleted(stage: Stage, docket: Docket) -> None:
    await docket.add(pause)(0)

    delete(stage)

    with pytest.raises(EngineUnavailable, match=SAID):
        await docket.add(pause)(0)


async def test_nothing_is_accepted_for_a_file_that_was_replaced(stage: Stage, docket: Docket) -> None:
    await docket.add(pause)(0)

    await replace(stage)

    with pytest.raises(EngineUnavailable, match=SAID):
        await docket.add(pause)(0)


async def test_a_worker_says_that_its_file_was_replaced_and_another_takes_up_the_new_one(stage: Stage) -> None:
    async with stage.docket() as docket:
        old = await stage.start_idle_worker(docket)

    await replace(stage)

    await eventually(lambda: SAID in old.said)
    new = stage.start_worker()
    added = {line.run for line in stage.record.of("added")}
    await eventually(lambda: {line.run for line in stage.record.ends(pid=new.pid)} == added)
    assert stage.record.starts(pid=old.pid) == []
    assert stage.record.more_than_once() == []
