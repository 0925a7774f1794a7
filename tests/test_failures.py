"""Exceptions become text whatever they do, and what is raised instead of them can be caught."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.errors import DovetailError, ExecutionFailed
from dovetail.failures import LONGEST_MESSAGE, LONGEST_TRACEBACK, failed, failure_of
from dovetail.model import Failure

MARGIN = 200
"""Characters that a note on what was left out may take."""

texts = st.text(st.characters() | st.characters(categories=["Cs"]), max_size=50)
blows = st.sampled_from([ValueError, RecursionError, SystemExit, KeyboardInterrupt, GeneratorExit, BaseException])
members = st.sampled_from(["__str__", "__repr__", "__notes__", "__reduce__", "__traceback__", "args", "__len__"])


def raiser(blow: type[BaseException]) -> Any:
    def blow_up(self: Any, *_: Any) -> Any:
        raise blow("broken")

    return blow_up


def kind_of(base: type[BaseException], broken: Mapping[str, type[BaseException]]) -> type[BaseException]:
    """An exception class some of whose members raise when they are looked at."""
    special = {"__str__", "__repr__", "__reduce__", "__len__"}
    body = {name: raiser(blow) if name in special else property(raiser(blow)) for name, blow in broken.items()}
    return type("Broken", (base,), body)


@dataclass(frozen=True)
class Recipe:
    """How to make an exception. The exception itself would upset whoever reports a failing example."""

    base: type[BaseException]
    broken: Mapping[str, type[BaseException]]
    args: Sequence[Any]
    cause: Recipe | None
    group: tuple[str, Recipe] | None
    in_a_circle: bool

    def made(self) -> BaseException:
        error = kind_of(self.base, self.broken)(*self.args)
        if self.cause:
            error.__cause__ = self.cause.made()
        if self.group:
            error = BaseExceptionGroup(self.group[0], [error, self.group[1].made()])
        if self.in_a_circle:
            error.__context__ = error
        return error


bases = st.sampled_from([Exception, ValueError, OSError, KeyError, BaseException, SystemExit])
broken_members = st.dictionaries(members, blows, max_size=3)
arguments = st.lists(texts | st.integers() | st.binary(max_size=5), max_size=3)
single = st.builds(Recipe, bases, broken_members, arguments, st.none(), st.none(), st.booleans())
recipes = st.recursive(
    single,
    lambda inner: st.builds(
        Recipe,
        bases,
        broken_members,
        arguments,
        st.none() | inner,
        st.none() | st.tuples(texts, inner),
        st.booleans(),
    ),
    max_leaves=4,
)


def described(error: BaseException) -> Failure:
    """The failure. Whatever comes out instead is a failed test, and not the end of the test run."""
    __tracebackhide__ = True  # a report would show the exception, which may do anything
    try:
        return failure_of(error)
    except BaseException as escaped:
        kind = type(escaped).__name__
    pytest.fail(f"{kind} came out of failure_of")


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def assert_storable(failure: Failure) -> None:
    msgspec.json.encode(failure)
    assert len(failure.type) <= LONGEST_MESSAGE + MARGIN
    assert len(failure.message) <= LONGEST_MESSAGE + MARGIN
    assert len(failure.traceback) <= LONGEST_TRACEBACK + MARGIN


@given(recipes)
def test_any_exception_becomes_text_that_a_store_can_keep(recipe: Recipe):
    assert_storable(described(recipe.made()))


def test_type_message_and_traceback_are_kept():
    failure = described(raised(ValueError("no such thing")))
    assert (failure.type, failure.message) == ("ValueError", "no such thing")
    assert "Traceback" in failure.traceback
    assert "raise error" in failure.traceback


def test_the_text_of_a_failure_is_its_type_and_message():
    assert str(described(ValueError("no"))) == "ValueError: no"


def test_the_text_of_a_failure_without_a_message_is_its_type():
    assert str(described(ValueError())) == "ValueError"


@pytest.mark.parametrize("blow", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_text_that_cannot_be_had_is_replaced(blow: type[BaseException]):
    failure = described(kind_of(Exception, {"__str__": blow, "__repr__": blow})("x"))
    assert_storable(failure)
    assert failure.type == "Broken"
    assert blow.__name__ in failure.message


def test_a_text_that_calls_itself_is_replaced():
    class Endless(Exception):
        def __str__(self) -> str:
            return str(self)

    failure = described(Endless())
    assert_storable(failure)
    assert "RecursionError" in failure.message


def test_a_text_that_is_no_text_is_replaced():
    class Odd(Exception):
        def __str__(self) -> str:
            return 5  # type: ignore[return-value]

    assert "TypeError" in described(Odd()).message


def test_a_text_with_methods_of_its_own_is_not_trusted():
    class Sly(str):
        def encode(self, encoding: str = "", errors: str = "") -> bytes:
            raise SystemExit

    class Odd(Exception):
        def __str__(self) -> str:
            return Sly("sly")

    failure = described(Odd())
    assert_storable(failure)
    assert type(failure.message) is str


def test_a_message_of_ten_megabytes_keeps_its_beginning_and_its_end():
    failure = described(raised(ValueError("begin" + "x" * 10_000_000 + "end")))
    assert_storable(failure)
    assert failure.message.startswith("begin")
    assert failure.message.endswith("end")
    assert "characters left out" in failure.message


def test_a_type_with_an_endless_name_is_cut_short():
    assert_storable(described(type("E" * 1_000_000, (Exception,), {})("x")))


@pytest.mark.parametrize("blow", [ValueError, SystemExit])
def test_a_type_that_hides_its_name_is_an_exception_all_the_same(blow: type[BaseException]):
    hidden = type("Hidden", (type,), {"__name__": property(raiser(blow))})
    assert_storable(described(hidden("Named", (Exception,), {})("x")))


def test_a_type_whose_name_is_no_unicode_can_be_kept():
    odd = type("Odd", (type,), {"__name__": "\ud800"})
    assert_storable(described(odd("Named", (Exception,), {})("x")))


def test_lone_surrogates_are_shown_escaped():
    failure = described(raised(ValueError("a\ud800b")))
    assert failure.message == "a\\ud800b"
    assert_storable(failure)


def test_causes_that_go_in_a_circle_are_shown_once():
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    failure = described(raised(first))
    assert_storable(failure)
    assert "second" in failure.traceback


def test_a_thousand_causes_stay_within_bounds():
    error: BaseException = ValueError("last")
    for number in range(1000):
        error, cause = ValueError(str(number)), error
        error.__cause__ = cause
    assert_storable(described(error))


def test_groups_within_groups_stay_within_bounds():
    error: Any = ValueError("innermost")
    for number in range(5000):
        error = ExceptionGroup(str(number), [error])
    assert_storable(described(error))


def test_the_members_of_a_group_are_in_its_traceback():
    failure = described(raised(ExceptionGroup("both", [ValueError("left"), KeyError("right")])))
    assert failure.type == "ExceptionGroup"
    assert "left" in failure.traceback
    assert "right" in failure.traceback


# What is raised instead


def test_what_is_raised_for_a_failure_says_what_the_task_said():
    error = failed("ValueError: no", Failure("ValueError", "no", "Traceback"), "the run")
    assert str(error) == "no"
    assert error.run == "the run"
    assert error.failure.traceback == "Traceback"


BUILT_IN = [value for value in vars(builtins).values() if isinstance(value, type) and issubclass(value, Exception)]


@pytest.mark.parametrize("kind", BUILT_IN, ids=lambda kind: kind.__name__)
def test_a_failure_is_raised_as_an_execution_failure_whatever_built_in_type_it_was(kind: type[Exception]):
    error = failed(None, Failure(kind.__name__, "no"), None)
    assert isinstance(error, ExecutionFailed)
    assert str(error) in ("no", f"{kind.__name__}: no")


@pytest.mark.parametrize(
    "kind", [ValueError, TypeError, KeyError, OSError, FileNotFoundError, TimeoutError, UnicodeDecodeError]
)
def test_a_failure_can_be_caught_as_the_built_in_type(kind: type[Exception]):
    assert isinstance(failed(None, Failure(kind.__name__, "no"), None), kind)


@pytest.mark.parametrize("name", ["StopIteration", "StopAsyncIteration"])
async def test_a_failure_that_would_end_an_iteration_can_still_be_raised_by_a_coroutine(name: str):
    async def get_result() -> None:
        raise failed(None, Failure(name, "no"), None)

    with pytest.raises(ExecutionFailed):
        await get_result()


@pytest.mark.parametrize("name", ["SystemExit", "KeyboardInterrupt", "GeneratorExit", "Mine", "print", "", "__name__"])
def test_a_failure_of_any_other_name_is_an_execution_failure_and_no_more(name: str):
    error = failed(None, Failure(name, "no"), None)
    assert type(error) is ExecutionFailed
    assert isinstance(error, DovetailError)


def test_a_failure_that_left_only_its_text_is_known_by_it():
    error = failed("ValueError: no such thing", None, None)
    assert isinstance(error, ValueError)
    assert "no such thing" in str(error)


def test_a_failure_that_left_no_word_says_so():
    assert "no word" in str(failed(None, None, None))
