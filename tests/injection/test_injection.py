"""Dependencies: what a task's parameters receive, around its body."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Annotated, Any

import pytest

from dovetail import (
    CallArgument,
    CurrentDocket,
    CurrentExecution,
    CurrentWorker,
    CycleError,
    Dependency,
    Depends,
    Docket,
    Execution,
    ExecutionState,
    Perpetual,
    Provided,
    Retry,
    Shared,
    TaskArgument,
    TaskKey,
    TaskLogger,
    UsageError,
    Worker,
)
from dovetail.worker.setting import Setting
from tests.by_hand import at_work, finish, run_of
from tests.waiting import soon

MakeWorker = Callable[..., Worker]
Run = Callable[..., Any]
events: list[str] = []


@pytest.fixture(autouse=True)
def no_events() -> None:
    events.clear()


@pytest.fixture
def run(docket: Docket, make_worker: MakeWorker) -> Run:
    """Run a task with a worker of its own, and give its result."""

    async def run(function: Any, *args: Any, **kwargs: Any) -> Any:
        execution = await docket.add(function)(*args, **kwargs)
        await finish(make_worker())
        return await execution.get_result()

    return run


def plain() -> str:
    return "plain"


async def asynchronous() -> str:
    return "asynchronous"


@contextmanager
def managed() -> Iterator[str]:
    events.append("managed begins")
    yield "managed"
    events.append("managed ends")


@asynccontextmanager
async def managed_asynchronously() -> AsyncIterator[str]:
    events.append("asynchronous begins")
    yield "managed asynchronously"
    events.append("asynchronous ends")


# Factories


@pytest.mark.parametrize(
    ("factory", "value"),
    [
        (plain, "plain"),
        (asynchronous, "asynchronous"),
        (managed, "managed"),
        (managed_asynchronously, "managed asynchronously"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
async def test_a_parameter_receives_what_its_factory_gives(run: Run, factory: Any, value: str, is_async: bool):
    async def task(given: str = Depends(factory)) -> str:
        return given

    def plain_task(given: str = Depends(factory)) -> str:
        return given

    assert await run(task if is_async else plain_task) == value


async def test_what_a_caller_gives_by_name_wins_and_the_factory_is_not_called(run: Run):
    async def task(given: str = Depends(managed)) -> str:
        return given

    assert await run(task, given="mine") == "mine"
    assert events == []


async def test_what_a_caller_gives_by_position_wins_and_the_factory_is_not_called(run: Run):
    async def task(first: int, given: str = Depends(managed)) -> str:
        return given

    assert await run(task, 1, "mine") == "mine"
    assert events == []


async def test_arguments_by_position_and_dependencies_go_together(run: Run):
    async def task(first: int, second: int = 2, given: str = Depends(plain), *, third: int = 3) -> list[Any]:
        return [first, second, given, third]

    assert await run(task, 10, 20, third=30) == [10, 20, "plain", 30]


async def test_arguments_beyond_the_parameters_take_no_dependency_away(run: Run):
    async def task(*items: int, one: Any = Depends(lambda: 1), retry: Retry = Retry(attempts=2)) -> Any:
        if retry.attempt == 1:
            raise ValueError
        return [list(items), one, retry.attempts]

    assert await run(task, 1, 2, 3) == [[1, 2, 3], 1, 2]


async def test_a_factory_may_have_dependencies_of_its_own(run: Run):
    async def outer(inner: str = Depends(asynchronous), other: str = Depends(managed)) -> str:
        return f"{inner} and {other}"

    def outermost(below: str = Depends(outer)) -> str:
        return f"({below})"

    async def task(given: str = Depends(outermost)) -> str:
        return given

    assert await run(task) == "(asynchronous and managed)"


async def test_a_factory_is_called_once_for_each_attempt(run: Run):
    def fresh() -> object:
        events.append("made")
        return object()

    def through(made: object = Depends(fresh)) -> object:
        return made

    async def task(
        one: object = Depends(fresh), two: object = Depends(fresh), three: object = Depends(through)
    ) -> bool:
        return one is two is three

    assert await run(task) is True
    assert events == ["made"]


async def test_every_attempt_has_dependencies_of_its_own(run: Run):
    made: list[object] = []

    def fresh() -> object:
        made.append(object())
        return made[-1]

    async def task(given: object = Depends(fresh), retry: Retry = Retry(attempts=3)) -> int:
        if retry.attempt < 3:
            raise ValueError
        return len(made)

    assert await run(task) == 3


async def test_runs_side_by_side_have_dependencies_of_their_own(docket: Docket, worker: Worker):
    meeting = asyncio.Barrier(3)

    def fresh() -> list[int]:
        return []

    async def task(number: int, mine: list[int] = Depends(fresh)) -> list[int]:
        mine.append(number)
        await meeting.wait()
        return mine

    executions = [await docket.add(task)(number) for number in range(3)]
    await finish(worker)
    assert [await execution.get_result() for execution in executions] == [[0], [1], [2]]


async def test_bindings_give_a_factory_its_arguments(run: Run):
    def scaled(amount: int, by: int = 1) -> int:
        return amount * by

    async def task(
        amount: int,
        double: int = Depends(scaled, amount=CallArgument(), by=2),
        triple: int = Depends(scaled, amount=CallArgument(), by=3),
    ) -> list[int]:
        return [double, triple]

    assert await run(task, amount=5) == [10, 15]


async def test_bindings_see_arguments_that_were_given_by_position(run: Run):
    def scaled(amount: int) -> int:
        return amount * 2

    async def task(amount: int, double: int = Depends(scaled, amount=CallArgument("amount"))) -> int:
        return double

    assert await run(task, 5) == 10


async def test_metadata_can_supply_a_value(run: Run):
    async def task(given: Annotated[str, Depends(plain)] = Provided) -> str:
        return given

    task.__annotations__["given"] = Annotated[str, Depends(plain)]
    assert await run(task) == "plain"


class Wrapping(Dependency[None]):
    """Stands around a body and sees the value of the parameter it is declared on."""

    def bind_to_parameter(self, name: str, value: Any) -> Wrapping:
        bound = Wrapping()
        bound.seen = f"{name}={value}"  # type: ignore[attr-defined]
        return bound

    async def __aenter__(self) -> None:
        events.append(f"around {self.seen}")  # type: ignore[attr-defined]


async def test_metadata_that_supplies_nothing_wraps_the_call(run: Run):
    async def task(name: Any) -> str:
        return name

    task.__annotations__["name"] = Annotated[str, Wrapping()]
    assert await run(task, "ann") == "ann"
    assert events == ["around name=ann"]


# Context managers


async def test_managers_end_in_reverse_after_the_body(run: Run):
    async def task(one: str = Depends(managed), two: str = Depends(managed_asynchronously)) -> None:
        events.append("body")

    await run(task)
    assert events == ["managed begins", "asynchronous begins", "body", "asynchronous ends", "managed ends"]


@contextmanager
def watchful() -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        events.append(f"saw {type(error).__name__}")
        raise
    finally:
        events.append("ends")


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
async def test_managers_see_what_the_body_raised(docket: Docket, worker: Worker, error: type[BaseException]):
    async def task(manager: None = Depends(watchful)) -> None:
        raise error("no")

    execution = await docket.add(task)()
    await finish(worker)
    await execution.sync()
    assert events == [f"saw {error.__name__}", "ends"]
    assert execution.state is ExecutionState.FAILED


@contextmanager
def forgiving() -> Iterator[None]:
    try:
        yield
    except ValueError:
        events.append("forgave")


async def test_a_manager_that_forgives_does_not_turn_a_failure_into_a_success(docket: Docket, worker: Worker):
    async def task(manager: None = Depends(forgiving)) -> str:
        raise ValueError("no")

    execution = await docket.add(task)()
    await finish(worker)
    await execution.sync()
    assert events == ["forgave"]
    assert execution.state is ExecutionState.FAILED


@contextmanager
def breaking(error: type[BaseException] = ValueError) -> Iterator[str]:
    yield "made"
    events.append("breaks")
    raise error("in teardown")


@pytest.mark.parametrize("error", [ValueError, SystemExit, asyncio.CancelledError])
async def test_an_error_in_teardown_keeps_the_outcome_and_does_not_run_the_body_again(
    docket: Docket, worker: Worker, error: type[BaseException], caplog: pytest.LogCaptureFixture
):
    async def task(
        made: str = Depends(breaking, error=error),
        other: str = Depends(managed),
        retry: Retry = Retry(attempts=4),
    ) -> str:
        events.append("body")
        return "kept"

    execution = await docket.add(task)()
    await finish(worker)
    assert await execution.get_result() == "kept"
    assert events == ["managed begins", "body", "managed ends", "breaks"]
    assert "failed in its teardown" in caplog.text


async def test_an_error_in_teardown_does_not_hide_that_of_the_body(docket: Docket, worker: Worker):
    @contextmanager
    def clumsy() -> Iterator[None]:
        try:
            yield
        finally:
            raise KeyError("in teardown")

    async def task(made: None = Depends(clumsy)) -> None:
        raise ValueError("the body's")

    execution = await docket.add(task)()
    await finish(worker)
    await execution.sync()
    assert execution.error == "ValueError: the body's"


async def test_managers_end_when_the_body_is_cancelled(docket: Docket, worker: Worker):
    started = asyncio.Event()

    async def task(manager: None = Depends(watchful)) -> None:
        started.set()
        await asyncio.Event().wait()

    execution = await docket.add(task)()
    async with at_work(worker):
        await soon(started.wait())
        await docket.cancel(execution.key)
        with pytest.raises(Exception, match="cancelled"):
            await soon(execution.get_result())
    assert events == ["saw CancelledError", "ends"]


# Failures


def failing() -> str:
    raise ValueError("cannot be made")


async def failing_too() -> str:
    raise KeyError("neither can this")


async def test_all_that_cannot_be_made_is_gathered_and_the_body_does_not_run(docket: Docket, worker: Worker):
    async def task(one: str = Depends(failing), fine: str = Depends(managed), two: str = Depends(failing_too)) -> None:
        events.append("body")

    execution = await docket.add(task)()
    await finish(worker)
    run = await run_of(docket, key=execution.key)
    assert run.error is not None
    assert run.error.startswith("ExceptionGroup: Failed to resolve dependencies for parameter(s): one, two")
    assert "cannot be made" in run.errors[-1].failure.traceback
    assert "neither can this" in run.errors[-1].failure.traceback
    assert events == ["managed begins"]


async def test_what_was_made_before_a_failure_is_torn_down(docket: Docket, worker: Worker):
    @contextmanager
    def careful() -> Iterator[None]:
        try:
            yield
        finally:
            events.append("torn down")

    async def task(fine: None = Depends(careful), broken: str = Depends(failing)) -> None: ...

    await docket.add(task)()
    await finish(worker)
    assert events == ["torn down"]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
async def test_a_factory_may_raise_anything(docket: Docket, worker: Worker, error: type[BaseException]):
    def exploding() -> str:
        raise error("boom")

    async def task(made: str = Depends(exploding)) -> None:
        events.append("body")

    execution = await docket.add(task)()
    await finish(worker)
    run = await run_of(docket, key=execution.key)
    assert run.state.is_terminal
    assert run.crashes == 0
    assert events == []


async def test_a_failed_dependency_is_tried_again(docket: Docket, worker: Worker):
    calls: list[int] = []

    def flaky() -> str:
        calls.append(1)
        if len(calls) < 3:
            raise ValueError("not yet")
        return "made"

    async def task(made: str = Depends(flaky), retry: Retry = Retry(attempts=5)) -> str:
        return made

    execution = await docket.add(task)()
    await finish(worker)
    assert await execution.get_result() == "made"


async def test_a_perpetual_task_goes_on_after_a_failed_dependency(docket: Docket, worker: Worker):
    calls: list[int] = []

    def flaky() -> str:
        calls.append(1)
        if len(calls) < 2:
            raise ValueError("not yet")
        return "made"

    async def task(made: str = Depends(flaky), perpetual: Perpetual = Perpetual()) -> str:
        perpetual.cancel()
        return made

    await docket.add(task, key="k")()
    await finish(worker)
    assert (await run_of(docket, key="k")).state == "completed"


# Shared


def counting(name: str) -> Any:
    @asynccontextmanager
    async def made() -> AsyncIterator[object]:
        events.append(f"{name} opens")
        yield object()
        events.append(f"{name} closes")

    return made


async def test_what_is_shared_is_made_once_for_a_worker(docket: Docket, worker: Worker):
    pool = counting("pool")
    seen: set[int] = set()

    async def task(given: object = Shared(pool)) -> None:
        seen.add(id(given))

    async def other_task(given: object = Shared(pool)) -> None:
        seen.add(id(given))

    for _ in range(5):
        await docket.add(task)()
        await docket.add(other_task)()
    await finish(worker)
    assert len(seen) == 1
    assert events == ["pool opens", "pool closes"]


async def test_what_is_shared_is_made_anew_by_the_next_worker(docket: Docket, make_worker: MakeWorker):
    pool = counting("pool")

    async def task(given: object = Shared(pool)) -> None: ...

    for _ in range(2):
        await docket.add(task)()
        await finish(make_worker())
    assert events == ["pool opens", "pool closes"] * 2


async def test_what_is_shared_outlives_one_turn_of_an_entered_worker(docket: Docket, make_worker: MakeWorker):
    pool = counting("pool")

    async def task(given: object = Shared(pool)) -> None: ...

    async with make_worker() as worker:
        await docket.add(task)()
        await finish(worker)
        await docket.add(task)()
        await finish(worker)
        assert events == ["pool opens"]
    assert events == ["pool opens", "pool closes"]


async def test_what_is_shared_is_closed_in_reverse(docket: Docket, worker: Worker):
    one, two = counting("one"), counting("two")

    async def task(first: object = Shared(one), second: object = Shared(two)) -> None: ...

    await docket.add(task)()
    await finish(worker)
    assert events == ["one opens", "two opens", "two closes", "one closes"]


async def test_what_is_shared_may_use_the_docket_and_the_worker(run: Run):
    async def shared(docket: Docket = CurrentDocket(), worker: Worker = CurrentWorker()) -> list[str]:
        return [docket.name, worker.name]

    async def task(given: list[str] = Shared(shared)) -> list[str]:
        return given

    assert await run(task) == ["tests", "worker"]


async def test_runs_side_by_side_make_what_is_shared_once(docket: Docket, worker: Worker):
    async def slow() -> object:
        events.append("made")
        await asyncio.sleep(0.01)
        return object()

    async def task(given: object = Shared(slow)) -> None: ...

    for _ in range(5):
        await docket.add(task)()
    await finish(worker)
    assert events == ["made"]


async def test_two_workers_side_by_side_share_nothing(docket: Docket, make_worker: MakeWorker):
    pool, meeting = counting("pool"), asyncio.Barrier(2)
    seen: set[int] = set()

    async def task(given: object = Shared(pool)) -> None:
        seen.add(id(given))
        await meeting.wait()

    await docket.add(task)()
    await docket.add(task)()
    async with make_worker(name="one", concurrency=1) as one, make_worker(name="two", concurrency=1) as two:
        await soon(asyncio.gather(one.run_until_finished(), two.run_until_finished()))
    assert len(seen) == 2


# What a run knows of itself


async def test_a_task_knows_its_docket_worker_execution_and_key(docket: Docket, worker: Worker):
    seen: list[Any] = []

    async def task(
        a: int,
        here: Docket = CurrentDocket(),
        on: Worker = CurrentWorker(),
        execution: Execution[Any] = CurrentExecution(),
        key: str = TaskKey(),
    ) -> None:
        seen.extend([here, on, execution.key, execution.args, execution.attempt, execution.function_name, key])

    await docket.add(task, key="k")(5)
    await finish(worker)
    assert seen == [docket, worker, "k", (5,), 1, "task", "k"]


async def test_of_two_workers_in_one_program_each_task_knows_its_own(docket: Docket, make_worker: MakeWorker):
    meeting = asyncio.Barrier(2)

    async def task(worker: Worker = CurrentWorker()) -> str:
        await meeting.wait()
        return worker.name

    executions = [await docket.add(task)() for _ in range(2)]
    async with make_worker(name="one", concurrency=1) as one, make_worker(name="two", concurrency=1) as two:
        await soon(asyncio.gather(one.run_until_finished(), two.run_until_finished()))
    for execution in executions:
        await execution.sync()
        assert await execution.get_result() == execution.worker


async def test_of_two_dockets_in_one_program_each_task_knows_its_own(url: str, make_worker: MakeWorker):
    async def task(docket: Docket = CurrentDocket()) -> str:
        return docket.name

    async with Docket("one", url) as one, Docket("two", url) as two:
        executions = [await docket.add(task)() for docket in (one, two)]
        async with make_worker(one) as first, make_worker(two) as second:
            await soon(asyncio.gather(first.run_until_finished(), second.run_until_finished()))
        assert [await execution.get_result() for execution in executions] == ["one", "two"]


async def test_a_task_can_schedule_more_work_on_its_docket(docket: Docket, worker: Worker):
    async def leaf() -> None:
        events.append("leaf")

    async def root(here: Docket = CurrentDocket()) -> None:
        await here.add(leaf)()

    await docket.add(root)()
    await finish(worker)
    assert events == ["leaf"]


async def test_a_logger_names_the_run_in_every_record(docket: Docket, worker: Worker, caplog: pytest.LogCaptureFixture):
    async def task(logger: logging.LoggerAdapter[logging.Logger] = TaskLogger()) -> None:
        logger.info("at work")

    with caplog.at_level(logging.INFO):
        await docket.add(task, key="k")()
        await finish(worker)
    (record,) = [record for record in caplog.records if record.getMessage() == "at work"]
    assert record.name == "dovetail.task.task"
    labels = {name: value for name, value in vars(record).items() if name.startswith("docket.")}
    assert labels["docket.name"] == "tests"
    assert labels["docket.worker"] == "worker"
    assert labels["docket.task"] == "task"
    assert labels["docket.key"] == "k"
    assert labels["docket.attempt"] == 1
    assert "docket.when" in labels


async def test_context_values_work_in_factories(run: Run):
    async def named(key: str = TaskKey(), docket: Docket = CurrentDocket()) -> str:
        return f"{docket.name}/{key}"

    async def task(name: str = Depends(named), key: str = TaskKey()) -> bool:
        return name == f"tests/{key}"

    assert await run(task) is True


async def test_context_values_outside_a_run_say_so():
    async def task(docket: Docket = CurrentDocket()) -> None: ...

    setting = Setting(task)
    with pytest.raises(ExceptionGroup) as caught:
        await setting.up({})
    await setting.down(caught.value)
    (error,) = caught.value.exceptions
    assert isinstance(error, UsageError)
    assert "CurrentDocket()" in str(error)


# Arguments


async def test_a_factory_can_ask_for_an_argument_of_the_task(run: Run):
    def greeting(name: str = TaskArgument(), loud: bool = TaskArgument("shout")) -> str:
        return f"hello {name}".upper() if loud else f"hello {name}"

    async def task(name: str, shout: bool, greeting: str = Depends(greeting)) -> str:
        return greeting

    assert await run(task, "ann", shout=True) == "HELLO ANN"


async def test_a_task_can_ask_for_an_argument_under_another_name(run: Run):
    async def task(name: str, again: str = TaskArgument("name")) -> str:
        return again

    assert await run(task, "ann") == "ann"


async def test_an_argument_that_was_not_given_is_a_key_error(docket: Docket, worker: Worker):
    def asking(name: str = TaskArgument()) -> str:
        return name

    async def task(name: str = "default", given: str = Depends(asking)) -> None: ...

    execution = await docket.add(task)()
    await finish(worker)
    run = await run_of(docket, key=execution.key)
    assert run.state == "failed"
    assert "KeyError" in run.errors[-1].failure.traceback


async def test_an_optional_argument_that_was_not_given_is_none(run: Run):
    def asking(name: str | None = TaskArgument(optional=True)) -> str:
        return f"{name}"

    async def task(name: str = "default", given: str = Depends(asking)) -> str:
        return given

    assert await run(task) == "None"


async def test_a_bare_argument_on_the_task_itself_is_refused(docket: Docket, worker: Worker):
    async def task(name: str = TaskArgument()) -> None: ...

    execution = await docket.add(task)()
    await finish(worker)
    run = await run_of(docket, key=execution.key)
    assert run.state == "failed"
    assert "No parameter name specified" in run.errors[-1].failure.traceback


def test_references_in_a_circle_are_refused(docket: Docket):
    async def task(a: Any = CallArgument("b"), b: Any = CallArgument("a")) -> None: ...

    with pytest.raises(CycleError, match="task 'task': its parameters wait for each other: a -> b -> a"):
        docket.register(task)


def test_a_parameter_that_is_given_by_itself_is_refused(docket: Docket):
    async def task(a: Any = CallArgument()) -> None: ...

    with pytest.raises(UsageError, match="a -> a"):
        docket.register(task)


def test_a_circle_through_factories_is_refused(docket: Docket):
    def shout(word: str = CallArgument("loud")) -> str:
        return word.upper()

    async def task(loud: str = Depends(shout)) -> None: ...

    with pytest.raises(CycleError, match="loud -> loud"):
        docket.register(task)


def test_factories_that_depend_on_each_other_are_refused(docket: Docket):
    def hen(egg: Any = None) -> None: ...
    def egg(hen: Any = Depends(hen)) -> None: ...

    hen.__defaults__ = (Depends(egg),)

    async def task(first: Any = Depends(egg)) -> None: ...

    with pytest.raises(CycleError, match="'first' depends on itself: egg -> hen -> egg"):
        docket.register(task)


def test_one_factory_for_two_parameters_is_no_circle(docket: Docket):
    async def task(a: str = Depends(plain), b: str = Depends(plain), c: str = CallArgument("a")) -> None: ...

    docket.register(task)


@pytest.mark.parametrize("factory", [5, None, dict, int, min])
def test_a_factory_that_cannot_be_called_or_read_is_refused(docket: Docket, factory: Any):
    async def task(value: Any = Depends(factory)) -> None: ...

    with pytest.raises(UsageError, match="task 'task': the parameter 'value' depends on"):
        docket.register(task)


def test_a_class_in_the_place_of_its_instance_is_refused(docket: Docket):
    async def task(retry: Any = Retry) -> None: ...

    with pytest.raises(UsageError, match=r"task 'task': the parameter 'retry' has the class Retry as its default"):
        docket.register(task)


# Resolving by itself


async def test_what_is_given_is_not_among_the_values():
    async def task(one: str = Depends(plain), two: str = Depends(asynchronous)) -> None: ...

    setting = Setting(task)
    assert await setting.up({"one": "mine"}) == {"two": "asynchronous"}
    await setting.down(None)


async def test_a_dependency_that_takes_its_time_to_come_does_not_hold_up_other_runs(docket: Docket, worker: Worker):
    arrived = asyncio.Event()

    async def slow() -> str:
        await arrived.wait()
        return "late"

    async def waits(given: str = Depends(slow)) -> str:
        return given

    async def goes_ahead() -> None:
        arrived.set()

    execution = await docket.add(waits)()
    await docket.add(goes_ahead)()
    async with at_work(worker):
        assert await soon(execution.get_result(timeout=timedelta(seconds=5))) == "late"
