"""Transactional completion: what a task writes in its transaction takes effect exactly once."""

import asyncio
import random
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.types.string import StrDumper, TextLoader

from dovetail import CurrentExecution, Docket, Execution, TaskTransaction, Worker
from dovetail.clock import VirtualClock
from dovetail.engines.postgres import PostgresEngine
from dovetail.errors import EngineUnavailable, OutcomeUnknown, UsageError
from dovetail.model import Claim, Finished, NewRun, RunQuery, Settle, State, new_id
from dovetail.worker import setbacks
from tests.engines.postgres.effects import TABLE, leave_effect
from tests.engines.postgres.killing import kill_backends
from tests.waiting import PATIENCE, eventually

LEASE = timedelta(seconds=30)
ROOT = Path(__file__).parents[3]


@pytest.fixture
async def docket(postgres_url: str) -> AsyncIterator[Docket]:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("SELECT pg_advisory_lock(77)")
        admin.execute(TABLE)
    async with Docket(new_id(), postgres_url) as docket:
        yield docket


async def effects(url: str, docket: Docket) -> Counter[str]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        rows = await connection.execute("SELECT run FROM effect WHERE docket = %s", (docket.name,))
        return Counter(run for (run,) in await rows.fetchall())


async def states(docket: Docket) -> Counter[State]:
    return Counter(run.state for run in await docket.engine.find(RunQuery(limit=1000)))


async def until_over(docket: Docket, count: int) -> None:
    async def are_over() -> bool:
        try:
            return (await docket.engine.survey()).count(State.COMPLETED, State.FAILED) >= count
        except (EngineUnavailable, OutcomeUnknown):
            return False

    await eventually(are_over, within=2 * PATIENCE)


async def test_the_effect_is_there_with_the_end(docket: Docket, postgres_url: str) -> None:
    executions = [await docket.add(leave_effect)(0) for _ in range(5)]
    async with Worker(docket) as worker:
        await worker.run_until_finished()
    assert await effects(postgres_url, docket) == {execution.id: 2 for execution in executions}
    assert await states(docket) == {State.COMPLETED: 5}


async def test_a_task_that_fails_leaves_no_effect(docket: Docket, postgres_url: str) -> None:
    async def fail(connection: Any = TaskTransaction()) -> None:
        await connection.execute("INSERT INTO effect VALUES (%s, 'failed', '')", (docket.name,))
        raise ValueError("no")

    await docket.add(fail)()
    async with Worker(docket) as worker:
        await worker.run_until_finished()
    assert await effects(postgres_url, docket) == {}
    assert await states(docket) == {State.FAILED: 1}


async def test_a_task_whose_commit_fails_has_failed(docket: Docket, postgres_url: str) -> None:
    """A constraint that is only checked at the commit."""

    async def break_a_promise(connection: Any = TaskTransaction()) -> None:
        await connection.execute("CREATE TEMP TABLE one (n int UNIQUE DEFERRABLE INITIALLY DEFERRED) ON COMMIT DROP")
        await connection.execute("INSERT INTO one VALUES (1), (1)")
        await connection.execute("INSERT INTO effect VALUES (%s, 'broken', '')", (docket.name,))

    await docket.add(break_a_promise)()
    async with Worker(docket) as worker:
        await worker.run_until_finished()
    assert await effects(postgres_url, docket) == {}
    assert await states(docket) == {State.FAILED: 1}


async def failure_of_the_only_run(docket: Docket) -> str:
    async with Worker(docket) as worker:
        await worker.run_until_finished()
    (run,) = await docket.engine.find(RunQuery())
    assert run.state is State.FAILED
    return run.error or ""


async def test_a_task_that_swallowed_an_error_is_told_so(docket: Docket) -> None:
    async def swallow(connection: Any = TaskTransaction()) -> None:
        with pytest.raises(psycopg.Error):
            await connection.execute("SELECT 1 / 0")

    await docket.add(swallow)()
    assert "the error was swallowed" in await failure_of_the_only_run(docket)


async def test_a_task_without_the_right_to_finish_fails_at_once(docket: Docket, users: dict[str, str]) -> None:
    async def step_down(connection: Any = TaskTransaction()) -> None:
        await connection.execute("SET ROLE test_reader")

    await docket.add(step_down)()
    assert "no right to do that" in await failure_of_the_only_run(docket)


async def test_a_commit_that_never_succeeds_is_given_up(docket: Docket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setbacks, "MOST", 4)
    tries = 0

    async def cut_the_branch(connection: Any = TaskTransaction()) -> None:
        nonlocal tries
        tries += 1
        with pytest.raises(psycopg.Error):
            await connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    await docket.add(cut_the_branch)()
    assert "the connection" in await failure_of_the_only_run(docket)
    assert tries == 4


