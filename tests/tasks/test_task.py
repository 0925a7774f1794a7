"""A task: a function, read once for all that its runs need to know of it."""

from __future__ import annotations

import functools
from datetime import timedelta
from typing import Annotated, Any
from unittest.mock import AsyncMock

import pytest

from dovetail import Behavior, ConcurrencyLimit, Depends, Perpetual, Retry, Timeout, UsageError
from dovetail.errors import ConflictingBehaviors, InvalidType
from dovetail.model import NewRun
from dovetail.tasks import Task, positional_names, unregistered
from dovetail.tasks import task as module


class Marked(Behavior):
    """Leaves a mark on the runs it plans."""

    def plan(self, draft: NewRun, arguments: Any) -> NewRun:
        return draft.but(headers={"arguments": repr(dict(arguments))})


class Several(Behavior):
    single = False


async def plain(a: int, b: str = "b") -> None: ...


def test_a_function_is_read_once():
    assert Task.of(plain) is Task.of(plain)


def test_a_coroutine_function_is_asynchronous():
    assert Task.of(plain).is_async


def test_a_plain_function_is_not_asynchronous():
    def function() -> None: ...

    assert not Task.of(function).is_async


def test_an_object_with_an_asynchronous_call_is_asynchronous():
    class Callable:
        __name__ = "callable"

        async def __call__(self) -> None: ...

    assert Task.of(Callable()).is_async


def test_an_async_mock_with_a_name_is_a_task():
    mock = AsyncMock()
    mock.__name__ = "mock"
    assert Task.of(mock).is_async


def test_behaviors_are_found_by_their_parameters():
    retry, timeout = Retry(attempts=3), Timeout(timedelta(seconds=1))

    async def task(a: int, retry: Retry = retry) -> None: ...

    async def other(timeout: Timeout = timeout) -> None: ...

    assert Task.of(task).behaviors == {"retry": retry}
    assert Task.of(other).behaviors == {"timeout": timeout}
    assert not Task.of(task).has_dependencies


def test_behaviors_in_metadata_know_their_parameter():
    async def task(a: int) -> None: ...

    task.__annotations__["a"] = Annotated[int, Several()]
    (wrapper,) = Task.of(task).wrappers
    assert wrapper.parameter == "a"
    assert Task.of(task).all_behaviors == (wrapper,)


def test_other_dependencies_are_noticed():
    async def task(a: Any = Depends(plain)) -> None: ...

    assert Task.of(task).has_dependencies
    assert Task.of(task).behaviors == {}


def test_only_those_that_plan_are_planners():
    async def task(marked: Marked = Marked()) -> None: ...

    async def other(retry: Retry = Retry()) -> None: ...

    assert len(Task.of(task).planners) == 1
    assert Task.of(other).planners == ()


def test_behaviors_of_all_kinds_go_together():
    async def task(
        retry: Retry = Retry(attempts=2),
        timeout: Timeout = Timeout(timedelta(seconds=1)),
        perpetual: Perpetual = Perpetual(),
        marked: Marked = Marked(),
    ) -> None: ...

    assert set(Task.of(task).behaviors) == {"retry", "timeout", "perpetual", "marked"}


def test_a_kind_that_allows_several_may_be_declared_twice():
    async def task(one: Several = Several(), two: Several = Several()) -> None: ...

    assert set(Task.of(task).behaviors) == {"one", "two"}


def test_a_kind_and_its_subclass_do_not_go_together():
    from dovetail import ExponentialRetry

    async def task(one: Retry = Retry(), two: ExponentialRetry = ExponentialRetry()) -> None: ...

    with pytest.raises(ConflictingBehaviors, match=r"task 'task'.*Retry"):
        Task.of(task)


def test_one_in_metadata_and_one_as_a_default_do_not_go_together():
    async def task(a: int, retry: Retry = Retry()) -> None: ...

    task.__annotations__["a"] = Annotated[int, Retry()]
    with pytest.raises(ConflictingBehaviors, match="Only one Retry"):
        Task.of(task)


@pytest.mark.parametrize("wrong", [None, 5, "text", object()])
def test_what_is_no_function_is_refused(wrong: Any):
    with pytest.raises(InvalidType, match="must be a function"):
        Task.of(wrong)


