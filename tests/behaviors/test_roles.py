"""Roles: the kinds of behavior of which a task may declare only one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

import pytest

from dovetail import (
    Cron,
    Depends,
    Docket,
    ExecutionState,
    ExponentialRetry,
    Fail,
    Perpetual,
    Retry,
    Snooze,
    Timeout,
    UsageError,
    Worker,
)
from dovetail.dependencies import (
    AdmissionBlocked,
    CompletionHandler,
    FailureHandler,
    Runtime,
    TaskOutcome,
    get_single_dependency_of_type,
    get_single_dependency_parameter_of_type,
)
from tests.by_hand import finish

MakeWorker = Callable[..., Worker]
told: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_told() -> None:
    told.clear()


class Telling(FailureHandler["Telling"]):
    async def handle_failure(self, execution: Any, outcome: TaskOutcome) -> bool:
        told.append(("failure", execution.key, outcome))
        return False


class Ending(CompletionHandler["Ending"]):
    async def on_complete(self, execution: Any, outcome: TaskOutcome) -> bool:
        told.append(("end", execution.key, outcome))
        return False


class Counting(Runtime["Counting"]):
    async def run(self, execution: Any, function: Any, args: Any, kwargs: Any) -> Any:
        told.append(("run", execution.key, args, kwargs))
        return [await function(*args, **kwargs), "counted"]


# Those that docket's users have written


async def test_a_failure_handler_is_told_of_a_failure(docket: Docket, worker: Worker):
    async def fail(handler: Telling = Telling()) -> None:
        raise ValueError("no")

    execution = await docket.add(fail, key="k")()
    await finish(worker)
    ((what, key, outcome),) = told
    assert (what, key, str(outcome.exception), outcome.result) == ("failure", "k", "no", None)
    assert outcome.duration >= timedelta()
    await execution.sync()
    assert execution.state is ExecutionState.FAILED


async def test_a_failure_handler_is_not_told_of_a_success(docket: Docket, worker: Worker):
    async def succeed(handler: Telling = Telling()) -> int:
        return 5

    execution = await docket.add(succeed)()
    await finish(worker)
    assert (told, await execution.get_result()) == ([], 5)


async def test_a_completion_handler_is_told_of_the_result(docket: Docket, worker: Worker):
    async def succeed(handler: Ending = Ending()) -> int:
        return 5

    execution = await docket.add(succeed, key="k")()
    await finish(worker)
    ((what, key, outcome),) = told
    assert (what, key, outcome.result, outcome.exception) == ("end", "k", 5, None)
    assert await execution.get_result() == 5


async def test_a_completion_handler_is_told_of_a_failure(docket: Docket, worker: Worker):
    async def fail(handler: Ending = Ending()) -> None:
        raise ValueError("no")

    await docket.add(fail)()
    await finish(worker)
    ((_, _, outcome),) = told
    assert isinstance(outcome.exception, ValueError)


async def test_a_runtime_runs_the_body(docket: Docket, worker: Worker):
    async def add(a: int, *, b: int, runtime: Counting = Counting()) -> int:
        return a + b

    execution = await docket.add(add, key="k")(1, b=2)
    await finish(worker)
    assert await execution.get_result() == [3, "counted"]
    assert told == [("run", "k", (1,), {"b": 2})]


async def test_a_runtime_runs_plain_functions_too(docket: Docket, worker: Worker):
    def add(a: int, runtime: Counting = Counting()) -> int:
        return a

    execution = await docket.add(add)(1)
    await finish(worker)
    assert await execution.get_result() == [1, "counted"]


async def test_a_runtime_may_not_run_the_body_at_all(docket: Docket, worker: Worker):
    class Never(Runtime["Never"]):
        async def run(self, execution: Any, function: Any, args: Any, kwargs: Any) -> Any:
            return "instead"

    async def body(runtime: Never = Never()) -> None:
        told.append("body")

    execution = await docket.add(body)()
    await finish(worker)
    assert (told, await execution.get_result()) == ([], "instead")


async def test_all_three_work_together(docket: Docket, worker: Worker):
    async def fail(runtime: Counting = Counting(), failure: Telling = Telling(), ending: Ending = Ending()) -> None:
        raise ValueError

    await docket.add(fail)()
    await finish(worker)
    assert sorted(each[0] for each in told) == ["end", "failure", "run"]


async def test_they_work_in_metadata(docket: Docket, worker: Worker):
    async def task(a: Annotated[int, Ending()]) -> int:
        return a

    await docket.add(task)(3)
    await finish(worker)
    assert [each[2].result for each in told] == [3]


async def test_a_subclass_inherits_what_it_is_told(docket: Docket, worker: Worker):
    class Later(Ending):
        pass

    async def task(handler: Later = Later()) -> int:
        return 5

    await docket.add(task)()
    await finish(worker)
    assert [each[0] for each in told] == ["end"]


async def test_each_attempt_of_a_retry_is_told(docket: Docket, worker: Worker):
    class Louder(Retry):
        async def handle_failure(self, execution: Any, outcome: TaskOutcome) -> bool:
            told.append(self.attempt)
            return await super().handle_failure(execution, outcome)

    async def fail(retry: Louder = Louder(attempts=3)) -> None:
        raise ValueError

    await docket.add(fail)()
    await finish(worker)
    assert told == [1, 2, 3]


async def test_each_run_of_a_perpetual_task_is_told(docket: Docket, worker: Worker):
    class Louder(Perpetual):
        async def on_complete(self, execution: Any, outcome: TaskOutcome) -> bool:
            told.append(outcome.result)
            return await super().on_complete(execution, outcome)

    async def tick(perpetual: Louder = Louder()) -> int:
        if len(told) == 2:
            perpetual.cancel()
        return len(told)

    await docket.add(tick)()
    await finish(worker)
    assert told == [0, 1, 2]


async def test_a_retry_can_decline_to_try_again(docket: Docket, worker: Worker):
    class OnConnections(Retry):
        async def handle_failure(self, execution: Any, outcome: TaskOutcome) -> bool:
            told.append(self.attempt)
            if not isinstance(outcome.exception, ConnectionError):
                return False
            return await super().handle_failure(execution, outcome)

    async def fail(retry: OnConnections = OnConnections(attempts=5)) -> None:
        raise ConnectionError if retry.attempt < 3 else ValueError("no")

    execution = await docket.add(fail)()
    await finish(worker)
    assert told == [1, 2, 3]
    await execution.sync()
    assert execution.error == "ValueError: no"


async def test_a_retry_says_to_its_subclass_whether_there_are_attempts_left(docket: Docket, worker: Worker):
    class Alarming(Retry):
        async def handle_failure(self, execution: Any, outcome: TaskOutcome) -> bool:
            goes_again = await super().handle_failure(execution, outcome)
            told.append(goes_again)
            return goes_again

    async def fail(retry: Alarming = Alarming(attempts=2)) -> None:
        raise ValueError

    await docket.add(fail)()
    await finish(worker)
    assert told == [True, False]


async def test_a_perpetual_can_decline_to_go_on(docket: Docket, worker: Worker):
    class Twice(Perpetual):
        async def on_complete(self, execution: Any, outcome: TaskOutcome) -> bool:
            told.append(outcome.result)
            return len(told) < 2 and await super().on_complete(execution, outcome)

    async def tick(perpetual: Twice = Twice()) -> int:
        return len(told)

    await docket.add(tick)()
    await finish(worker)
    assert told == [0, 1]


async def test_a_completion_handler_hears_nothing_of_attempts_that_are_tried_again(docket: Docket, worker: Worker):
    async def fail(ending: Ending = Ending(), retry: Retry = Retry(attempts=3)) -> None:
        raise ValueError("no")

    await docket.add(fail)()
    await finish(worker)
    assert [str(outcome.exception) for _, _, outcome in told] == ["no"]


async def test_a_completion_handler_hears_of_an_end_for_good(docket: Docket, worker: Worker):
    async def fail(ending: Ending = Ending(), retry: Retry = Retry(attempts=3)) -> None:
        raise Fail("for good")

    await docket.add(fail)()
    await finish(worker)
    assert [str(outcome.exception) for _, _, outcome in told] == ["for good"]


@pytest.mark.parametrize("stop", [Snooze(timedelta()), AdmissionBlocked(None, retry_delay=timedelta())])
async def test_handlers_hear_nothing_of_a_run_that_is_put_off(docket: Docket, worker: Worker, stop: Exception):
    stops = [stop]

    async def task(ending: Ending = Ending(), failure: Telling = Telling()) -> int:
        if stops:
            raise stops.pop()
        return 5

    await docket.add(task)()
    await finish(worker)
    assert [(what, outcome.result) for what, _, outcome in told] == [("end", 5)]


async def test_a_timeout_can_be_run_by_its_subclass(docket: Docket, worker: Worker):
    class Noted(Timeout):
        async def run(self, execution: Any, function: Any, args: Any, kwargs: Any) -> Any:
            told.append(execution.key)
            return await super().run(execution, function, args, kwargs)

    async def stay(a: int, timeout: Noted = Noted(timedelta(milliseconds=10))) -> None:
        await asyncio.Event().wait()

    execution = await docket.add(stay, key="k")(1)
    await finish(worker)
    assert told == ["k"]
    await execution.sync()
    assert "exceeded timeout" in (execution.error or "")


async def test_a_handler_that_fails_fails_the_run(docket: Docket, worker: Worker):
    class Broken(CompletionHandler["Broken"]):
        async def on_complete(self, execution: Any, outcome: TaskOutcome) -> bool:
            raise LookupError("no such thing")

    async def task(handler: Broken = Broken()) -> None: ...

    execution = await docket.add(task)()
    await finish(worker)
    await execution.sync()
    assert execution.error == "LookupError: no such thing"


# One of each role


async def one() -> None: ...


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Retry(attempts=2), ExponentialRetry(attempts=2)),
        (Retry(attempts=2), Telling()),
        (Perpetual(), Cron("* * * * *")),
        (Perpetual(), Ending()),
        (Timeout(timedelta(seconds=1)), Counting()),
    ],
)
@pytest.mark.parametrize("in_metadata", [False, True])
def test_a_role_is_taken_once(docket: Docket, first: Any, second: Any, in_metadata: bool):
    if in_metadata:

        async def task(a: Any = None, b: Any = second) -> None: ...

        task.__annotations__["a"] = Annotated[Any, first]
    else:

        async def task(a: Any = first, b: Any = second) -> None: ...

    with pytest.raises(UsageError, match="task 'task': Only one") as caught:
        docket.register(task)
    for parameter, declared in (("a", first), ("b", second)):
        assert f"{type(declared).__name__} (parameter {parameter!r})" in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert "task" not in docket.tasks


def test_different_roles_go_together(docket: Docket):
    async def task(
        a: Retry = Retry(), b: Perpetual = Perpetual(), c: Timeout = Timeout(timedelta(seconds=1))
    ) -> None: ...

    docket.register(task)
    assert docket.tasks["task"] is task


# Asking a function


def test_a_function_can_be_asked_for_the_one_it_declares():
    async def task(
        a: Annotated[int, Ending()], retry: Retry = ExponentialRetry(attempts=3), other: Any = Depends(one)
    ) -> None: ...

    found = get_single_dependency_parameter_of_type(task, Retry)
    assert isinstance(found, ExponentialRetry)
    assert isinstance(get_single_dependency_parameter_of_type(task, CompletionHandler), Ending)
    assert get_single_dependency_parameter_of_type(task, Timeout) is None


def test_one_among_several_can_be_found():
    retry = Retry()
    assert get_single_dependency_of_type({"a": Perpetual(), "b": retry}, FailureHandler) is retry
    assert get_single_dependency_of_type({}, Retry) is None