def test_the_pause_after_a_setback_grows_to_a_bound() -> None:
    pauses = [setbacks.wait_after(count) for count in range(1, setbacks.MOST)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (timedelta(), setbacks.LONGEST)


async def test_what_a_task_does_to_its_connection_ends_with_it(docket: Docket) -> None:
    pids: list[int] = []

    async def make_a_mess(connection: Any = TaskTransaction()) -> None:
        await connection.execute("CREATE TEMP TABLE mess (n int)")
        await connection.execute("SET SESSION statement_timeout = '10min'")
        connection.row_factory = dict_row
        connection.adapters.register_loader("text", TextLoader)
        connection.adapters.register_dumper(int, StrDumper)
        connection.cursor_factory = psycopg.AsyncRawCursor
        pids.append(connection.info.backend_pid)

    for _ in range(3):
        await docket.add(make_a_mess)()
    async with Worker(docket, concurrency=1) as worker:
        await worker.run_until_finished()
    assert await states(docket) == {State.COMPLETED: 3}
    assert len(set(pids)) == 3


async def test_a_server_that_ends_idle_transactions_costs_a_task_its_transaction_and_nothing_else(
    docket: Docket, postgres_url: str
) -> None:
    """PG10: a body that waits for long in its transaction may lose it. It goes again, and its effect is there once."""
    tried: list[int] = []

    async def linger(connection: Any = TaskTransaction(), execution: Execution[Any] = CurrentExecution()) -> None:
        await connection.execute("INSERT INTO effect VALUES (%s, %s, '')", (docket.name, execution.id))
        tried.append(connection.info.backend_pid)
        if len(tried) == 1:
            await connection.execute("SET idle_in_transaction_session_timeout = 100")
            await eventually(lambda: not is_there(postgres_url, tried[0]))

    execution = await docket.add(linger)()
    async with Worker(docket) as worker:
        await worker.run_until_finished()
    assert len(tried) == 2
    assert await states(docket) == {State.COMPLETED: 1}
    assert await effects(postgres_url, docket) == {execution.id: 1}
    assert (await docket.engine.find(RunQuery(limit=1))).items[0].attempt == 1


def is_there(url: str, pid: int) -> bool:
    with psycopg.connect(url) as admin:
        return admin.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone() is not None


async def test_a_task_cannot_commit_by_itself(docket: Docket) -> None:
    seen: list[str] = []

    async def hasty(connection: Any = TaskTransaction()) -> None:
        for end in (connection.commit, connection.rollback):
            with pytest.raises(UsageError) as refused:
                await end()
            seen.append(str(refused.value))
        async with connection.transaction():
            await connection.execute("INSERT INTO effect VALUES ('hasty', 'hasty', '')")
        raise ValueError("the savepoint above counts no more than the rest")

    await docket.add(hasty)()
    async with Worker(docket) as worker:
        await worker.run_until_finished()
    assert len(seen) == 2


async def test_what_a_zombie_wrote_is_rolled_back(postgres_url: str, docket: Docket) -> None:
    """Its lease lapsed while it wrote, another took the run over, and both come to their end."""
    clock = VirtualClock()
    async with PostgresEngine(postgres_url, docket.name, clock=clock) as engine:
        for n in range(100):
            await engine.schedule([NewRun(new_id(), f"{n}", "task")])
            zombie = (await engine.claim("zombie", 1, lease=LEASE)).claims[0]
            held = await engine.transaction()
            await write(held.connection, docket, zombie)
            clock.jump(2 * LEASE)
            heir = (await engine.claim("heir", 1, lease=LEASE)).claims[0]
            taken = await engine.transaction()
            await write(taken.connection, docket, heir)
            ends = [(held, zombie, Finished.FENCED), (taken, heir, Finished.DONE)]
            for transaction, claim, expected in random.sample(ends, 2):
                assert await transaction.finish(Settle(claim, State.COMPLETED)) is expected
    assert set((await effects(postgres_url, docket)).values()) == {1}
    assert len(await effects(postgres_url, docket)) == 100


async def write(connection: Any, docket: Docket, claim: Claim) -> None:
    await connection.execute("INSERT INTO effect VALUES (%s, %s, '')", (docket.name, claim.id))


async def test_every_effect_is_there_once_though_connections_are_killed(docket: Docket, postgres_url: str) -> None:
    executions = await docket.add_many(docket.call(leave_effect)(random.uniform(0, 0.03)) for _ in range(300))
    docket.register(leave_effect)
    stop = asyncio.Event()
    worker = Worker(
        docket, concurrency=20, redelivery_timeout=timedelta(seconds=5), reconnection_delay=timedelta(milliseconds=20)
    )
    async with worker:
        running = asyncio.create_task(worker.run_forever(), name="worker")
        killing = asyncio.create_task(kill_backends(postgres_url, stop), name="killer")
        await until_over(docket, 300)
        stop.set()
        ended = await killing
        running.cancel()
        await asyncio.wait([running])
    assert ended > 20
    assert await effects(postgres_url, docket) == {execution.id: 2 for execution in executions}


async def test_every_effect_is_there_once_though_workers_are_killed(docket: Docket, postgres_url: str) -> None:
    executions = await docket.add_many(docket.call(leave_effect)(random.uniform(0, 0.1)) for _ in range(200))
    workers = [start_worker(docket.name, postgres_url) for _ in range(2)]
    try:
        for _ in range(6):
            await some_effects_more(postgres_url, docket)
            victim = workers.pop(0)
            victim.kill()
            victim.wait()
            workers.append(start_worker(docket.name, postgres_url))
        await until_over(docket, 200)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    runs = {run.id: run for run in await docket.engine.find(RunQuery(limit=1000))}
    ids = [execution.id or "" for execution in executions]
    completed = [each for each in ids if runs[each].state is State.COMPLETED]
    assert await effects(postgres_url, docket) == dict.fromkeys(completed, 2)
    # The others were in hand each time that a worker died.
    assert all(runs[each].crashes == 3 for each in ids if each not in completed)
    assert len(completed) > 150


def start_worker(name: str, url: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "tests.engines.postgres.effects", url, name], cwd=ROOT)


async def some_effects_more(url: str, docket: Docket) -> None:
    wanted = min(len(await effects(url, docket)) + 5, 150)

    async def are_there() -> bool:
        return len(await effects(url, docket)) >= wanted

    await eventually(are_there)
