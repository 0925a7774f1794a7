"""Assertions on what is scheduled."""

import re
from datetime import timedelta
from typing import Any

import pytest

from dovetail import Docket
from dovetail.clock import VirtualClock
from dovetail.testing import (
    assert_no_tasks,
    assert_scheduled,
    assert_task_count,
    assert_task_not_scheduled,
    assert_task_scheduled,
)
from tests.by_hand import ByHand

HOUR = timedelta(hours=1)


async def send(to: str, subject: str = "hello", **more: Any) -> None: ...


async def bill(customer: int) -> None: ...


def saying(*parts: str) -> str:
    """A pattern for a message that has these parts in this order."""
    return "(?s)" + ".*".join(map(re.escape, parts))


# As docket has them


async def test_a_scheduled_task_is_found(still: Docket) -> None:
    await still.add(send, key="k")("ann", subject="hi")
    await assert_task_scheduled(still, send)
    await assert_task_scheduled(still, "send", args=("ann",), kwargs={"subject": "hi"}, key="k")


@pytest.mark.parametrize(
    ("criteria", "told"),
    [
        ({"args": ("bob",)}, "args=('bob',)"),
        ({"kwargs": {"subject": "ho"}}, "kwargs={'subject': 'ho'}"),
        ({"kwargs": {"other": None}}, "kwargs={'other': None}"),
        ({"key": "other"}, "key='other'"),
    ],
)
async def test_a_task_that_differs_is_not_found(still: Docket, criteria: dict[str, Any], told: str) -> None:
    await still.add(send, key="k")("ann", subject="hi")
    with pytest.raises(AssertionError, match=saying("send", told, "not found", "send('ann', subject='hi') key='k'")):
        await assert_task_scheduled(still, send, **criteria)
    await assert_task_not_scheduled(still, send, **criteria)


async def test_an_empty_docket_is_said_to_be_empty(still: Docket) -> None:
    with pytest.raises(AssertionError, match="no tasks scheduled on docket"):
        await assert_task_scheduled(still, send)


async def test_a_task_that_should_not_be_there_is_shown(still: Docket) -> None:
    await still.add(send)("ann")
    with pytest.raises(AssertionError, match=saying("found, and should not be scheduled", "send('ann')")):
        await assert_task_not_scheduled(still, send)


async def test_tasks_are_counted(still: Docket) -> None:
    await assert_no_tasks(still)
    await still.add(send)("ann")
    await still.add(bill)(1)
    await assert_task_count(still, count=2)
    await assert_task_count(still, "send", count=1)
    with pytest.raises(AssertionError, match=saying("Expected 2", "send", "found 1", "send('ann')")):
        await assert_task_count(still, send, count=2)
    with pytest.raises(AssertionError, match=saying("Expected no tasks", "found 2", "bill(1)")):
        await assert_no_tasks(still)


async def test_what_runs_is_not_scheduled(still: Docket, by_hand: ByHand) -> None:
    await still.add(send)("ann")
    await by_hand.claim()
    await assert_no_tasks(still)


async def test_more_than_a_page_is_seen(still: Docket) -> None:
    await still.add_many([still.call(bill)(number) for number in range(2500)])
    await assert_task_count(still, count=2500)
    await assert_scheduled(still, bill, 2499)
    with pytest.raises(AssertionError, match=r"found 2500(?s:.*)and 2480 more"):
        await assert_no_tasks(still)


# Our own


async def test_the_call_that_was_found_is_returned(still: Docket) -> None:
    await still.add(send, key="k")("ann")
    assert (await assert_scheduled(still, send)).key == "k"


async def test_of_several_the_first_to_become_due_is_returned(still: Docket, clock: VirtualClock) -> None:
    await still.add(send, when=clock.now() + 2 * HOUR, key="second")("ann")
    await still.add(send, when=clock.now() + HOUR, key="first")("ann")
    assert (await assert_scheduled(still, send)).key == "first"


async def test_position_and_name_are_the_same(still: Docket) -> None:
    await still.add(send)("ann", "hi")
    await assert_scheduled(still, send, to="ann", subject="hi")
    await assert_scheduled(still, send, "ann", subject="hi")
    with pytest.raises(AssertionError, match=saying("send('ann', subject='ho') is not scheduled", "other: subject")):
        await assert_scheduled(still, send, "ann", subject="ho")


async def test_arguments_that_fit_no_signature_are_compared_as_they_were_passed(still: Docket) -> None:
    await still.add(bill)(1)
    with pytest.raises(AssertionError, match=saying("bill(1, 2) is not scheduled")):
        await assert_scheduled(still, bill, 1, 2)


async def test_a_task_is_found_under_any_name_it_has(still: Docket) -> None:
    still.register(send, names=["mail"])
    await still.add("mail")("ann")
    await assert_scheduled(still, send, "ann")
    await assert_scheduled(still, "mail", "ann")


async def test_the_due_time_can_be_asked_for(still: Docket, clock: VirtualClock) -> None:
    due = clock.now() + HOUR
    await still.add(send, when=due)("ann")
    await assert_scheduled(still, send, when=due)
    await assert_scheduled(still, send, when=due - timedelta(seconds=5), within=timedelta(seconds=5))
    await assert_scheduled(still, send, within=HOUR)
    with pytest.raises(AssertionError, match=saying("send() due within 0:59:59", "other: due")):
        await assert_scheduled(still, send, within=timedelta(seconds=3599))
    with pytest.raises(AssertionError, match=saying("give or take 0:00:04", "other: due")):
        await assert_scheduled(still, send, when=due - timedelta(seconds=5), within=timedelta(seconds=4))


async def test_the_nearest_is_shown_first(still: Docket) -> None:
    await still.add(bill, key="bill")(1)
    await still.add(send, key="far")("bob", "ho")
    await still.add(send, key="near")("bob", "hi")
    with pytest.raises(AssertionError) as caught:
        await assert_scheduled(still, send, "ann", "hi")
    lines = str(caught.value).splitlines()
    assert [re.findall("key='(.*?)'", line)[0] for line in lines[2:]] == ["near", "far", "bill"]
    assert [line.partition("other: ")[2] for line in lines[2:]] == ["to", "to, subject", "task"]


async def test_what_has_run_already_is_shown(still: Docket, by_hand: ByHand) -> None:
    await still.add(send, key="k")("ann")
    await by_hand.step()
    with pytest.raises(AssertionError, match=saying("nothing is scheduled", "no longer waiting", "'k'", "completed")):
        await assert_scheduled(still, send)


async def test_a_time_without_a_zone_is_refused(still: Docket, clock: VirtualClock) -> None:
    with pytest.raises(TypeError, match="when must know its time zone"):
        await assert_scheduled(still, send, when=clock.now().replace(tzinfo=None))
