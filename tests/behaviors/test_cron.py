"""Cron: a task that goes at set times."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from dovetail import Cron, CurrentExecution, Docket, Execution, Perpetual, Retry, UsageError, Worker
from dovetail.behaviors import Attempt, Outcome
from dovetail.behaviors.cron import SLOT
from dovetail.clock import VirtualClock
from dovetail.errors import InvalidArgument, InvalidType
from dovetail.model import Claim, State
from dovetail.worker.seeder import Seeder
from dovetail.worker.threads import Threads
from tests.by_hand import ByHand, at_work, runs_of
from tests.faults import behind_a_door
from tests.waiting import soon

MakeWorker = Callable[..., Worker]
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
TUESDAY = datetime(2030, 1, 1, tzinfo=UTC)


def times(cron: Cron, start: datetime, until: datetime) -> Iterator[datetime]:
    """All times of an expression, in UTC."""
    while (start := cron.next_time(start).astimezone(UTC)) < until:
        yield start


# Expressions


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("* * * * *", "2030-01-01T00:01:00"),
        ("*/15 * * * *", "2030-01-01T00:15:00"),
        ("0 9 * * *", "2030-01-01T09:00:00"),
        ("0 9 * * MON-FRI", "2030-01-01T09:00:00"),
        ("0 9 * * mon", "2030-01-07T09:00:00"),
        ("0 9 * * 0", "2030-01-06T09:00:00"),
        ("0 9 * * 7", "2030-01-06T09:00:00"),
        ("0 0 1 FEB *", "2030-02-01T00:00:00"),
        ("0 0 L * *", "2030-01-31T00:00:00"),
        ("0 0 * * 5L", "2030-01-25T00:00:00"),
        ("0 0 * * MON#2", "2030-01-14T00:00:00"),
        ("0 0 29 2 *", "2032-02-29T00:00:00"),
        ("0 0 13 * FRI", "2030-01-04T00:00:00"),
        ("5,10 1-3/2 * * *", "2030-01-01T01:05:00"),
        ("  0   9  *  * * ", "2030-01-01T09:00:00"),
        ("30 * * * * *", "2030-01-01T00:00:30"),
        ("*/10 * * * * *", "2030-01-01T00:00:10"),
        ("15 30 9 * * *", "2030-01-01T09:30:15"),
        ("@yearly", "2031-01-01T00:00:00"),
        ("@annually", "2031-01-01T00:00:00"),
        ("@monthly", "2030-02-01T00:00:00"),
        ("@weekly", "2030-01-06T00:00:00"),
        ("@daily", "2030-01-02T00:00:00"),
        ("@midnight", "2030-01-02T00:00:00"),
        ("@hourly", "2030-01-01T01:00:00"),
        ("@Daily", "2030-01-02T00:00:00"),
    ],
)
def test_an_expression_names_its_next_time(expression: str, expected: str):
    assert Cron(expression).next_time(TUESDAY).isoformat() == f"{expected}+00:00"


def test_the_next_time_is_after_the_one_given_and_not_at_it():
    nine = datetime(2030, 1, 1, 9, tzinfo=UTC)
    cron = Cron("0 9 * * *")
    assert cron.next_time(nine - timedelta(microseconds=1)) == nine
    assert cron.next_time(nine) == nine + DAY
    assert cron.next_time(nine + timedelta(microseconds=1)) == nine + DAY


def test_without_a_time_it_is_the_next_from_now():
    now = datetime.now(UTC)
    assert now < Cron("* * * * *").next_time() <= now + 2 * MINUTE


def test_a_cron_shows_what_it_was_made_of():
    cron = Cron("@daily", tz="Europe/Vienna")
    assert (cron.expression, cron.tz, cron.automatic) == ("0 0 * * *", ZoneInfo("Europe/Vienna"), True)
    assert isinstance(cron, Perpetual)


@pytest.mark.parametrize(
    "expression",
    ["", "   ", "bad", "* * * *", "* * * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8",
     "*/0 * * * *", "5-1 * * * *", "@sometimes", "@reboot", "0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 9 * * MOON",
     "0 0 * 2 MON#6", "1,,2 * * * *", "-1 * * * *", "\u0661 * * * *", "0 0 * * * \ud800"],
)  # fmt: skip
def test_an_expression_that_means_nothing_is_refused(expression: str):
    with pytest.raises(InvalidArgument, match="expression"):
        Cron(expression)


@pytest.mark.parametrize("expression", [None, 5, b"* * * * *", ["* * * * *"]])
def test_an_expression_is_text(expression: Any):
    with pytest.raises(InvalidType, match="expression"):
        Cron(expression)


@pytest.mark.parametrize("tz", ["Europe/Wien", "Nowhere", "", "../etc/passwd", "/etc/localtime", "a\x00b", "Europe"])
def test_a_zone_that_is_not_known_is_refused(tz: str):
    with pytest.raises(InvalidArgument, match="tz"):
        Cron("* * * * *", tz=tz)


@pytest.mark.parametrize("tz", [None, 2, b"UTC", HOUR])
def test_a_zone_is_a_zone(tz: Any):
    with pytest.raises(InvalidType, match="tz"):
        Cron("* * * * *", tz=tz)


@pytest.mark.parametrize("wrong", [{"overlap": "perhaps"}, {"misfire": "never"}, {"overlap": None}, {"misfire": []}])
def test_a_policy_that_is_not_known_is_refused(wrong: dict[str, Any]):
    with pytest.raises(UsageError, match="must be one of"):
        Cron("* * * * *", **wrong)


def test_a_time_without_a_zone_is_refused():
    with pytest.raises(InvalidType, match="after"):
        Cron("* * * * *").next_time(datetime(2030, 1, 1))  # noqa: DTZ001


@pytest.mark.parametrize(
    ("tz", "hour"),
    [("Europe/Vienna", 8), (ZoneInfo("Asia/Kolkata"), 3.5), (timezone(timedelta(hours=-3)), 12), (UTC, 9)],
)
def test_times_are_those_of_the_zone(tz: tzinfo | str, hour: float):
    assert Cron("0 9 * * *", tz=tz).next_time(TUESDAY) == TUESDAY + hour * HOUR


# Clocks that go forward and back

SPRING = {
    "Europe/Vienna": ("02:30", "2030-03-31T03:00:00+02:00"),
    "Europe/London": ("01:30", "2030-03-31T02:00:00+01:00"),
    "America/New_York": ("02:00", "2030-03-10T03:00:00-04:00"),
    "America/Havana": ("00:00", "2030-03-10T01:00:00-04:00"),
    "Africa/Cairo": ("00:59", "2030-04-26T01:00:00+03:00"),
    "Asia/Beirut": ("00:15", "2030-03-31T01:00:00+03:00"),
    "Australia/Sydney": ("02:59", "2030-10-06T03:00:00+11:00"),
    "Australia/Lord_Howe": ("02:15", "2030-10-06T02:30:00+11:00"),  # by half an hour
    "Antarctica/Troll": ("01:30", "2030-03-31T03:00:00+02:00"),  # by two hours
    "Pacific/Apia": ("12:00", "2011-12-31T00:00:00+14:00"),  # by a day
}

AUTUMN = {
    "Europe/Vienna": ("02:30", "2030-10-27T02:30:00+02:00"),
    "Europe/London": ("01:59", "2030-10-27T01:59:00+01:00"),
    "America/New_York": ("01:00", "2030-11-03T01:00:00-04:00"),
    "America/Havana": ("00:30", "2030-11-03T00:30:00-04:00"),
    "Australia/Sydney": ("02:30", "2030-04-07T02:30:00+11:00"),
    "Australia/Lord_Howe": ("01:45", "2030-04-07T01:45:00+11:00"),
    "Antarctica/Troll": ("01:30", "2030-10-27T01:30:00+02:00"),
}


def fixed(at: str, form: str) -> str:
    hour, minute = at.split(":")
    return form.format(minute=int(minute), hour=int(hour))


FORMS = ["{minute} {hour} * * *", "0 {minute} {hour} * * *"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("zone", SPRING)
def test_a_time_that_clocks_leap_over_is_run_once_just_after(zone: str, form: str):
    at, expected = SPRING[zone]
    just_after = datetime.fromisoformat(expected)
    cron = Cron(fixed(at, form), tz=zone)
    found = list(times(cron, just_after - 12 * HOUR, just_after + 12 * HOUR - SECOND))
    assert found == [just_after]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("zone", AUTUMN)
def test_a_time_that_comes_twice_is_run_at_the_first(zone: str, form: str):
    at, expected = AUTUMN[zone]
    first = datetime.fromisoformat(expected)
    cron = Cron(fixed(at, form), tz=zone)
    assert list(times(cron, first - 12 * HOUR, first + 12 * HOUR)) == [first]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("zone", AUTUMN)
def test_the_next_time_is_never_one_that_has_been(zone: str, form: str):
    at, expected = AUTUMN[zone]
    first = datetime.fromisoformat(expected).astimezone(UTC)
    cron = Cron(fixed(at, form), tz=zone)
    for minutes in range(0, 240, 5):
        start = first + minutes * MINUTE
        assert cron.next_time(start).astimezone(UTC) > start + 12 * HOUR


@pytest.mark.parametrize("zone", sorted({*SPRING, *AUTUMN}))
def test_a_time_of_day_comes_once_on_every_day_of_a_year(zone: str):
    tz = ZoneInfo(zone)
    start = datetime(2030, 1, 1, tzinfo=tz)
    for at in ("00:00", "00:30", "01:30", "02:00", "02:30", "03:00"):
        found = list(times(Cron(fixed(at, FORMS[0]), tz=tz), start - SECOND, datetime(2031, 1, 1, tzinfo=tz)))
        days = [each.astimezone(tz).date() for each in found]
        assert days == [(start + number * DAY).date() for number in range(365)]


WILD: dict[str, Callable[[datetime], bool]] = {
    "*/30 * * * *": lambda wall: wall.minute % 30 == 0,
    "0 * * * *": lambda wall: wall.minute == 0,
    "*/20 1 * * *": lambda wall: wall.minute % 20 == 0 and wall.hour == 1,
    "15 */2 * * *": lambda wall: wall.minute == 15 and wall.hour % 2 == 0,
}


@pytest.mark.parametrize("expression", WILD)
@pytest.mark.parametrize("turn", [*SPRING.items(), *AUTUMN.items()], ids=lambda turn: turn[0])
def test_with_a_wildcard_every_time_that_the_clock_shows_is_run(expression: str, turn: Any):
    zone, (_, about) = turn
    if zone == "Australia/Lord_Howe" and turn in AUTUMN.items() and expression == "15 */2 * * *":
        pytest.skip("cronsim counts in whole hours, and loses one such time in the night of the half hour")
    start = datetime.fromisoformat(about).astimezone(UTC) - 12 * HOUR
    shown = [start + number * MINUTE for number in range(1, 24 * 60)]
    expected = [each for each in shown if WILD[expression](each.astimezone(ZoneInfo(zone)))]
    assert list(times(Cron(expression, tz=zone), start, start + DAY)) == expected


# From one slot to the next


def seeder_of(docket: Docket) -> Seeder:
    return Seeder(docket.engine, docket.clock, docket.tasks, docket.drafter, lambda: docket.retention)


async def waiting(docket: Docket, key: str) -> Any:
    (run,) = [run for run in await runs_of(docket, key) if not run.state.is_terminal]
    return run


def following(cron: Cron, *, slot: datetime, began: datetime, took: timedelta = timedelta()) -> datetime:
    """The slot after a run that was for one slot, began some time and took a while."""
    attempt = Attempt(Claim("id", 1, "k", "t", b"", 1, slot), (), {}, VirtualClock(began + took), None)  # type: ignore[arg-type]
    due = cron.next_due(attempt, Outcome(took))
    assert isinstance(due, datetime)
    return due


def test_the_next_slot_follows_this_one():
    assert following(Cron("* * * * *"), slot=TUESDAY, began=TUESDAY) == TUESDAY + MINUTE


@pytest.mark.parametrize("early", [timedelta(microseconds=1), SECOND, HOUR, 400 * DAY])
@pytest.mark.parametrize("misfire", ["once", "all"])
@pytest.mark.parametrize("overlap", ["queue", "skip"])
def test_a_slot_is_not_run_again_when_the_clock_was_set_back(early: timedelta, misfire: Any, overlap: Any):
    cron = Cron("* * * * *", misfire=misfire, overlap=overlap)
    assert following(cron, slot=TUESDAY, began=TUESDAY - early) == TUESDAY + MINUTE


def test_a_slot_in_the_hour_that_comes_twice_is_not_run_again_by_a_late_worker():
    slot = datetime(2030, 10, 27, 0, 30, tzinfo=UTC)  # half past two, for the first time
    cron = Cron("30 2 * * *", tz="Europe/Vienna")
    assert following(cron, slot=slot, began=slot + 40 * MINUTE) == slot + 25 * HOUR


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [("queue", TUESDAY + MINUTE), ("skip", TUESDAY + 4 * MINUTE)],
)
def test_a_slot_that_passes_during_the_run_is_queued_or_skipped(overlap: Any, expected: datetime):
    cron = Cron("* * * * *", overlap=overlap)
    assert following(cron, slot=TUESDAY, began=TUESDAY, took=3.5 * MINUTE) == expected


def test_a_slot_at_the_very_end_of_the_run_has_passed():
    cron = Cron("* * * * *", overlap="skip")
    assert following(cron, slot=TUESDAY, began=TUESDAY, took=MINUTE) == TUESDAY + 2 * MINUTE


@pytest.mark.parametrize(
    ("misfire", "expected"),
    [("once", TUESDAY + 61 * MINUTE), ("all", TUESDAY + MINUTE)],
)
def test_slots_without_a_worker_are_made_up_for_once_or_all(misfire: Any, expected: datetime):
    cron = Cron("* * * * *", misfire=misfire)
    assert following(cron, slot=TUESDAY, began=TUESDAY + 60.5 * MINUTE) == expected


def test_to_skip_overlaps_and_make_up_for_all_others_go_together():
    cron = Cron("* * * * *", overlap="skip", misfire="all")
    assert following(cron, slot=TUESDAY, began=TUESDAY, took=3.5 * MINUTE) == TUESDAY + 4 * MINUTE
    late = following(cron, slot=TUESDAY, began=TUESDAY + 10 * MINUTE, took=3.5 * MINUTE)
    assert late == TUESDAY + MINUTE


async def test_it_goes_at_its_times_and_not_before(still: Docket, by_hand: ByHand, clock: VirtualClock):
    ran: list[datetime] = []

    async def report(cron: Cron = Cron("0 9 * * *")) -> None:
        ran.append(clock.now())

    still.register(report)
    await seeder_of(still).seed()
    assert await by_hand.claim_all() == []
    for _ in range(3):
        run = await waiting(still, "report")
        assert run.state is State.SCHEDULED
        clock.jump(run.due - clock.now())
        await by_hand.step()
    assert ran == [TUESDAY + 9 * HOUR + number * DAY for number in range(3)]


async def test_an_hour_without_a_worker_is_made_up_for_slot_by_slot(
    still: Docket, by_hand: ByHand, clock: VirtualClock
):
    async def report(cron: Cron = Cron("*/10 * * * *", misfire="all")) -> None: ...

    still.register(report)
    await seeder_of(still).seed()
    clock.jump(HOUR + MINUTE)
    slots = [(await by_hand.step()).due for _ in range(6)]
    assert slots == [TUESDAY + number * 10 * MINUTE for number in range(1, 7)]
    assert await by_hand.claim_all() == []


async def test_a_failed_run_is_followed_by_the_next_slot(still: Docket, by_hand: ByHand, clock: VirtualClock):
    async def report(cron: Cron = Cron("0 * * * *")) -> None:
        raise ValueError

    still.register(report)
    await seeder_of(still).seed()
    clock.jump(HOUR)
    assert (await by_hand.step()).state is State.FAILED
    assert (await waiting(still, "report")).due == TUESDAY + 2 * HOUR


async def test_a_retry_loses_none_of_the_slots_to_make_up_for(still: Docket, by_hand: ByHand, clock: VirtualClock):
    async def report(
        cron: Cron = Cron("* * * * *", misfire="all"), retry: Retry = Retry(attempts=2, delay=3 * MINUTE)
    ) -> None:
        if retry.attempt == 1:
            raise ValueError

    still.register(report)
    await seeder_of(still).seed()
    clock.jump(MINUTE)
    await by_hand.step()
    clock.jump(3 * MINUTE)
    await by_hand.step()
    assert (await waiting(still, "report")).due == TUESDAY + 2 * MINUTE


async def test_a_run_that_is_tried_again_belongs_to_its_slot(still: Docket, by_hand: ByHand, clock: VirtualClock):
    async def report(cron: Cron = Cron("0 * * * *"), retry: Retry = Retry(attempts=2, delay=MINUTE)) -> None:
        if retry.attempt == 1:
            raise ValueError

    still.register(report)
    await seeder_of(still).seed()
    clock.jump(HOUR)
    await by_hand.step()
    clock.jump(MINUTE)
    await by_hand.step()
    assert (await waiting(still, "report")).due == TUESDAY + 2 * HOUR


async def test_the_body_has_the_last_word(still: Docket, by_hand: ByHand, clock: VirtualClock):
    async def report(cron: Cron = Cron("0 * * * *")) -> None:
        cron.after(5 * MINUTE)

    still.register(report)
    await seeder_of(still).seed()
    clock.jump(HOUR)
    await by_hand.step()
    assert (await waiting(still, "report")).due == clock.now() + 5 * MINUTE


async def test_a_chain_can_be_ended_by_its_body(still: Docket, by_hand: ByHand, clock: VirtualClock):
    async def report(cron: Cron = Cron("0 * * * *", automatic=False)) -> None:
        cron.cancel()

    await still.add(report, key="k")()
    await by_hand.step()
    assert [run.state for run in await runs_of(still, "k")] == [State.COMPLETED]


# Seeding


async def test_a_seed_waits_for_the_next_slot(still: Docket, clock: VirtualClock):
    async def report(cron: Cron = Cron("0 9 * * *", tz="Europe/Vienna")) -> None: ...

    still.register(report)
    await seeder_of(still).seed()
    assert (await waiting(still, "report")).due == TUESDAY + 8 * HOUR


async def test_one_that_is_not_automatic_is_not_seeded(still: Docket, by_hand: ByHand):
    async def report(cron: Cron = Cron("0 9 * * *", automatic=False)) -> None: ...

    still.register(report)
    await seeder_of(still).seed()
    assert (await still.snapshot()).total_tasks == 0
    await still.add(report, key="k")()
    await by_hand.step()  # it goes when it is added, and then at its times
    assert (await waiting(still, "k")).due == TUESDAY + 9 * HOUR


async def test_a_slot_whose_time_has_come_is_not_lost_to_another_seed(
    still: Docket, by_hand: ByHand, clock: VirtualClock
):
    async def report(cron: Cron = Cron("0 * * * *")) -> None: ...

    still.register(report)
    await seeder_of(still).seed()
    clock.jump(HOUR + MINUTE)
    await seeder_of(still).seed()
    assert (await by_hand.step()).due == TUESDAY + HOUR


async def test_a_chain_that_was_cut_is_healed_with_the_next_slot(still: Docket, by_hand: ByHand, clock: VirtualClock):
    async def report(cron: Cron = Cron("0 * * * *")) -> None: ...

    still.register(report)
    await seeder_of(still).seed()
    clock.jump(HOUR)
    await by_hand.step()
    await still.clear()
    await seeder_of(still).seed()
    assert (await waiting(still, "report")).due == TUESDAY + 2 * HOUR


async def test_two_workers_run_each_slot_once_though_their_clocks_differ(url: str, threads: Threads):
    slots: list[datetime] = []

    async def report(execution: Execution[Any] = CurrentExecution(), cron: Cron = Cron("* * * * *")) -> None:
        slots.append(execution.when)

    ahead, behind = VirtualClock(TUESDAY), VirtualClock(TUESDAY - 90 * SECOND)
    async with Docket("tests", url, clock=ahead) as one, Docket("tests", url, clock=behind) as two:
        for _ in range(20):
            for docket, clock in ((one, ahead), (two, behind)):
                docket.register(report)
                await seeder_of(docket).seed()
                await ByHand(docket, threads).step_through()
                clock.jump(15 * SECOND)
    assert slots == [TUESDAY + number * MINUTE for number in range(1, 5)]


async def test_workers_at_work_seed_one_chain(docket: Docket, make_worker: MakeWorker):
    ran: list[int] = []
    twice = asyncio.Event()

    async def tick(cron: Cron = Cron("* * * * * *")) -> None:
        ran.append(1)
        if len(ran) == 2:
            twice.set()

    docket.register(tick)
    behind_a_door(docket)
    async with at_work(make_worker(name="one"), make_worker(name="two")):
        await soon(twice.wait())
    slots = [run.due for run in await runs_of(docket, "tick")]
    assert len(slots) == len(set(slots)) == len(ran) + 1


def test_a_slot_that_passes_while_a_run_waits_to_be_tried_again_is_queued():
    attempt = Attempt(
        Claim("id", 1, "k", "t", b"", 2, TUESDAY + 70 * MINUTE, headers={SLOT: TUESDAY.isoformat()}),
        (), {}, VirtualClock(TUESDAY + 70 * MINUTE), None,  # type: ignore[arg-type]
    )  # fmt: skip
    assert Cron("0 * * * *").next_due(attempt, Outcome(timedelta())) == TUESDAY + HOUR
    assert Cron("0 * * * *", overlap="skip").next_due(attempt, Outcome(timedelta())) == TUESDAY + 2 * HOUR
