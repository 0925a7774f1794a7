"""Schedules of a docket, on every store: made, looked at, altered, run and taken away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from dovetail import ConcurrencyLimit, Cron, CurrentExecution, Disposition, Docket, Execution, Perpetual, Retry, Worker
from dovetail.clock import VirtualClock
from dovetail.engine import Countable
from dovetail.errors import (
    DuplicateSchedule,
    InvalidArgument,
    InvalidType,
    PayloadError,
    UnknownSchedule,
    UnknownTask,
    UsageError,
    WrongArgument,
)
from dovetail.model import Claim, Requeue, RunQuery, State
from dovetail.schedules import QUEUE
from dovetail.testing import drain
from dovetail.worker.settler import Settler
from dovetail.worker.ticker import Ticker
from tests.by_hand import at_work, finish
from tests.waiting import soon

MakeWorker = Callable[..., Worker]
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
START = datetime(2030, 1, 1, tzinfo=UTC)  # where a VirtualClock begins

seen: list[tuple[str, datetime]] = []


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    seen.clear()


async def report(what: str, *, copies: int = 1, execution: Execution[None] = CurrentExecution()) -> None:
    seen.append((what, execution.when))


async def other() -> None: ...


async def never(perpetual: Perpetual = Perpetual()) -> None: ...


async def at_nine(cron: Cron = Cron("0 9 * * *")) -> None: ...


async def alone(who: str, limit: ConcurrencyLimit = ConcurrencyLimit("who", max_concurrent=1)) -> None: ...


@pytest.fixture
def worker(still: Docket) -> Worker:
    # A lease that virtual time does not end: each renewal would be a stop of the clock.
    return Worker(still, name="tests", schedule_automatic_tasks=False, redelivery_timeout=DAY)


@asynccontextmanager
async def elapsed(worker: Worker, clock: VirtualClock, duration: timedelta) -> AsyncIterator[None]:
    """While a worker is there, so much time passes."""
    async with at_work(worker):
        await clock.settle()
        await clock.advance(duration)
        yield


async def let_pass(worker: Worker, clock: VirtualClock, duration: timedelta) -> None:
    async with elapsed(worker, clock, duration):
        pass


def hours() -> list[int]:
    """Of the runs so far: how many hours after the start each had its time."""
    return [round((when - START) / HOUR) for _, when in seen]


async def is_empty(docket: Docket) -> bool:
    assert isinstance(docket.engine, Countable)
    while (await docket.engine.sweep(silent_for=timedelta())).more:
        pass
    return not await docket.engine.residue()


# Making


async def test_a_schedule_runs_its_call_at_its_times(still: Docket, worker: Worker, clock: VirtualClock):
    await still.schedules.add("hourly", report, "0 * * * *")("sales")
    await let_pass(worker, clock, 3 * HOUR + MINUTE)
    assert seen == [("sales", START + HOUR), ("sales", START + 2 * HOUR), ("sales", START + 3 * HOUR)]


async def test_a_schedule_goes_every_so_often(still: Docket, worker: Worker, clock: VirtualClock):
    await still.schedules.add("often", report, every=20 * MINUTE)("sales")
    await let_pass(worker, clock, HOUR)
    assert [when for _, when in seen] == [START + 20 * MINUTE, START + 40 * MINUTE, START + HOUR]


async def test_times_are_those_of_the_zone(still: Docket):
    schedule = await still.schedules.add("nightly", report, "0 3 * * *", tz="Europe/Vienna")("sales")
    assert schedule.next_time == datetime(2030, 1, 1, 3, tzinfo=ZoneInfo("Europe/Vienna"))
    assert str(schedule.next_time) == "2030-01-01 03:00:00+01:00"


async def test_clocks_that_go_forward_lose_no_night_and_double_none(url: str):
    clock = VirtualClock(datetime(2030, 3, 29, 12, tzinfo=UTC))
    async with Docket("tests", url, clock=clock) as docket:
        await docket.schedules.add("nightly", report, "30 2 * * *", tz="Europe/Vienna")("sales")
        await let_pass(Worker(docket, schedule_automatic_tasks=False), clock, 3 * DAY)
        await docket.schedules.delete("nightly")
    vienna = ZoneInfo("Europe/Vienna")
    assert [str(when.astimezone(vienna))[8:16] for _, when in seen] == ["30 02:30", "31 03:00", "01 02:30"]


async def test_everything_about_a_schedule_can_be_read(still: Docket):
    made = await still.schedules.add(
        "nightly", report, "0 3 * * *", tz="Europe/Vienna", overlap="skip", misfire="all", until=START + 9 * DAY,
        queue="slow", priority=4, group="acme", tags=["money"],
    )("sales", copies=2)  # fmt: skip
    found = await still.schedules.get("nightly")
    assert found is not None
    assert found == made
    assert (found.name, found.task, found.args, found.kwargs) == ("nightly", "report", ("sales",), {"copies": 2})
    assert (found.cron, found.every, found.tz) == ("0 3 * * *", None, "Europe/Vienna")
    assert (found.overlap, found.misfire, found.until) == ("skip", "all", START + 9 * DAY)
    assert (found.queue, found.priority, found.group, found.tags) == ("slow", 4, "acme", ("money",))
    assert (found.is_paused, found.last_time, found.last_key, found.created) == (False, None, None, START)


async def test_schedules_are_listed_by_name(still: Docket):
    for name in ("b", "c", "a"):
        await still.schedules.add(name, report, every=HOUR)(name)
    assert [schedule.name for schedule in await still.schedules.list()] == ["a", "b", "c"]


async def test_other_runs_under_their_keys_are_no_schedules(still: Docket):
    await still.add(report, key="dovetail.schedule:nightly")("sales")
    await still.schedules.add("hourly", report, every=HOUR)("sales")
    assert [schedule.name for schedule in await still.schedules.list()] == ["hourly"]
    assert await still.schedules.get("nightly") is None


async def test_there_is_none_of_a_name_that_was_never_given(still: Docket):
    assert await still.schedules.get("nightly") is None
    assert await still.schedules.list() == []


async def test_its_runs_have_what_the_schedule_says(still: Docket, worker: Worker, clock: VirtualClock):
    await still.schedules.add("a", report, every=HOUR, queue="slow", priority=4, group="acme", tags=["t"])("x")
    await let_pass(worker, clock, HOUR)
    (run,) = await still.find_all(RunQuery(states=(State.COMPLETED,)))
    assert (run.queue, run.priority, run.group) == ("slow", 4, "acme")
    assert still.execution_of(run).tags == ("t",)
    schedule = await still.schedules.get("a")
    assert schedule is not None
    assert (schedule.last_time, schedule.last_key) == (START + HOUR, run.key)


async def test_its_runs_keep_the_limits_of_their_task(still: Docket, clock: VirtualClock):
    await still.schedules.add("a", alone, every=HOUR, overlap="allow")("ann")
    execution = await still.schedules.trigger("a")
    (run,) = await still.find_all(RunQuery(keys=(execution.key,)))
    assert [limit.capacity for limit in run.limits] == [1]


async def test_to_add_the_same_schedule_again_changes_nothing(still: Docket, clock: VirtualClock):
    first = await still.schedules.add("nightly", report, every=HOUR)("sales")
    await clock.advance(MINUTE)
    assert await still.schedules.add("nightly", report, every=HOUR)("sales") == first


async def test_another_schedule_of_the_same_name_is_refused(still: Docket):
    first = await still.schedules.add("nightly", report, every=HOUR)("sales")
    with pytest.raises(DuplicateSchedule, match="replace=True"):
        await still.schedules.add("nightly", report, every=2 * HOUR)("sales")
    with pytest.raises(DuplicateSchedule):
        await still.schedules.add("nightly", report, every=HOUR)("costs")
    assert await still.schedules.get("nightly") == first


async def test_a_schedule_that_is_replaced_stays_paused_and_keeps_its_next_time(still: Docket, clock: VirtualClock):
    await still.schedules.add("nightly", report, every=HOUR)("sales")
    await still.schedules.pause("nightly", "holidays", "ann")
    await clock.advance(MINUTE)
    replaced = await still.schedules.add("nightly", report, every=HOUR, replace=True)("costs")
    assert replaced.args == ("costs",)
    assert replaced.paused is not None
    assert (replaced.paused.reason, replaced.paused.owner, replaced.paused.since) == ("holidays", "ann", START)
    assert (await still.schedules.resume("nightly")).next_time == START + HOUR


@pytest.mark.parametrize(
    ("name", "function", "options", "error", "says"),
    [
        ("", report, {"every": HOUR}, InvalidArgument, "name"),
        (7, report, {"every": HOUR}, InvalidType, "name"),
        ("x" * 501, report, {"every": HOUR}, InvalidArgument, "500"),
        ("a", "nobody", {"every": HOUR}, UnknownTask, "nobody"),
        ("a", 7, {"every": HOUR}, InvalidType, "function"),
        ("a", report, {}, InvalidArgument, "either"),
        ("a", report, {"cron": "bad"}, InvalidArgument, "bad"),
        ("a", report, {"every": HOUR, "tz": "Nowhere"}, InvalidArgument, "Nowhere"),
        ("a", report, {"every": HOUR, "overlap": "maybe"}, InvalidArgument, "overlap"),
        ("a", report, {"every": HOUR, "misfire": "maybe"}, InvalidArgument, "misfire"),
        ("a", report, {"every": HOUR, "until": START.replace(tzinfo=None)}, InvalidType, "until"),
        ("a", report, {"every": HOUR, "until": START + MINUTE}, InvalidArgument, "until"),
        ("a", report, {"every": HOUR, "queue": ""}, InvalidArgument, "queue"),
        ("a", report, {"every": HOUR, "priority": "high"}, InvalidType, "priority"),
        ("a", report, {"every": HOUR, "group": 1}, InvalidType, "group"),
        ("a", report, {"every": HOUR, "tags": "money"}, InvalidType, "tags"),
        ("a", report, {"every": HOUR, "replace": "yes"}, InvalidType, "replace"),
    ],
)
async def test_what_makes_no_sense_is_refused_at_the_call(
    still: Docket, name: Any, function: Any, options: dict[str, Any], error: type[UsageError], says: str
):
    with pytest.raises(error, match=says):
        await still.schedules.add(name, function, **options)("sales")
    assert await still.schedules.list() == []


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [((), {}, "what"), (("a", "b"), {}, "too many"), (("a",), {"colour": "red"}, "colour")],
)
async def test_arguments_that_the_task_does_not_take_are_refused(still: Docket, args: Any, kwargs: Any, says: str):
    with pytest.raises(WrongArgument, match=says):
        await still.schedules.add("a", report, every=HOUR)(*args, **kwargs)


async def test_an_argument_that_cannot_be_stored_is_refused(still: Docket):
    with pytest.raises(PayloadError):
        await still.schedules.add("a", report, every=HOUR)(object())  # type: ignore[arg-type]


async def test_an_argument_that_is_not_what_its_annotation_says_is_refused(still: Docket):
    with pytest.raises(WrongArgument, match="'copies' of 'report': expected int"):
        await still.schedules.add("a", report, every=HOUR)("sales", copies="two")  # type: ignore[arg-type]
    assert await still.schedules.list() == []
    await still.schedules.add("a", report, every=HOUR)("sales")
    with pytest.raises(WrongArgument, match="'what' of 'report': expected str"):
        await still.schedules.change("a", args=[7])


async def test_the_result_of_a_run_is_no_argument(still: Docket):
    execution = await still.add(other)()
    with pytest.raises(InvalidArgument, match="result of another run"):
        await still.schedules.add("a", report, every=HOUR)(execution)  # type: ignore[arg-type]


@pytest.mark.parametrize("task", [never, at_nine])
async def test_a_task_that_goes_again_by_itself_is_refused(still: Docket, task: Any):
    with pytest.raises(InvalidArgument, match="by itself"):
        await still.schedules.add("a", task, every=HOUR)()


# Altering


async def test_only_what_is_given_changes(still: Docket):
    before = await still.schedules.add("nightly", report, "0 3 * * *", tz="Europe/Vienna", queue="slow")("sales")
    after = await still.schedules.change("nightly", priority=9)
    assert (after.priority, before.priority) == (9, 0)
    assert (after.cron, after.tz, after.queue, after.args, after.next_time) == (
        before.cron, before.tz, before.queue, before.args, before.next_time,
    )  # fmt: skip
    assert await still.schedules.get("nightly") == after


async def test_everything_can_be_changed(still: Docket):
    await still.schedules.add("nightly", report, "0 3 * * *")("sales")
    changed = await still.schedules.change(
        "nightly", every=2 * HOUR, tz="Asia/Tokyo", overlap="allow", misfire="skip", until=START + DAY, args=["costs"],
        kwargs={"copies": 3}, queue="fast", group="acme", tags=["t"],
    )  # fmt: skip
    assert (changed.cron, changed.every, changed.tz, changed.next_time) == (
        None, 2 * HOUR, "Asia/Tokyo", START + 2 * HOUR,
    )  # fmt: skip
    assert (changed.overlap, changed.misfire, changed.until) == ("allow", "skip", START + DAY)
    assert (changed.args, changed.kwargs) == (("costs",), {"copies": 3})
    assert (changed.queue, changed.group, changed.tags) == ("fast", "acme", ("t",))
    assert (await still.schedules.change("nightly", until=None)).until is None


async def test_a_change_that_makes_no_sense_changes_nothing(still: Docket):
    before = await still.schedules.add("nightly", report, every=HOUR)("sales")
    wrongs: list[dict[str, Any]] = [
        {"cron": "bad"}, {"tz": "Nowhere"}, {"args": ["a", "b"]}, {"until": START}, {"overlap": "?"}, {"misfire": "?"},
        {"args": "a"}, {"kwargs": ["a"]},
    ]  # fmt: skip
    for wrong in wrongs:
        with pytest.raises(UsageError):
            await still.schedules.change("nightly", **wrong)
    assert await still.schedules.get("nightly") == before


async def test_a_new_time_that_is_sooner_is_kept(still: Docket, worker: Worker, clock: VirtualClock):
    await still.schedules.add("daily", report, every=DAY)("sales")
    async with at_work(worker):
        await clock.settle()
        await still.schedules.change("daily", every=HOUR)
        await clock.advance(2 * HOUR)
    assert hours() == [1, 2]


async def test_of_a_task_that_is_not_known_here_the_labels_can_be_changed(still: Docket, url: str, clock: VirtualClock):
    await still.schedules.add("nightly", report, every=HOUR)("sales")
    async with Docket("tests", url, clock=clock) as stranger:
        changed = await stranger.schedules.change("nightly", queue="fast", priority=1, group="acme", tags=["t"])
        assert (changed.queue, changed.priority, changed.group, changed.tags) == ("fast", 1, "acme", ("t",))
        assert changed.args == ("sales",)
        with pytest.raises(UnknownTask):
            await stranger.schedules.change("nightly", args=["costs"])


async def test_a_paused_schedule_has_no_times(still: Docket, worker: Worker, clock: VirtualClock):
    await still.schedules.add("hourly", report, every=HOUR)("sales")
    paused = await still.schedules.pause("hourly", "holidays", owner="ann")
    assert paused.paused is not None
    assert (paused.is_paused, paused.next_time, paused.paused.reason, paused.paused.owner) == (
        True, None, "holidays", "ann",
    )  # fmt: skip
    await let_pass(worker, clock, 5 * HOUR)
    assert seen == []


@pytest.mark.parametrize(("misfire", "made"), [("once", [1, 6]), ("all", [1, 2, 3, 4, 5, 6]), ("skip", [6])])
async def test_once_resumed_it_makes_up_for_what_it_missed_as_its_policy_says(
    still: Docket, worker: Worker, clock: VirtualClock, misfire: Any, made: list[int]
):
    await still.schedules.add("hourly", report, every=HOUR, misfire=misfire)("sales")
    await still.schedules.pause("hourly")
    await clock.advance(5 * HOUR + 10 * MINUTE)
    await still.schedules.resume("hourly")
    await let_pass(worker, clock, HOUR)
    assert hours() == made


async def test_to_resume_what_is_not_paused_changes_nothing(still: Docket):
    schedule = await still.schedules.add("hourly", report, every=HOUR)("sales")
    assert await still.schedules.resume("hourly") == schedule


@pytest.mark.parametrize("verb", ["pause", "resume", "change", "trigger", "delete"])
async def test_a_schedule_that_is_not_there_cannot_be_altered(still: Docket, verb: str):
    with pytest.raises(UnknownSchedule, match="nightly"):
        await getattr(still.schedules, verb)("nightly")


async def test_a_deleted_schedule_is_gone_and_leaves_nothing_behind(still: Docket, worker: Worker, clock: VirtualClock):
    await still.schedules.add("hourly", report, every=HOUR)("sales")
    async with elapsed(worker, clock, 2 * HOUR):
        await still.schedules.delete("hourly")
        assert await still.schedules.get("hourly") is None
        await clock.advance(HOUR)
    assert hours() == [1, 2]
    with pytest.raises(UnknownSchedule):
        await still.schedules.delete("hourly")
    await clock.advance(DAY)
    assert await is_empty(still)


async def test_a_name_can_be_used_again(still: Docket):
    await still.schedules.add("hourly", report, every=HOUR)("sales")
    await still.schedules.delete("hourly")
    await still.schedules.add("hourly", report, every=2 * HOUR)("costs")
    assert [schedule.args for schedule in await still.schedules.list()] == [("costs",)]


async def test_after_its_end_a_schedule_is_gone(still: Docket, worker: Worker, clock: VirtualClock):
    await still.schedules.add("hourly", report, every=HOUR, until=START + 2 * HOUR)("sales")
    await let_pass(worker, clock, 5 * HOUR)
    assert hours() == [1, 2]
    assert await still.schedules.get("hourly") is None


# Altering one that ticks


async def ticking(docket: Docket) -> Claim:
    """A claim on the schedule that is due, of a worker that has not said anything yet."""
    (claim,) = (await docket.engine.claim("slow", 1, queues=(QUEUE,), lease=MINUTE)).claims
    return claim


async def conclude(docket: Docket, claim: Claim) -> None:
    await docket.engine.finish([Ticker(docket.engine, docket.codec, docket.clock).verdict(claim)])


async def test_a_change_while_it_ticks_counts_from_the_next_time_on(still: Docket, worker: Worker, clock: VirtualClock):
    await still.schedules.add("hourly", report, every=HOUR)("old")
    await clock.advance(HOUR)
    claim = await ticking(still)
    await still.schedules.change("hourly", args=["new"])
    await still.schedules.change("hourly", priority=3)
    await conclude(still, claim)
    await let_pass(worker, clock, HOUR)
    assert seen == [("old", START + HOUR), ("new", START + 2 * HOUR)]
    assert [schedule.priority for schedule in await still.schedules.list()] == [3]


async def test_a_change_while_a_dying_worker_holds_it_loses_no_time_and_doubles_none(
    still: Docket, worker: Worker, clock: VirtualClock
):
    await still.schedules.add("hourly", report, every=HOUR)("old")
    await clock.advance(HOUR)
    await ticking(still)
    await still.schedules.change("hourly", args=["new"])
    await let_pass(worker, clock, 2 * HOUR)
    assert seen == [("old", START + HOUR), ("new", START + 2 * HOUR), ("new", START + 3 * HOUR)]


async def test_one_that_is_deleted_while_it_ticks_does_not_come_back(
    still: Docket, worker: Worker, clock: VirtualClock
):
    await still.schedules.add("hourly", report, every=HOUR)("sales")
    await clock.advance(HOUR)
    claim = await ticking(still)
    await still.schedules.change("hourly", args=["new"])
    await still.schedules.delete("hourly")
    assert await still.schedules.get("hourly") is None
    await conclude(still, claim)
    await let_pass(worker, clock, 5 * HOUR)
    assert await still.schedules.list() == []
    assert seen == [("sales", START + HOUR)]


async def test_one_that_is_deleted_and_added_again_while_it_ticks_is_the_new_one(still: Docket, clock: VirtualClock):
    await still.schedules.add("hourly", report, every=HOUR)("old")
    await clock.advance(HOUR)
    claim = await ticking(still)
    await still.schedules.delete("hourly")
    await still.schedules.add("hourly", report, every=2 * HOUR)("new")
    await conclude(still, claim)
    assert [schedule.args for schedule in await still.schedules.list()] == [("new",)]


async def test_changes_at_the_same_time_are_all_made(still: Docket):
    await still.schedules.add("hourly", report, every=HOUR)("sales")
    await asyncio.gather(
        still.schedules.change("hourly", priority=7),
        still.schedules.change("hourly", queue="slow"),
        still.schedules.change("hourly", group="acme"),
        still.schedules.change("hourly", tags=["t"]),
        still.schedules.change("hourly", overlap="skip"),
        still.schedules.pause("hourly", "holidays"),
    )
    found = await still.schedules.get("hourly")
    assert found is not None
    assert (found.priority, found.queue, found.group, found.tags, found.overlap, found.is_paused) == (
        7, "slow", "acme", ("t",), "skip", True,
    )  # fmt: skip


async def test_of_many_who_add_a_schedule_one_does(still: Docket):
    made = await asyncio.gather(*(still.schedules.add("hourly", report, every=HOUR)("sales") for _ in range(8)))
    assert len(set(map(repr, made))) == 1
    assert len(await still.find_all(RunQuery(queues=(QUEUE,)))) == 1


async def test_changes_and_ticks_at_once_lose_no_time_and_double_none(
    still: Docket, make_worker: MakeWorker, clock: VirtualClock
):
    await still.schedules.add("often", report, every=SECOND, misfire="all", overlap="allow")("sales")
    workers = [Worker(still, name=name, schedule_automatic_tasks=False) for name in "ab"]
    async with at_work(*workers):
        for number in range(20):
            altering = asyncio.gather(*(still.schedules.change("often", priority=number * 3 + n) for n in range(3)))
            await clock.advance(SECOND)
            await altering
        await clock.advance(SECOND)
    assert sorted(when for _, when in seen) == [START + (number + 1) * SECOND for number in range(21)]


# Overlap


async def with_a_long_run(docket: Docket, worker: Worker, clock: VirtualClock, overlap: Any) -> list[list[int]]:
    """A schedule every hour whose first run takes two and a half: when its runs began, and for which hour."""
    began: list[list[int]] = []
    last_began = asyncio.Event()

    async def long(execution: Execution[None] = CurrentExecution()) -> None:
        now = datetime.fromtimestamp(clock.microseconds() / 1e6, UTC)
        began.append([round((execution.when - START) / HOUR), round((now - START) / MINUTE)])
        if execution.when == START + 4 * HOUR:
            last_began.set()
        if len(began) == 1:
            await clock.sleep(timedelta(minutes=150))

    await docket.schedules.add("hourly", long, every=HOUR, overlap=overlap, until=START + 4 * HOUR)()
    async with elapsed(worker, clock, 6 * HOUR):
        # On a busy machine the last runs may still be on their way from the store when the time has passed.
        await soon(last_began.wait())
    return began


async def test_runs_that_queue_go_one_after_the_other(still: Docket, worker: Worker, clock: VirtualClock):
    began = await with_a_long_run(still, worker, clock, "queue")
    assert [hour for hour, _ in began] == [1, 2, 3, 4]
    assert all(minute >= 210 for _, minute in began[1:])


async def test_none_overtakes_a_run_that_waits_to_be_tried_again(still: Docket, worker: Worker, clock: VirtualClock):
    began: list[int] = []
    last_began = asyncio.Event()

    async def stumble(
        execution: Execution[None] = CurrentExecution(), retry: Retry = Retry(attempts=2, delay=150 * MINUTE)
    ) -> None:
        began.append(round((execution.when - START) / HOUR))
        if began == [1]:
            raise ValueError("not yet")
        if began[-1] == 4:
            last_began.set()

    await still.schedules.add("hourly", stumble, every=HOUR, until=START + 4 * HOUR)()
    async with elapsed(worker, clock, 6 * HOUR):
        await soon(last_began.wait())
    assert began == [1, 1, 2, 3, 4]


@pytest.mark.parametrize("is_gone", [False, True], ids=["waits", "gone"])
async def test_a_tick_that_would_be_handed_back_keeps_the_order(
    still: Docket, worker: Worker, clock: VirtualClock, caplog: pytest.LogCaptureFixture, is_gone: bool
):
    async def stumble(retry: Retry = Retry(attempts=2, delay=DAY)) -> None:
        raise ValueError("not yet")

    await still.schedules.add("hourly", stumble, every=HOUR)()
    await let_pass(worker, clock, HOUR)
    (first,) = await still.find_all(RunQuery(tasks=("stumble",)))
    if is_gone:
        await still.cancel(first.key)
        await still.discard(first.key)
    clock.jump(HOUR)
    caplog.clear()
    ticker, settler = Ticker(still.engine, still.codec, clock), Settler(still.engine, clock)
    settler.give_up = ticker.given_up
    for claim in (await still.engine.claim("worker", 1, lease=HOUR)).claims:
        settler.put(ticker.instead_of_handing_back(Requeue(claim, claim.attempt)))
    settler.close()
    await soon(settler.run())
    second = (await still.find_all(RunQuery(tasks=("stumble",))))[-1]
    expected = (State.QUEUED, ()) if is_gone else (State.WAITING, (first.id,))
    assert (second.id == first.id, second.state, second.parents) == (False, *expected)
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


async def test_a_run_whose_predecessor_is_cancelled_goes(still: Docket, worker: Worker, clock: VirtualClock):
    async def stumble(what: str, retry: Retry = Retry(attempts=2, delay=DAY)) -> None:
        seen.append((what, clock.now()))
        raise ValueError("not yet")

    await still.schedules.add("hourly", stumble, every=HOUR)("sales")
    await let_pass(worker, clock, 2 * HOUR)
    assert hours() == [1]
    waiting, second = await still.find_all(RunQuery(tasks=("stumble",)))
    assert (waiting.state, second.state, second.parents) == (State.SCHEDULED, State.WAITING, (waiting.id,))
    await still.cancel(waiting.key)
    await let_pass(worker, clock, SECOND)
    assert hours() == [1, 2]


async def test_a_time_that_passes_while_a_run_is_at_it_can_be_left_out(
    still: Docket, worker: Worker, clock: VirtualClock
):
    assert await with_a_long_run(still, worker, clock, "skip") == [[1, 60], [4, 240]]


async def test_runs_may_overlap(still: Docket, worker: Worker, clock: VirtualClock):
    assert await with_a_long_run(still, worker, clock, "allow") == [[1, 60], [2, 120], [3, 180], [4, 240]]


# Triggering


@pytest.mark.parametrize("overlap", ["queue", "skip", "allow"])
async def test_a_triggered_run_goes_now_and_moves_nothing(
    still: Docket, worker: Worker, clock: VirtualClock, overlap: Any
):
    schedule = await still.schedules.add("daily", report, every=DAY, overlap=overlap)("sales")
    execution = await still.schedules.trigger("daily")
    assert execution.disposition is Disposition.SCHEDULED
    await let_pass(worker, clock, SECOND)
    assert seen == [("sales", START)]
    assert await execution.get_result() is None
    assert await still.schedules.get("daily") == schedule


async def test_a_triggered_run_is_left_out_where_runs_must_not_overlap(still: Docket):
    await still.schedules.add("daily", report, every=DAY, overlap="skip")("sales")
    first = await still.schedules.trigger("daily")
    second = await still.schedules.trigger("daily")
    assert second.disposition is Disposition.ALREADY_SCHEDULED
    assert second.id == first.id


async def test_a_paused_schedule_can_be_triggered(still: Docket, worker: Worker, clock: VirtualClock):
    await still.schedules.add("daily", report, every=DAY)("sales")
    await still.schedules.pause("daily")
    await still.schedules.trigger("daily")
    await let_pass(worker, clock, SECOND)
    assert len(seen) == 1


# Beside everything else


async def test_times_at_which_no_worker_was_there_are_made_up_for(still: Docket, worker: Worker, clock: VirtualClock):
    await still.schedules.add("once", report, every=HOUR)("once")
    await still.schedules.add("all", report, every=HOUR, misfire="all")("all")
    await clock.advance(3 * HOUR)
    await let_pass(worker, clock, MINUTE)
    assert sorted(seen) == [("all", START + HOUR), ("all", START + 2 * HOUR), ("all", START + 3 * HOUR),
                            ("once", START + HOUR)]  # fmt: skip


async def test_a_worker_that_does_not_know_the_task_places_its_runs(still: Docket, url: str, clock: VirtualClock):
    await still.schedules.add("hourly", report, every=HOUR)("sales")
    async with Docket("tests", url, clock=clock) as stranger:
        worker = Worker(stranger, schedule_automatic_tasks=False, queues=["elsewhere"])
        await let_pass(worker, clock, HOUR + SECOND)
    (run,) = await still.find_all(RunQuery(tasks=("report",)))
    assert (run.state, run.due) == (State.QUEUED, START + HOUR)


async def test_a_stricken_task_does_not_stop_the_schedule(still: Docket, worker: Worker, clock: VirtualClock):
    await still.schedules.add("hourly", report, every=HOUR)("sales")
    await still.strike(report)
    async with elapsed(worker, clock, HOUR + MINUTE):
        await still.restore(report)
        await still.wait_for_strikes_loaded()
        await clock.advance(HOUR)
    assert hours() == [2]


async def test_to_clear_the_docket_keeps_its_schedules(still: Docket):
    await still.schedules.add("hourly", report, every=HOUR)("sales")
    await still.add(report, when=START + DAY)("later")
    assert await still.clear() == 1
    assert [schedule.name for schedule in await still.schedules.list()] == ["hourly"]


async def test_a_schedule_that_waits_is_not_among_the_work(still: Docket):
    await still.schedules.add("hourly", report, every=HOUR)("sales")
    snapshot = await still.snapshot()
    assert (snapshot.total_tasks, list(snapshot.future), list(snapshot.running)) == (0, [], [])
    assert await still.queues() == []
    await still.pause(QUEUE)
    assert [queue.name for queue in await still.queues()] == [QUEUE]


async def test_a_worker_has_finished_when_only_schedules_wait(docket: Docket, make_worker: MakeWorker):
    await docket.schedules.add("daily", report, every=DAY)("daily")
    await docket.schedules.add("paused", report, every=DAY)("paused")
    await docket.schedules.pause("paused")
    await docket.add(report)("now")
    await finish(make_worker())
    assert [what for what, _ in seen] == ["now"]


async def test_a_round_runs_what_a_schedule_has_brought(still: Docket, worker: Worker, clock: VirtualClock):
    await still.schedules.add("hourly", report, every=HOUR)("sales")
    await clock.advance(HOUR)
    assert await soon(worker.run_once()) == 1
    assert hours() == [1]


async def test_draining_leaves_schedules_alone(still: Docket, clock: VirtualClock):
    await still.schedules.add("hourly", report, every=HOUR)("sales")
    await clock.advance(HOUR)
    assert await drain(still, future=True) == 1
    assert hours() == [1]


async def test_a_schedule_outlives_any_number_of_crashes(still: Docket, worker: Worker, clock: VirtualClock):
    await still.schedules.add("hourly", report, every=HOUR)("sales")
    await clock.advance(HOUR)
    for _ in range(10):
        await ticking(still)
        await clock.advance(2 * MINUTE)
    await let_pass(worker, clock, HOUR)
    assert hours() == [1, 2]
