"""What one call says beside its arguments."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail import Docket, ExecutionFailed, Perpetual, Retry, Timeout, Worker
from dovetail.errors import InvalidArgument, InvalidType
from dovetail.tasks import Task
from dovetail.tasks.extras import Extras, metadata_of

tried: list[int] = []

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda values: st.lists(values) | st.dictionaries(st.text(), values),
)
NESTED_FOR_EVER: list[Any] = []
NESTED_FOR_EVER.append(NESTED_FOR_EVER)


@pytest.fixture(autouse=True)
def nothing_tried() -> None:
    tried.clear()


async def plain() -> None: ...


async def flaky(retry: Retry = Retry(attempts=2), timeout: Timeout = Timeout(timedelta(seconds=30))) -> float:
    tried.append(retry.attempt)
    if len(tried) < 4:
        raise ConnectionError
    return timeout.base.total_seconds()


async def test_a_call_may_be_tried_more_often_than_its_task_says(docket: Docket, worker: Worker) -> None:
    execution = await docket.add(flaky, attempts=4, timeout=timedelta(seconds=2.5))()
    await worker.run_until_finished()
    assert tried == [1, 2, 3, 4]
    assert await execution.get_result() == 2.5


async def test_a_call_may_be_tried_for_ever(docket: Docket, worker: Worker) -> None:
    await docket.add(flaky, attempts=None)()
    await worker.run_until_finished()
    assert tried == [1, 2, 3, 4]


async def test_a_call_may_be_tried_less_often(docket: Docket, worker: Worker) -> None:
    execution = await docket.add(flaky, attempts=1)()
    await worker.run_until_finished()
    assert tried == [1]
    with pytest.raises(ExecutionFailed):
        await execution.get_result()


async def test_metadata_is_kept_and_not_given_to_the_task(docket: Docket, worker: Worker) -> None:
    noted = {"order": 7, "by": ["ann", None]}
    execution = await docket.add(plain, key="noted", metadata=noted)()
    assert execution.metadata == noted
    await worker.run_until_finished()
    kept = await docket.get_execution("noted")
    assert kept is not None
    assert kept.metadata == noted


async def test_without_metadata_there_is_none(docket: Docket) -> None:
    assert (await docket.add(plain)()).metadata == {}


async def test_what_a_call_says_holds_for_the_runs_that_follow(docket: Docket, worker: Worker) -> None:
    seen: list[dict[str, Any]] = []

    async def again(perpetual: Perpetual = Perpetual()) -> None:
        execution = await docket.get_execution("again")
        assert execution is not None
        seen.append(execution.metadata)

    await docket.add(again, key="again", metadata={"a": 1}, tags=["t"])()
    await worker.run_at_most({"again": 2})
    assert seen == [{"a": 1}, {"a": 1}]


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (math.nan, "metadata['a']"),
        (math.inf, "metadata['a']"),
        (datetime(2030, 1, 1, tzinfo=UTC), "metadata['a']"),
        (timedelta(1), "metadata['a']"),
        ((1, 2), "metadata['a']"),
        ({1}, "metadata['a']"),
        (b"a", "metadata['a']"),
        ({"b": [0, {"c": (1,)}]}, "metadata['a']['b'][1]['c']"),
        ({"b": {1: 2}}, "a key of metadata['a']['b']"),
    ],
)
def test_metadata_that_would_come_back_changed_is_refused(docket: Docket, value: Any, where: str) -> None:
    with pytest.raises(InvalidType, match=f"task 'plain': {re.escape(where)} is .*would not come back as it is"):
        docket.add(plain, metadata={"good": 1, "a": value})


@given(st.dictionaries(st.text(), JSON_VALUES))
def test_metadata_comes_back_as_it_was(noted: dict[str, Any]) -> None:
    kept = metadata_of(Extras(noted).headers(Task.of(plain)))
    assert repr(sorted(kept.items())) == repr(sorted(noted.items()))


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"attempts": 3}, InvalidArgument, "attempts is for tasks that declare a Retry"),
        ({"timeout": timedelta(seconds=1)}, InvalidArgument, "timeout is for tasks that declare a Timeout"),
        ({"metadata": ["a"]}, InvalidType, "metadata must map names to values"),
        ({"metadata": {1: "a"}}, InvalidType, "metadata must map names to values"),
        ({"metadata": {"a": object()}}, InvalidType, r"metadata\['a'\] is <object objec"),
        ({"metadata": {"a": "\ud800"}}, InvalidType, "metadata must be what JSON can say"),
        ({"metadata": {"a": NESTED_FOR_EVER}}, InvalidType, "metadata must be what JSON can say"),
        ({"metadata": {"a": "x" * 70_000}}, InvalidArgument, "metadata has at most 65,536 characters"),
    ],
)
def test_what_makes_no_sense_is_refused(docket: Docket, options: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=f"task 'plain': {message}"):
        docket.add(plain, **options)


@pytest.mark.parametrize("options", [{"attempts": 0}, {"timeout": timedelta()}, {"timeout": timedelta(seconds=-1)}])
def test_numbers_that_make_no_sense_are_refused(docket: Docket, options: Any) -> None:
    with pytest.raises(InvalidArgument, match=f"task 'flaky': {next(iter(options))}"):
        docket.add(flaky, **options)
