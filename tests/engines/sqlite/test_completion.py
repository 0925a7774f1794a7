"""Transactional completion on SQLite: what a task writes to the docket's own file takes effect exactly once."""

import sqlite3
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dovetail import Docket, Retry, TaskTransaction, Worker
from dovetail.clock import VirtualClock
from dovetail.engines.sqlite import SqliteEngine
from dovetail.errors import UsageError
from dovetail.model import Finished, NewRun, RunQuery, Settle, State, new_id

LEASE = timedelta(seconds=30)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE effect (run)")
    db.close()
    return path


@pytest.fixture
async def docket(path: Path) -> AsyncIterator[Docket]:
    async with Docket("tests", f"sqlite:///{path}") as docket:
        yield docket


def effects(path: Path) -> list[Any]:
    db = sqlite3.connect(path)
    try:
        return [row[0] for row in db.execute("SELECT run FROM effect ORDER BY run")]
    finally:
        db.close()


async def test_the_effect_is_there_once_however_often_it_is_tried(docket: Docket, path: Path) -> None:
    tries: list[int] = []

    async def leave_effect(
        number: int, connection: sqlite3.Connection = TaskTransaction(), retry: Retry = Retry(attempts=3)
    ) -> None:
        connection.execute("INSERT INTO effect VALUES (?)", (number,))
        tries.append(number)
        if tries.count(number) < 3:
            raise ValueError("again")

    for number in range(5):
        await docket.add(leave_effect)(number)
    async with Worker(docket) as worker:
        await worker.run_until_finished()
    assert effects(path) == [0, 1, 2, 3, 4]
    assert {run.state for run in await docket.engine.find(RunQuery())} == {State.COMPLETED}


async def test_what_a_zombie_wrote_is_rolled_back(path: Path) -> None:
    clock = VirtualClock()
    async with SqliteEngine(f"sqlite:///{path}", "tests", clock=clock) as engine:
        await engine.schedule([NewRun(new_id(), "a", "task")])
        zombie = (await engine.claim("zombie", 1, lease=LEASE)).claims[0]
        clock.jump(2 * LEASE)
        heir = (await engine.claim("heir", 1, lease=LEASE)).claims[0]
        for claim, expected in ((zombie, Finished.FENCED), (heir, Finished.DONE)):
            transaction = await engine.transaction()
            transaction.connection.execute("INSERT INTO effect VALUES (?)", (claim.epoch,))
            assert await transaction.finish(Settle(claim, State.COMPLETED)) is expected
        assert effects(path) == [heir.epoch]


async def test_a_task_cannot_commit_by_itself(path: Path) -> None:
    async with SqliteEngine(f"sqlite:///{path}", "tests", clock=VirtualClock()) as engine:
        transaction = await engine.transaction()
        with transaction.connection as connection:
            connection.execute("INSERT INTO effect VALUES (1)")
        for end in (connection.commit, connection.rollback):
            with pytest.raises(UsageError):
                end()
        await transaction.abandon()
    assert effects(path) == []


async def test_a_docket_in_memory_has_none() -> None:
    async with SqliteEngine(f"memory://{new_id()}", "tests", clock=VirtualClock()) as engine:
        with pytest.raises(UsageError, match="docket in a file"):
            await engine.transaction()
