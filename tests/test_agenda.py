"""Agenda: many calls, spread over a stretch of time."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dovetail import Agenda, Debounce, Disposition, Docket, PayloadError, Worker
from dovetail.clock import VirtualClock
from dovetail.errors import InvalidArgument, InvalidType, UnknownTask
from tests.by_hand import finish

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
LATER = datetime(2031, 1, 1, tzinfo=UTC)


async def fetch(city: str = "", *, fresh: bool = False) -> None: ...
async def other(number: int = 0) -> None: ...


def agenda_of(count: int) -> Agenda:
    agenda = Agenda()
    for number in range(count):
        agenda.add(fetch, key=f"fetch:{number}")(str(number))
    return agenda


async def offsets(docket: Docket, agenda: Agenda, start: datetime, **settings: Any) -> list[timedelta]:
    """When each call is due, from the start, in the agenda's order."""
    executions = await agenda.scatter(docket, start=start, **settings)
    for execution in executions:
        await execution.sync()
    return [execution.when - start for execution in executions]


# What is on it


def test_an_agenda_holds_calls_in_their_order():
    agenda = Agenda()
    agenda.add(fetch)("vienna", fresh=True)
    agenda.add(other, key="k")(2)
    agenda.add("by name")()
    assert list(agenda) == [
        (fetch, ("vienna",), {"fresh": True}, None),
        (other, (2,), {}, "k"),
        ("by name", (), {}, None),
    ]
    assert len(agenda) == 3


def test_what_add_returns_can_be_called_again():
    agenda = Agenda()
    add = agenda.add(fetch)
    add("vienna")
    add("graz")
    assert [args for _, args, _, _ in agenda] == [("vienna",), ("graz",)]


def test_nothing_is_on_it_before_the_call():
    agenda = Agenda()
    agenda.add(fetch)
    assert (len(agenda), list(agenda)) == (0, [])


def test_an_agenda_can_be_cleared_and_filled_again():
    agenda = agenda_of(3)
    agenda.clear()
    assert len(agenda) == 0
    agenda.add(fetch)("graz")
    assert len(agenda) == 1


# When it happens


async def test_an_empty_agenda_schedules_nothing(still: Docket):
    assert await Agenda().scatter(still, over=HOUR) == []


async def test_a_single_call_comes_in_the_middle(still: Docket):
    assert await offsets(still, agenda_of(1), LATER, over=HOUR) == [HOUR / 2]


async def test_two_calls_come_at_the_start_and_at_the_end(still: Docket):
    assert await offsets(still, agenda_of(2), LATER, over=HOUR) == [timedelta(), HOUR]


async def test_calls_are_spread_evenly_in_their_order(still: Docket):
    assert await offsets(still, agenda_of(5), LATER, over=HOUR) == [HOUR / 4 * number for number in range(5)]


async def test_without_a_start_it_begins_now(still: Docket, clock: VirtualClock):
    first, _ = await agenda_of(2).scatter(still, over=HOUR)
    await first.sync()
    assert first.when == clock.now()


async def test_a_start_may_lie_in_the_past(still: Docket, clock: VirtualClock):
    start = clock.now() - HOUR
    assert await offsets(still, agenda_of(3), start, over=HOUR) == [timedelta(), HOUR / 2, HOUR]


async def test_jitter_moves_each_call_by_no_more_than_it_says(still: Docket):
    random.seed(5)
    moved = await offsets(still, agenda_of(50), LATER, over=HOUR, jitter=MINUTE)
    shifts = [each - HOUR / 49 * number for number, each in enumerate(moved)]
    assert all(abs(shift) <= MINUTE for shift in shifts)
    assert len(set(shifts)) > 40
    assert min(shifts) < timedelta() < max(shifts)


async def test_jitter_never_moves_a_call_before_the_start(still: Docket):
    random.seed(5)
    moved = await offsets(still, agenda_of(50), LATER, over=timedelta(seconds=1), jitter=HOUR)
    assert min(moved) == timedelta()


async def test_no_jitter_is_none(still: Docket):
    assert await offsets(still, agenda_of(2), LATER, over=HOUR, jitter=timedelta()) == [timedelta(), HOUR]


async def test_shuffled_calls_take_the_same_times_in_another_order(still: Docket):
    random.seed(5)
    moved = await offsets(still, agenda_of(21), LATER, over=HOUR, shuffle=True)
    even = [HOUR / 20 * number for number in range(21)]
    assert moved != even
    assert sorted(moved) == even


# Scheduling


