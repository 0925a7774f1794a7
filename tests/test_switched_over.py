"""What larger programs do with docket, done with Dovetail: servers of tools, and of services that come again."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from uuid import UUID, uuid4

import pytest

from dovetail import (
    CurrentDocket,
    CurrentWorker,
    Depends,
    Docket,
    ExecutionCancelled,
    ExecutionState,
    Logged,
    Perpetual,
    Progress,
    Retry,
    TaskKey,
    UsageError,
    Worker,
)
from dovetail.dependencies import current_execution, get_single_dependency_parameter_of_type
from tests.waiting import eventually, soon

TOOL = "tool:add@1"
SECOND = timedelta(seconds=1)


@asynccontextmanager
async def serving(docket: Docket, **settings: Any) -> AsyncIterator[Worker]:
    """A worker in the background of a server, ended as servers end it: by cancelling what runs it."""
    async with Worker(docket, **settings) as worker:
        running = asyncio.create_task(worker.run_forever())
        try:
            yield worker
        finally:
            running.cancel()
            await soon(running)


def reentrant(tool: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """A wrapper that looks like what it wraps."""

    @functools.wraps(tool)
    async def run(*args: Any, **kwargs: Any) -> dict[str, Any]:
        return {"content": await tool(*args, **kwargs)}

    return run


async def add(first: int, second: int, progress: Progress = Progress()) -> int:
    await progress.set_total(2)
    await progress.increment(1)
    await progress.set_message("adding")
    return first + second


# A server of tools


async def test_a_tool_is_registered_under_a_name_and_called_by_it(docket: Docket):
    docket.register(reentrant(add), names=[TOOL])
    async with serving(docket, concurrency=10, minimum_check_interval=timedelta(milliseconds=50)):
        await docket.add(TOOL, key="anon:1:tool")(first=1, second=2)
        execution = await docket.get_execution("anon:1:tool")
        assert execution is not None
        assert await soon(execution.get_result()) == {"content": 3}
        await execution.sync()
        assert execution.state == ExecutionState.COMPLETED
        assert await execution.get_result(timeout=timedelta(seconds=0)) == {"content": 3}


async def test_the_whole_of_the_arguments_may_be_one_of_them(docket: Docket):
    async def run(arguments: dict[str, Any]) -> list[str]:
        return sorted(arguments)

    docket.register(run, names=["tool:run@"])
    async with serving(docket):
        execution = await docket.add("tool:run@")({"b": 1, "a": [2]})
        assert await soon(execution.get_result()) == ["a", "b"]


async def test_a_failure_is_told_to_one_who_has_no_time_to_wait(docket: Docket):
    async def fail() -> None:
        raise ValueError("protocol fault")

    async with serving(docket):
        added = await docket.add(fail, key="failing")()
        with pytest.raises(ValueError, match="protocol fault"):
            await soon(added.get_result())
        execution = await docket.get_execution("failing")
        assert execution is not None
        assert execution.state == ExecutionState.FAILED
        with pytest.raises(ValueError, match="protocol fault"):
            await execution.get_result(timeout=timedelta(seconds=0))


async def test_what_surrounds_every_task_sees_its_key(docket: Docket):
    restored: list[str] = []

    async def restore(key: str = TaskKey()) -> None:
        restored.append(key)

    async def whoami(worker: Worker = CurrentWorker()) -> str:
        return f"{current_execution.get().key} on {worker.name}"

    async with serving(docket, name="w", dependencies=[Depends(restore)]):
        execution = await docket.add(whoami, key="auth:ann:1")()
        assert await soon(execution.get_result()) == "auth:ann:1 on w"
    assert restored == ["auth:ann:1"]
    with pytest.raises(LookupError):
        current_execution.get()


async def test_a_body_reports_through_its_execution_and_notes_things_on_it(docket: Docket):
    reported, seen = asyncio.Event(), asyncio.Event()

    async def report() -> float:
        execution = current_execution.get()
        execution.noted = 0.5  # pyright: ignore[reportAttributeAccessIssue]
        await execution.progress.set_total(10)
        await execution.progress.increment(5)
        await execution.progress.set_message("half of it")
        reported.set()
        await seen.wait()
        return current_execution.get().noted  # pyright: ignore[reportAttributeAccessIssue]

    async with serving(docket):
        added = await docket.add(report, key="reporting")()
        await soon(reported.wait())

        async def message() -> bool:
            execution = await docket.get_execution("reporting")
            return execution is not None and execution.progress.message == "half of it"

        await eventually(message)
        seen.set()
        assert await soon(added.get_result()) == 0.5


async def test_a_task_is_cancelled_by_its_key(docket: Docket):
    started = asyncio.Event()

    async def wait() -> None:
        started.set()
        await asyncio.Event().wait()

    async with serving(docket):
        execution = await docket.add(wait, key="waiting")()
        await soon(started.wait())
        await docket.cancel(execution.key)
        with pytest.raises(ExecutionCancelled):
            await soon(execution.get_result())


async def test_state_of_ones_own_is_kept_beside_a_docket_in_redis_or_memory(url: str):
    async with Docket("tools", url, credential_provider=None) as docket:
        if url.startswith("postgres"):
            with pytest.raises(UsageError):
                docket.redis()
            return
        await keep_state(docket)


async def keep_state(docket: Docket) -> None:
    async with docket.redis() as redis:
        ttl = int(docket.execution_ttl.total_seconds()) + 900
        meta, inputs = docket.key("tools:task:1"), docket.key("tools:task:1:inputs")
        assert await redis.set(meta, "auth:ann:1", ex=ttl, nx=True)
        assert not await redis.set(meta, "another", nx=True)
        assert await redis.mget(meta, docket.key("none")) == [b"auth:ann:1", None]
        await redis.hset(inputs, "question", "name?")
        assert await redis.hgetall(inputs) == {b"question": b"name?"}
        assert await redis.hdel(inputs, "question")
        await redis.expire(meta, 5)
        assert await redis.ttl(meta) <= 5
        assert await redis.exists(meta)
        assert await redis.delete(meta)
        assert await redis.get(meta) is None


# A server with services that come again


class Database:
    """What a provider gives."""


def provide_database() -> Database:
    return Database()


async def mark_late(run_id: Annotated[UUID, Logged], *, database: Database = Depends(provide_database)) -> None:
    marked.append(run_id)


async def delete_logs(
    *,
    database: Database = Depends(provide_database),
    run_id: UUID,
    retry: Retry = Retry(attempts=5, delay=timedelta(milliseconds=1)),
) -> None:
    if retry.attempt < 3:
        raise ConnectionError("locked")
    marked.append(run_id)


async def monitor(
    docket: Docket = CurrentDocket(),
    database: Database = Depends(provide_database),
    perpetual: Perpetual = Perpetual(automatic=True, every=timedelta(milliseconds=5)),
) -> None:
    for run_id in LATE:
        await docket.add(mark_late, key=f"mark-late:{run_id}")(run_id)


LATE = [uuid4(), uuid4()]
marked: list[UUID] = []
task_functions = [mark_late, delete_logs]


@pytest.fixture
async def services(url: str) -> AsyncIterator[Docket]:
    marked.clear()
    async with Docket(name="services", url=url, execution_ttl=timedelta(0)) as docket:
        yield docket


async def test_a_service_finds_work_and_floods_the_docket_with_it(services: Docket):
    async with serving(services):
        services.register_collection("tests.test_switched_over:task_functions")
        services.register(monitor)
        perpetual = get_single_dependency_parameter_of_type(monitor, Perpetual)
        assert perpetual is not None
        assert perpetual.every == timedelta(milliseconds=5)
        await services.add(monitor, key=monitor.__name__)()
        await eventually(lambda: set(LATE) <= set(marked) and len(marked) > len(LATE))  # it came again


async def test_a_deletion_is_tried_again_under_its_key(services: Docket):
    run_id = uuid4()
    async with serving(services):
        await services.add(delete_logs, key=f"delete-logs:{run_id}")(run_id=run_id)
        await eventually(lambda: marked == [run_id])


async def test_a_check_is_put_off_by_replacing_it(services: Docket):
    run_id = uuid4()
    later = datetime.now(UTC) + timedelta(hours=1)
    await services.replace(mark_late, key=f"check:{run_id}", when=later)(run_id)
    await services.replace(mark_late, key=f"check:{run_id}", when=datetime.now(UTC) - SECOND)(run_id=run_id)
    async with serving(services):
        await eventually(lambda: marked == [run_id])
    assert await services.get_execution(f"check:{run_id}") is None  # nothing is kept of it


async def test_an_offer_is_repeated_until_it_is_taken_up_and_cancelled(services: Docket):
    offers: list[str] = []

    async def offer(letter: str, perpetual: Perpetual = Perpetual()) -> None:
        offers.append(letter)
        perpetual.after(timedelta(milliseconds=5) if len(offers) < 3 else timedelta(hours=1))

    async def is_gone() -> bool:
        return await services.get_execution("delivery:1") is None

    async with serving(services, concurrency=100):
        await services.add(offer, key="delivery:1")("a letter")
        await services.add(offer, key="delivery:1")("the same once more")
        await eventually(lambda: len(offers) == 3)
        await services.cancel("delivery:1")
        await eventually(is_gone)
    assert offers == ["a letter"] * 3