def test_what_cannot_be_hashed_is_refused():
    class Unhashable:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self) -> None: ...

    with pytest.raises(InvalidType, match="hashed"):
        Task.of(Unhashable())


def test_a_function_that_cannot_be_read_is_not_remembered():
    async def task(one: Retry = Retry(), two: Retry = Retry()) -> None: ...

    for _ in range(2):
        with pytest.raises(UsageError):
            Task.of(task)


def test_a_function_whose_annotations_cannot_be_resolved_is_still_a_task():
    async def task(a: NoSuchType) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert Task.of(task).is_async


def test_a_program_that_makes_its_tasks_anew_does_not_grow_for_ever(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "REMEMBERED", 10)
    monkeypatch.setattr(module, "_known", {})
    for _ in range(100):

        async def task() -> None: ...

        Task.of(task)
    assert len(module._known) <= 10


# Binding


@pytest.mark.parametrize(
    ("args", "kwargs", "bound"),
    [
        ((1,), {}, {"a": 1, "b": "b"}),
        ((1, "c"), {}, {"a": 1, "b": "c"}),
        ((), {"a": 1}, {"a": 1, "b": "b"}),
        ((), {}, {"b": "b"}),
        ((1, 2, 3), {"z": 1}, {"z": 1}),
    ],
)
def test_arguments_are_bound_by_name_with_their_defaults(args: Any, kwargs: Any, bound: Any):
    assert Task.of(plain).bind(args, kwargs) == bound


def test_declared_dependencies_are_not_arguments():
    async def task(a: int, retry: Retry = Retry(), made: Any = Depends(plain)) -> None: ...

    assert Task.of(task).bind((1,), {}) == {"a": 1}


def test_a_partial_function_is_read_as_it_is_called():
    partial = functools.partial(plain, 1)
    assert Task.of(partial).bind((), {"b": "c"}) == {"b": "c"}


# Placeholders


async def test_a_placeholder_has_the_name_of_the_task_it_stands_for():
    placeholder = unregistered("gone")
    assert placeholder.__name__ == "gone"
    with pytest.raises(LookupError, match="'gone' is not registered"):
        await placeholder(1, a=2)


# Arguments and parameters


async def spread(a: int, /, b: int, *rest: int, c: int = 0, **others: int) -> None: ...
async def keyed(a: int, b: int = 0, *, c: int = 0) -> None: ...
async def nothing() -> None: ...


@pytest.mark.parametrize(
    ("function", "count", "names"),
    [
        (spread, 0, []),
        (spread, 2, ["a", "b"]),
        (spread, 4, ["a", "b", "rest", "rest"]),
        (keyed, 1, ["a"]),
        (keyed, 5, ["a", "b"]),
        (nothing, 2, []),
    ],
)
def test_each_positional_argument_goes_to_its_parameter(function: Any, count: int, names: list[str]):
    assert positional_names(Task.of(function).signature, count) == names


def test_arguments_that_only_the_rest_takes_have_their_own_names():
    bound = Task.of(spread).bind((1, 2), {"x": 3})
    assert {name: bound[name] for name in "abcx"} == {"a": 1, "b": 2, "c": 0, "x": 3}


def test_a_limit_is_not_lost_because_another_type_is_known_to_type_checkers_only():
    async def task(a: "Annotated[int, ConcurrencyLimit(1)]", b: "OnlyForCheckers") -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037

    with pytest.raises(InvalidType, match=r"task 'task': its annotations cannot be read.*OnlyForCheckers"):
        Task.of(task)


def test_a_type_that_is_known_to_type_checkers_only_does_no_harm_where_nothing_is_declared():
    async def task(a: OnlyForCheckers) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert Task.of(task).names == ("a",)


def test_nothing_can_be_injected_into_a_parameter_that_is_positional_only():
    async def task(retry: Retry = Retry(), /) -> None: ...

    with pytest.raises(ConflictingBehaviors, match="task 'task': the parameter 'retry' is positional only"):
        Task.of(task)


def test_all_runs_of_a_task_that_nobody_knows_have_one_placeholder() -> None:
    """To read the signature of another for each of a hundred thousand took most of the time."""
    assert unregistered("gone") is unregistered("gone")
    assert unregistered("gone") is not unregistered("lost")