async def test_executions_come_back_in_the_agendas_order(still: Docket):
    executions = await agenda_of(5).scatter(still, over=HOUR, shuffle=True)
    assert [execution.args for execution in executions] == [(str(number),) for number in range(5)]
    assert [execution.key for execution in executions] == [f"fetch:{number}" for number in range(5)]


async def test_functions_are_registered_as_needed(still: Docket):
    await agenda_of(1).scatter(still, over=HOUR)
    assert still.tasks["fetch"] is fetch


async def test_names_of_registered_tasks_can_be_used(still: Docket):
    still.register(fetch)
    agenda = Agenda()
    agenda.add("fetch")("graz")
    (execution,) = await agenda.scatter(still, over=HOUR)
    assert (execution.function, execution.args) == (fetch, ("graz",))


async def test_keys_that_stay_the_same_make_a_second_scatter_a_no_op(still: Docket):
    agenda = agenda_of(3)
    await agenda.scatter(still, over=HOUR)
    again = await agenda.scatter(still, over=HOUR)
    assert {execution.disposition for execution in again} == {Disposition.ALREADY_SCHEDULED}
    assert (await still.snapshot()).total_tasks == 3


async def test_without_keys_an_agenda_can_be_used_again(still: Docket):
    agenda = Agenda()
    agenda.add(fetch)("graz")
    await agenda.scatter(still, over=HOUR)
    await agenda.scatter(still, over=HOUR)
    assert (await still.snapshot()).total_tasks == 2


async def test_an_agenda_serves_several_dockets(still: Docket, pickling: Docket):
    agenda = agenda_of(2)
    for docket in (still, pickling):
        assert len(await agenda.scatter(docket, over=HOUR)) == 2


async def test_what_was_scattered_runs(docket: Docket, worker: Worker):
    ran: list[int] = []

    async def task(number: int) -> None:
        ran.append(number)

    agenda = Agenda()
    for number in range(5):
        agenda.add(task)(number)
    await agenda.scatter(docket, over=timedelta(milliseconds=20))
    await finish(worker)
    assert ran == [0, 1, 2, 3, 4]


async def test_behaviors_plan_what_is_scattered(still: Docket):
    async def quiet(debounce: Debounce = Debounce(MINUTE)) -> None: ...

    agenda = Agenda()
    agenda.add(quiet)()
    assert await offsets(still, agenda, LATER, over=HOUR) == [HOUR / 2 + MINUTE]


# What does not fit


async def test_a_name_that_is_not_known_is_found_before_anything_is_scheduled(still: Docket):
    agenda = agenda_of(2)
    agenda.add("no_such_task")()
    with pytest.raises(UnknownTask, match="no_such_task") as caught:
        await agenda.scatter(still, over=HOUR)
    assert isinstance(caught.value, KeyError)
    assert (await still.snapshot()).total_tasks == 0


async def test_an_argument_that_cannot_be_stored_leaves_nothing_behind(still: Docket):
    agenda = agenda_of(2)
    agenda.add(other)(object())  # type: ignore[arg-type]
    with pytest.raises(PayloadError):
        await agenda.scatter(still, over=HOUR)
    assert (await still.snapshot()).total_tasks == 0


@pytest.mark.parametrize("over", [timedelta(), -HOUR])
async def test_the_time_given_must_be_some(still: Docket, over: timedelta):
    with pytest.raises(InvalidArgument, match="'over' parameter must be a positive duration"):
        await Agenda().scatter(still, over=over)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("over", {"over": 60}),
        ("jitter", {"over": HOUR, "jitter": 5}),
        ("jitter", {"over": HOUR, "jitter": -MINUTE}),
        ("start", {"over": HOUR, "start": "now"}),
        ("start", {"over": HOUR, "start": datetime(2030, 1, 1)}),  # noqa: DTZ001
    ],
)
async def test_a_wrong_setting_is_named(still: Docket, name: str, settings: Any):
    with pytest.raises((InvalidType, InvalidArgument), match=name):
        await agenda_of(2).scatter(still, **settings)
    assert (await still.snapshot()).total_tasks == 0


@pytest.mark.parametrize("key", ["", 5, "x" * 1001])
def test_a_wrong_key_is_refused_when_it_is_given(key: Any):
    with pytest.raises((InvalidType, InvalidArgument), match="key"):
        Agenda().add(fetch, key=key)


@pytest.mark.parametrize("settings", [{"over": timedelta.max}, {"over": HOUR, "jitter": timedelta.max}])
async def test_a_time_beyond_all_calendars_is_refused(still: Docket, settings: Any):
    with pytest.raises(InvalidArgument, match=r"over .* jitter"):
        await agenda_of(2).scatter(still, **settings)
    assert (await still.snapshot()).total_tasks == 0
