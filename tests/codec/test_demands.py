"""Demands: a call has the arguments its function asks for, or the caller is told which is missing or too many."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from itertools import product
from typing import Annotated, Any

import pytest

from dovetail import CurrentDocket, Depends, Docket, WrongArgument, task
from dovetail.codec import CallTypes


def one() -> int:
    return 1


def nothing() -> None: ...


def two(a: Any, b: Any) -> None: ...


def defaulted(a: Any, b: Any = 2) -> None: ...


def by_place(a: Any, /, b: Any) -> None: ...


def by_name(a: Any, *, b: Any) -> None: ...


def by_name_defaulted(a: Any = 1, *, b: Any = 2) -> None: ...


def many(a: Any, *rest: Any) -> None: ...


def anything(*args: Any, **kwargs: Any) -> None: ...


def named(a: Any, **others: Any) -> None: ...


class Machine:
    def __call__(self, a: Any) -> None: ...

    def method(self, a: Any, b: Any = 2) -> None: ...


FUNCTIONS: list[Callable[..., Any]] = [
    nothing, two, defaulted, by_place, by_name, by_name_defaulted, many, anything, named,
    Machine(), Machine().method, functools.partial(two, 1), functools.partial(two, b=1),
]  # fmt: skip
ARGS: list[tuple[Any, ...]] = [(), (1,), (1, 2), (1, 2, 3)]
KWARGS: list[dict[str, Any]] = [{}, {"a": 1}, {"b": 2}, {"a": 1, "b": 2}, {"c": 3}, {"a": 1, "c": 3}]


def refusal(kind: type[TypeError], call: Callable[..., object], *args: Any, **kwargs: Any) -> str | None:
    """In what words a call is refused, whoever refuses it."""
    try:
        call(*args, **kwargs)
    except kind as error:
        return str(error).rpartition("these arguments: ")[2]
    return None


@pytest.mark.parametrize(
    "function", FUNCTIONS, ids=lambda function: getattr(function, "__name__", type(function).__name__)
)
def test_a_call_is_refused_exactly_if_python_would_refuse_it(function: Callable[..., Any]) -> None:
    types = CallTypes.of(function)
    for args, kwargs in product(ARGS, KWARGS):
        ours = refusal(WrongArgument, types.refuse_misfits, args, kwargs)
        assert ours == refusal(TypeError, inspect.signature(function).bind, *args, **kwargs), (args, kwargs)


def test_what_is_provided_need_not_be_given() -> None:
    def injected(
        a: int,
        c: Annotated[int, Depends(one)],
        b: int = Depends(one),
        docket: Docket = CurrentDocket(),
    ) -> None: ...

    types = CallTypes.of(injected)
    types.refuse_misfits((1,), {})
    types.refuse_misfits((), {"a": 1, "b": 2})
    with pytest.raises(WrongArgument, match="missing a required argument: 'a'"):
        types.refuse_misfits((), {"b": 2})


def test_what_does_not_tell_its_parameters_takes_what_it_gets() -> None:
    CallTypes.of(type).refuse_misfits((1, 2, 3, 4), {"x": 5})
    CallTypes.unknown().refuse_misfits((1, 2, 3, 4), {"x": 5})


@task(name="greet")
async def greet(name: str, *, loudly: bool = False) -> None: ...


async def test_a_wrong_call_fails_in_the_caller_and_leaves_nothing(docket: Docket) -> None:
    docket.register(greet)
    with pytest.raises(WrongArgument, match=r"'greet' cannot be called with these arguments: missing .* 'name'"):
        await docket.add(greet)()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'quietly'"):
        await docket.add("greet")("ann", quietly=True)
    with pytest.raises(WrongArgument, match="too many positional arguments"):
        await docket.add_many([docket.call(greet)("ann"), docket.call(greet)("ann", "bob")])  # type: ignore[call-arg]
    assert (await docket.snapshot()).total_tasks == 0
