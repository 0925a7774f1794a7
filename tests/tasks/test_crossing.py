"""What a task in a process of its own must be: refused when it is registered, with a reason."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest

from dovetail import (
    CurrentDocket,
    CurrentWorker,
    Dependency,
    Depends,
    Docket,
    TaskTransaction,
    UsageError,
    Worker,
    task,
)
from dovetail.errors import CannotCross, InvalidArgument
from dovetail.tasks import Task
from tests import abroad


class WithLifecycle(Dependency[int]):
    @classmethod
    def worker_lifecycle(cls, docket: Docket, worker: Worker) -> Any:
        @asynccontextmanager
        async def around() -> AsyncIterator[None]:
            yield

        return around()

    async def __aenter__(self) -> int:
        return 1


class Around(Dependency[int]):
    async def __aenter__(self) -> int:
        return 1


def through(docket: Docket = CurrentDocket()) -> str:
    return docket.name


@task(executor="process")
def asks_for_the_docket(docket: Docket = CurrentDocket()) -> None: ...


@task(executor="process")
def asks_for_the_worker(worker: Worker = CurrentWorker()) -> None: ...


@task(executor="process")
def asks_for_a_transaction(connection: Any = TaskTransaction()) -> None: ...


@task(executor="process")
def asks_by_way_of_another(name: str = Depends(through)) -> None: ...


@task(executor="process")
def asks_for_a_lifecycle(number: int = WithLifecycle()) -> None: ...  # type: ignore[assignment]


@task(executor="process")
def has_it_in_its_metadata(number: Annotated[int, Around()]) -> None: ...


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (asks_for_the_docket, r"'docket' asks for CurrentDocket\(\)"),
        (asks_for_the_worker, r"'worker' asks for CurrentWorker\(\)"),
        (asks_for_a_transaction, r"'connection' asks for TaskTransaction\(\)"),
        (asks_by_way_of_another, r"'name' asks for CurrentDocket\(\)"),
        (asks_for_a_lifecycle, "WithLifecycle, which is set up in the worker's own process"),
        (has_it_in_its_metadata, "make it the default"),
    ],
)
def test_what_only_the_worker_has_is_refused(function: Callable[..., Any], reason: str):
    with pytest.raises(CannotCross, match=f"task '{function.__name__}': .*{reason}"):
        Docket(url="memory://").register(function)


def test_a_function_within_another_is_refused():
    @task(executor="process")
    def inner() -> None: ...

    with pytest.raises(CannotCross, match="defined within a function"):
        Task.of(inner)


def test_a_lambda_is_refused():
    with pytest.raises(CannotCross, match="define it in a module"):
        Task.of(task(executor="process")(lambda: None))


def test_a_function_of_the_program_that_was_started_is_refused():
    def stray() -> None: ...

    stray.__module__, stray.__qualname__ = "__main__", "stray"
    with pytest.raises(CannotCross, match="put it into a module"):
        Task.of(task(executor="process")(stray))


def test_a_function_whose_name_leads_elsewhere_is_refused():
    def stray() -> None: ...

    stray.__module__, stray.__qualname__ = abroad.__name__, "add"
    with pytest.raises(CannotCross, match="is not this function"):
        Task.of(task(executor="process")(stray))


def test_another_executor_is_refused():
    with pytest.raises(InvalidArgument, match="executor must be one of 'process'"):
        task(executor="thread")  # type: ignore[call-overload]


def test_what_can_cross_is_a_task_like_any_other():
    assert Task.of(abroad.ask).declaration.executor == "process"
    assert issubclass(CannotCross, UsageError)
