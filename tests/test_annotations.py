"""Logged: which arguments may be shown in logs. No other ever is."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from dovetail import (
    ConcurrencyLimit,
    Cooldown,
    Debounce,
    Depends,
    Docket,
    Execution,
    Logged,
    Perpetual,
    Progress,
    Retry,
    TaskLogger,
    UsageError,
    Worker,
)
from dovetail.annotations import Annotation
from dovetail.model import State
from dovetail.tasks import Task
from tests.by_hand import finish, run_of

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]

MakeWorker = Callable[..., Worker]
SECRET = "the-secret-value"
SHORT = timedelta(milliseconds=1)


# How an argument is shown


@pytest.mark.parametrize(
    ("argument", "shown"),
    [
        ([1, 2, 3], "[len 3]"),
        ("letter", "[len 6]"),
        (b"ab", "[len 2]"),
        ({"a": 1}, "{len 1}"),
        ({1, 2}, "{len 2}"),
        (frozenset[int](), "{len 0}"),
        ((1, 2), "(len 2)"),
        (5, "5"),
        (None, "None"),
    ],
)
def test_only_the_length_is_shown_if_there_is_one(argument: Any, shown: str):
    assert Logged(length_only=True).format(argument) == shown


def test_otherwise_the_argument_is_shown_as_it_is():
    assert Logged().format({"a": [1]}) == "{'a': [1]}"


# Which arguments


def call(docket: Docket, function: Any, *args: Any, **kwargs: Any) -> str:
    return Execution[Any](docket, function, args, kwargs, "k", datetime(2030, 1, 1, tzinfo=UTC)).call_repr()


def test_only_marked_arguments_are_shown(docket: Docket):
    async def task(
        a: Annotated[int, Logged], b: int, c: Annotated[str, Logged(length_only=True)], d: int = 0
    ) -> None: ...

    assert call(docket, task, 1, 2, c="three", d=4) == "task(1, ..., c=[len 5], d=...){k}"


def test_a_mark_beside_other_metadata_counts(docket: Docket):
    async def task(a: Annotated[int, "units: m", ConcurrencyLimit(1), Logged()]) -> None: ...

    assert call(docket, task, 1) == "task(1){k}"


def test_a_mark_inside_of_a_type_is_none(docket: Docket):
    async def task(a: list[Annotated[int, Logged]], b: Annotated[int, Logged] | None = None) -> None: ...

    assert call(docket, task, [1], 2) == "task(..., ...){k}"


def test_annotations_that_are_text_are_understood(docket: Docket):
    async def task(a: "Annotated[int, Logged]", b: "int") -> None: ...  # noqa: UP037

    assert call(docket, task, 1, 2) == "task(1, ...){k}"


def test_where_a_type_is_not_known_a_mark_is_not_lost_but_refused(docket: Docket):
    async def task(a: Annotated[int, Logged], b: Unknown) -> None: ...

    with pytest.raises(UsageError, match=r"task 'task': its annotations cannot be read.*'Unknown' is not defined"):
        docket.register(task)


def test_surplus_arguments_are_those_of_the_rest_and_of_nothing_else(docket: Docket):
    async def task(*rest: int, shown: Annotated[int, Logged] = 0) -> None: ...

    assert call(docket, task, 1, 2, 3, shown=4) == "task(..., ..., ..., shown=4){k}"


def test_the_rest_can_be_marked(docket: Docket):
    async def task(a: int, *rest: Annotated[int, Logged]) -> None: ...

    assert call(docket, task, 1, 2, 3) == "task(..., 2, 3){k}"


def test_arguments_that_do_not_fit_are_not_shown(docket: Docket):
    async def task(a: int, *, shown: Annotated[int, Logged] = 0) -> None: ...

    assert "2" not in call(docket, task, 1, 2)
    assert call(docket, task, other=1) == "task(other=...){k}"


class Rude:
    def __repr__(self) -> str:
        raise ValueError("no repr")

    def __len__(self) -> int:
        raise ValueError("no length")


@pytest.mark.parametrize("logged", [Logged(), Logged(length_only=True)])
async def test_an_argument_that_cannot_be_shown_does_not_harm_its_run(
    pickling: Docket, make_worker: MakeWorker, caplog: pytest.LogCaptureFixture, logged: Logged
):
    caplog.set_level(logging.DEBUG)

    async def task(a: Any) -> int:
        return 7

    task.__annotations__["a"] = Annotated[Any, logged]
    execution = await pickling.add(task)(Rude())
    await finish(make_worker(pickling))
    assert await execution.get_result() == 7
    assert "task(<Rude: no repr, ValueError>)" in caplog.text


# Annotations of one's own


@dataclass
class Older:
    name: str


@dataclass
class Newer:
    name: int


class Unit(Annotation):
    def __init__(self, name: str = "m") -> None:
        self.name = name


def test_an_annotation_of_ones_own_is_found_by_parameter():
    def measure(a: Annotated[int, Unit("kg")], b: Annotated[int, Unit], c: int) -> None: ...

    found = Unit.of(measure)
    assert {name: unit.name for name, unit in found.items()} == {"a": "kg", "b": "m"}
    plain = inspect.Signature(
        [inspect.Parameter("a", inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[int, Unit()])]
    )
    assert list(Unit.annotated_parameters(plain)) == ["a"]
    assert Logged.of(measure) == {}


def test_a_task_knows_what_may_be_logged():
    def task(a: Annotated[int, Logged], b: int) -> None: ...

    assert list(Task.of(task).logged) == ["a"]


# Nothing else appears anywhere


def records(caplog: pytest.LogCaptureFixture) -> str:
    """Everything of every record, as any formatter might show it."""
    formatter = logging.Formatter("%(message)s")
    shown = [f"{formatter.format(record)} {vars(record)}" for record in caplog.records]
    return "\n".join(shown)


async def completes(secret: str, shown: Annotated[str, Logged] = "plain") -> None: ...


async def fails(secret: str, shown: Annotated[str, Logged] = "plain") -> None:
    raise ValueError("no")


async def retries(secret: str, shown: Annotated[str, Logged] = "plain", retry: Retry = Retry(attempts=2)) -> None:
    raise ValueError("no")


async def goes_on(
    secret: str, shown: Annotated[str, Logged] = "plain", perpetual: Perpetual = Perpetual(every=SHORT)
) -> None:
    if perpetual.every:
        perpetual.cancel()


async def limited(
    secret: Annotated[str, ConcurrencyLimit(1), Cooldown(SHORT)], shown: Annotated[str, Logged] = "plain"
) -> None: ...


async def debounced(secret: Annotated[str, Debounce(SHORT)], shown: Annotated[str, Logged] = "plain") -> None: ...


async def reports(secret: str, shown: Annotated[str, Logged] = "plain", progress: Progress = Progress()) -> None:
    await progress.increment()


async def cannot_store(secret: str, shown: Annotated[str, Logged] = "plain") -> Any:
    return {secret: object()}


async def logs(secret: str, shown: Annotated[str, Logged] = "plain", logger: Any = TaskLogger()) -> None:
    logger.info("a line of the task's own")


def broken(secret: str = "") -> None:
    raise LookupError("no such thing")


async def cannot_begin(secret: str, shown: Annotated[str, Logged] = "plain", got: Any = Depends(broken)) -> None: ...


def in_a_thread(secret: str, shown: Annotated[str, Logged] = "plain") -> None: ...


@pytest.mark.parametrize(
    "task",
    [completes, fails, retries, goes_on, limited, debounced, reports, cannot_store, logs, cannot_begin, in_a_thread],
    ids=lambda task: task.__name__,
)
@pytest.mark.parametrize("named", [False, True], ids=["by position", "by name"])
async def test_what_is_not_marked_appears_in_no_record(
    docket: Docket, worker: Worker, caplog: pytest.LogCaptureFixture, task: Any, named: bool
):
    caplog.set_level(logging.DEBUG)
    if named:
        await docket.add(task)(secret=SECRET, shown="in the open")
    else:
        await docket.add(task)(SECRET, "in the open")
    await finish(worker)
    assert "in the open" in records(caplog)
    assert SECRET not in records(caplog)


@pytest.mark.parametrize("wrong", [{"surplus": SECRET}, {"secret": "", "surplus": SECRET}])
async def test_a_call_that_does_not_fit_any_more_shows_nothing_either(
    docket: Docket, worker: Worker, caplog: pytest.LogCaptureFixture, wrong: dict[str, Any]
):
    async def takes_anything(**arguments: Any) -> None: ...

    caplog.set_level(logging.DEBUG)
    docket.register(takes_anything, names=["task"])
    await docket.add("task")(**wrong)
    docket.register(completes, names=["task"])
    await finish(worker)
    assert "TypeError" in records(caplog)
    assert SECRET not in records(caplog)


async def test_a_run_of_an_unknown_task_shows_nothing(
    url: str, docket: Docket, make_worker: MakeWorker, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)

    async def caught(*args: Any, **kwargs: Any) -> None: ...

    async with Docket("tests", url) as other:
        await other.add(completes)(SECRET)
    await finish(make_worker(fallback_task=caught))
    assert "completes(" in records(caplog)
    assert SECRET not in records(caplog)


async def test_an_argument_that_cannot_be_read_shows_nothing(
    url: str, make_worker: MakeWorker, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)

    def of(kind: Any) -> Any:
        async def changed(secret: Any) -> None: ...

        changed.__annotations__["secret"] = kind
        return changed

    async with Docket("tests", url) as before:
        await before.add(of(Older), key="k")(Older(SECRET))
    async with Docket("tests", url) as after:
        after.register(of(Newer))
        await finish(make_worker(after))
        assert (await run_of(after, key="k")).state is State.FAILED
    assert SECRET not in records(caplog)
