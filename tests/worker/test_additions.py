"""What a worker adds to its tasks: dependencies around each of them, and what it enters for those that they use."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Annotated, Any, ClassVar

import pytest

from dovetail import (
    Behavior,
    ConcurrencyLimit,
    CurrentWorker,
    Dependency,
    Depends,
    Docket,
    ExecutionState,
    Perpetual,
    Retry,
    Shared,
    TaskArgument,
    TaskKey,
    Timeout,
    Worker,
)
from dovetail.dependencies import AdmissionBlocked, current_execution
from dovetail.errors import InvalidArgument, InvalidType
from tests.by_hand import finish, run_of

MakeWorker = Callable[..., Worker]
events: list[Any] = []


@pytest.fixture(autouse=True)
def no_events() -> None:
    events.clear()


def noting(name: str) -> Any:
    """A dependency that notes when it is entered and left."""

    @contextmanager
    def noted() -> Iterator[str]:
        events.append(f"+{name}")
        yield name
        events.append(f"-{name}")

    return Depends(noted)


async def body() -> str:
    events.append("body")
    return "done"


# Around every task


@pytest.mark.parametrize("of", [lambda a, b: {"a": a, "b": b}, lambda a, b: [a, b], lambda a, b: (a, b)])
async def test_they_are_entered_in_order_and_left_in_reverse(docket: Docket, make_worker: MakeWorker, of: Any):
    execution = await docket.add(body)()
    await finish(make_worker(dependencies=of(noting("a"), noting("b"))))
    assert events == ["+a", "+b", "body", "-b", "-a"]
    assert await execution.get_result() == "done"


async def test_those_of_the_task_come_after(docket: Docket, make_worker: MakeWorker):
    async def task(own: Any = noting("own")) -> None:
        events.append(own)

    await docket.add(task)()
    await finish(make_worker(dependencies={"a": noting("a")}))
    assert events == ["+a", "+own", "own", "-own", "-a"]


async def test_every_run_has_them_anew(docket: Docket, make_worker: MakeWorker):
    for _ in range(2):
        await docket.add(body)()
    await finish(make_worker(dependencies=[noting("a")], concurrency=1))
    assert events == ["+a", "body", "-a", "+a", "body", "-a"]


async def test_they_are_left_when_the_body_fails(docket: Docket, make_worker: MakeWorker):
    @contextmanager
    def watching() -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            events.append(str(error))
            raise

    async def fail() -> None:
        raise ValueError("no")

    execution = await docket.add(fail)()
    await finish(make_worker(dependencies=[Depends(watching)]))
    await execution.sync()
    assert (events, execution.error) == (["no"], "ValueError: no")


async def test_one_that_fails_fails_the_run_and_the_body_does_not_begin(docket: Docket, make_worker: MakeWorker):
    def broken() -> None:
        raise LookupError("no database")

    execution = await docket.add(body)()
    await finish(make_worker(dependencies={"first": noting("first"), "database": Depends(broken)}))
    await execution.sync()
    assert execution.state is ExecutionState.FAILED
    assert "database" in (execution.error or "")
    assert events == ["+first"]


async def test_what_a_factory_made_is_shared_with_the_task(docket: Docket, make_worker: MakeWorker):
    made: list[object] = []

    def connect() -> object:
        made.append(object())
        return made[-1]

    async def task(database: Any = Depends(connect)) -> bool:
        return database is made[0]

    execution = await docket.add(task)()
    await finish(make_worker(dependencies={"database_of_worker": Depends(connect)}))
    assert await execution.get_result() is True
    assert len(made) == 1


async def test_they_know_the_run_and_its_worker(docket: Docket, make_worker: MakeWorker):
    def know(
        key: str = TaskKey(), customer: Any = TaskArgument("customer", optional=True), worker: Any = CurrentWorker()
    ) -> None:
        events.append((key, customer, worker.name))

    async def task(customer: int) -> None: ...

    await docket.add(task, key="k")(7)
    await docket.add(body, key="b")()
    await finish(make_worker(dependencies=[Depends(know)], concurrency=1))
    assert sorted(each for each in events if each != "body") == [("b", None, "worker"), ("k", 7, "worker")]


async def test_shared_ones_are_made_once(docket: Docket, make_worker: MakeWorker):
    @asynccontextmanager
    async def pool() -> AsyncIterator[str]:
        events.append("+pool")
        yield "pool"
        events.append("-pool")

    for _ in range(2):
        await docket.add(body)()
    await finish(make_worker(dependencies=[Shared(pool)]))
    assert events == ["+pool", "body", "body", "-pool"]


async def test_the_fallback_has_them_too(url: str, docket: Docket, make_worker: MakeWorker):
    async def caught(*args: Any, **kwargs: Any) -> str:
        events.append((args, kwargs))
        return "caught"

    async with Docket("tests", url) as other:
        await other.add(body, key="k")()
    docket.tasks.pop("body", None)
    await finish(make_worker(fallback_task=caught, dependencies=[noting("a")]))
    assert events == ["+a", ((), {}), "-a"]


# Whatever the body's parameters are


async def positional_only(a: int, b: int = 2, /) -> Any:
    return [a, b]


async def surplus(a: int, *rest: int, c: int = 0, **others: int) -> Any:
    return [a, list(rest), c, others]


def plain(a: int, b: int = 2) -> Any:
    return [a, b]


async def with_own(a: int, own: Any = noting("own"), *, retry: Retry = Retry(attempts=2)) -> Any:
    return [a, own, retry.attempts]


async def none_at_all() -> Any:
    return []


@pytest.mark.parametrize(
    ("task", "args", "kwargs", "result"),
    [
        (positional_only, (1,), {}, [1, 2]),
        (positional_only, (1, 5), {}, [1, 5]),
        (surplus, (1,), {}, [1, [], 0, {}]),
        (surplus, (1, 2, 3), {"c": 4, "d": 5}, [1, [2, 3], 4, {"d": 5}]),
        (plain, (1,), {}, [1, 2]),
        (plain, (), {"b": 1, "a": 2}, [2, 1]),
        (with_own, (1,), {}, [1, "own", 2]),
        (with_own, (), {"a": 1, "own": "mine"}, [1, "mine", 2]),
        (with_own, (1, "mine"), {}, [1, "mine", 2]),
        (none_at_all, (), {}, []),
    ],
)
async def test_the_body_receives_what_it_would_without_them(
    docket: Docket, make_worker: MakeWorker, task: Any, args: Any, kwargs: Any, result: Any
):
    execution = await docket.add(task)(*args, **kwargs)
    await finish(make_worker(dependencies={"a": noting("worker's"), "other": noting("other")}))
    assert await execution.get_result() == result
    assert events[0] == "+worker's"


async def test_a_call_that_does_not_fit_any_more_fails_as_it_would_without_them(
    docket: Docket, make_worker: MakeWorker
):
    async def without_arguments() -> None: ...

    docket.register(without_arguments, names=["task"])
    execution = await docket.add("task")()
    docket.register(positional_only, names=["task"])
    await finish(make_worker(dependencies=[noting("a")]))
    await execution.sync()
    assert (execution.error or "").startswith("TypeError")


@pytest.mark.parametrize("name", ["a", "worker_a"])
async def test_a_name_that_a_parameter_has_too_means_something_else(docket: Docket, make_worker: MakeWorker, name: str):
    async def task(a: int, worker_a: int = 5) -> Any:
        return [a, worker_a]

    execution = await docket.add(task)(1)
    await finish(make_worker(dependencies={name: noting("worker's")}))
    assert await execution.get_result() == [1, 5]
    assert events == ["+worker's", "-worker's"]


async def test_metadata_of_the_task_still_counts(docket: Docket, make_worker: MakeWorker):
    seen: list[Any] = []

    class Around(Behavior):
        async def around(self, proceed: Any) -> Any:
            seen.append(self.parameter)
            return await proceed()

    async def task(a: Annotated[int, "placeholder"]) -> int:
        return a

    task.__annotations__["a"] = Annotated[int, Around()]
    execution = await docket.add(task)(3)
    await finish(make_worker(dependencies=[noting("a")]))
    assert (await execution.get_result(), seen) == (3, ["a"])


# Behaviors


async def test_a_behavior_of_the_worker_is_one_of_every_task(docket: Docket, make_worker: MakeWorker):
    attempts: list[int] = []

    async def flaky() -> str:
        attempts.append(1)
        if len(attempts) < 3:
            raise ValueError
        return "in the end"

    execution = await docket.add(flaky)()
    await finish(make_worker(dependencies={"retry": Retry(attempts=3)}))
    assert await execution.get_result() == "in the end"


async def test_a_kind_that_may_be_there_once_is_refused_beside_the_tasks_own(docket: Docket, make_worker: MakeWorker):
    async def task(timeout: Timeout = Timeout(timedelta(seconds=5))) -> None:
        events.append("body")

    execution = await docket.add(task)()
    other = await docket.add(body)()
    await finish(make_worker(dependencies={"limit_of_time": Timeout(timedelta(seconds=1))}))
    await execution.sync()
    assert execution.state is ExecutionState.FAILED
    assert execution.error == (
        "ConflictingBehaviors: task 'task': Only one Timeout dependency is allowed, but found: Timeout (worker"
        " dependency 'limit_of_time'), Timeout (parameter 'timeout')"
    )
    assert await other.get_result() == "done"
    assert events == ["body"]


async def test_a_rule_for_scheduling_is_told_to_be_of_no_use(docket: Docket, caplog: pytest.LogCaptureFixture):
    Worker(docket, dependencies={"limit": ConcurrencyLimit(1)})
    assert "ConcurrencyLimit is a rule for scheduling" in caplog.text


async def test_one_that_refuses_admission_puts_the_run_off(docket: Docket, make_worker: MakeWorker):
    refused: list[int] = []

    def guard() -> None:
        refused.append(1)
        if len(refused) < 3:
            raise AdmissionBlocked(current_execution.get(), retry_delay=timedelta())

    execution = await docket.add(body)()
    await finish(make_worker(dependencies=[Depends(guard)]))
    assert await execution.get_result() == "done"
    assert (events, (await run_of(docket, key=execution.key)).attempt) == (["body"], 1)


# How they are given


@pytest.mark.parametrize("name", ["__mine", "__worker_dep_0__", "not a name", "", "1st", 5])
def test_a_name_that_cannot_be_used_is_refused(docket: Docket, name: str):
    with pytest.raises(InvalidArgument, match="dependencies: the name"):
        Worker(docket, dependencies={name: Depends(body)})


@pytest.mark.parametrize("value", [body, Retry, 5, None, "module:name"])
@pytest.mark.parametrize("of", [lambda value: {"mine": value}, lambda value: [value]], ids=["mapping", "sequence"])
def test_what_is_no_dependency_is_refused(docket: Docket, of: Any, value: Any):
    with pytest.raises(InvalidType, match=r"dependencies: '(mine|__worker_dep_0__)' must be a Dependency"):
        Worker(docket, dependencies=of(value))


@pytest.mark.parametrize("value", [5, body, Retry(), "a text", b"bytes", {Retry}])
def test_what_is_neither_a_mapping_nor_a_sequence_is_refused(docket: Docket, value: Any):
    with pytest.raises(InvalidType, match="dependencies"):
        Worker(docket, dependencies=value)


@pytest.mark.parametrize("none", [None, {}, []])
async def test_none_are_none(docket: Docket, make_worker: MakeWorker, none: Any):
    worker = make_worker(dependencies=none)
    assert worker.dependencies == {}


def test_those_in_a_sequence_are_numbered(docket: Docket):
    worker = Worker(docket, dependencies=[Retry(), Depends(body)])
    assert list(worker.dependencies) == ["__worker_dep_0__", "__worker_dep_1__"]


# Lifecycles


class Living(Dependency[str]):
    """A dependency that a worker enters for as long as it runs."""

    name: ClassVar[str] = "living"

    @classmethod
    @asynccontextmanager
    async def worker_lifecycle(cls, docket: Docket, worker: Worker) -> AsyncIterator[None]:
        events.append(f"+{cls.name} {docket.name} {worker.name}")
        try:
            yield
        finally:
            events.append(f"-{cls.name}")

    async def __aenter__(self) -> str:
        events.append(self.name)
        return self.name


class Other(Living):
    name = "other"


class Unconcerned(Dependency[str]):
    @classmethod
    def worker_lifecycle(cls, docket: Docket, worker: Worker) -> None:
        return None

    async def __aenter__(self) -> str:
        return "unconcerned"


async def test_a_lifecycle_is_around_all_runs_once_for_its_kind(docket: Docket, make_worker: MakeWorker):
    async def one(living: str = Living()) -> None: ...  # type: ignore[assignment]
    async def two(living: str = Living(), again: str = Living()) -> None: ...  # type: ignore[assignment]

    await docket.add(one)()
    await docket.add(two)()
    await finish(make_worker())
    assert events == ["+living tests worker", "living", "living", "living", "-living"]


async def test_lifecycles_are_left_in_reverse(docket: Docket, make_worker: MakeWorker):
    async def task(other: str = Other()) -> None: ...  # type: ignore[assignment]

    docket.register(task)
    await finish(make_worker(dependencies=[Living()]))
    assert events == ["+living tests worker", "+other tests worker", "-other", "-living"]


async def test_a_lifecycle_of_one_in_metadata_is_entered(docket: Docket, make_worker: MakeWorker):
    async def task(a: Annotated[int, Living()] = 0) -> None: ...

    docket.register(task)
    await finish(make_worker())
    assert events == ["+living tests worker", "-living"]


async def test_a_lifecycle_is_left_when_runs_fail(docket: Docket, make_worker: MakeWorker):
    async def fail(living: str = Living()) -> None:  # type: ignore[assignment]
        raise ValueError

    await docket.add(fail)()
    await finish(make_worker())
    assert events == ["+living tests worker", "living", "-living"]


async def test_a_kind_may_have_no_lifecycle_after_all(docket: Docket, make_worker: MakeWorker):
    async def task(value: str = Unconcerned()) -> str:  # type: ignore[assignment]
        return value

    execution = await docket.add(task)()
    await finish(make_worker())
    assert await execution.get_result() == "unconcerned"


async def test_a_lifecycle_that_cannot_begin_ends_the_worker_with_its_error(docket: Docket, make_worker: MakeWorker):
    class Broken(Living):
        @classmethod
        @asynccontextmanager
        async def worker_lifecycle(cls, docket: Docket, worker: Worker) -> AsyncIterator[None]:
            raise LookupError("no broker")
            yield

    async def task(other: str = Other(), broken: str = Broken()) -> None: ...  # type: ignore[assignment]

    await docket.add(task, key="k")()
    with pytest.raises(LookupError, match="no broker"):
        await finish(make_worker())
    assert events == ["+other tests worker", "-other"]
    assert (await run_of(docket, key="k")).state is ExecutionState.QUEUED


async def test_a_behavior_can_have_a_lifecycle(docket: Docket, make_worker: MakeWorker):
    class Watching(Perpetual):
        @classmethod
        @asynccontextmanager
        async def worker_lifecycle(cls, docket: Docket, worker: Worker) -> AsyncIterator[None]:
            events.append("+")
            yield
            events.append("-")

    async def task(watching: Watching = Watching()) -> None:
        watching.cancel()
        events.append("body")

    await docket.add(task)()
    await finish(make_worker())
    assert events == ["+", "body", "-"]


async def test_nothing_that_a_worker_adds_shows_in_its_lines(
    docket: Docket, make_worker: MakeWorker, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    await docket.add(body, key="k")()
    await finish(make_worker(dependencies={"addition": noting("a")}))
    assert "body(){k}" in caplog.text
    assert "addition" not in caplog.text
