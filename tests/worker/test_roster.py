"""The roster: which runs a worker has in hand, and what has been said about each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from dovetail.model import Claim, Requeue, Settle, State, Verdict
from dovetail.worker.roster import Pace, Reason, Roster, Tenure
from tests.waiting import eventually, soon

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def claim(name: str, epoch: int = 1) -> Claim:
    return Claim(name, epoch, f"key of {name}", "task", b"", 1, NOW)


class Bodies:
    """Runs that end when they are told to."""

    def __init__(self) -> None:
        self.tenures: dict[str, Tenure] = {}
        self.endings: dict[str, asyncio.Future[None]] = {}
        self.cancellations: list[str] = []
        self.settled: list[Verdict] = []
        self.roster = Roster(2, self.attend, self.settled.append, "docket")

    async def attend(self, tenure: Tenure) -> Verdict | None:
        name = tenure.claim.id
        self.tenures[name] = tenure
        ending = self.endings[name] = asyncio.get_running_loop().create_future()
        while not ending.done():
            try:
                await asyncio.shield(ending)
            except asyncio.CancelledError:
                self.cancellations.append(name)
        ending.result()
        return Settle(tenure.claim, State.COMPLETED)

    async def start(self, *names: str) -> None:
        for name in names:
            self.roster.claimed([claim(name)], 100.0, 0.0)
        await asyncio.sleep(0)

    async def end(self, name: str, error: BaseException | None = None) -> None:
        task = self.tenures[name].task
        assert task is not None
        if error is None:
            self.endings[name].set_result(None)
        else:
            self.endings[name].set_exception(error)
        await soon(asyncio.wait([task]))

    async def end_all(self) -> None:
        while tasks := [tenure.task for tenure in self.roster.running if tenure.task is not None]:
            for ending in self.endings.values():
                if not ending.done():
                    ending.set_result(None)
            await asyncio.wait(tasks, timeout=0.1)
            if all(task.done() for task in tasks):
                return


@pytest.fixture
async def bodies() -> AsyncIterator[Bodies]:
    bodies = Bodies()
    yield bodies
    bodies.roster.release_reserve()
    await bodies.end_all()


async def test_a_new_roster_is_idle_and_has_room(bodies: Bodies):
    assert bodies.roster.room == 2
    assert bodies.roster.is_idle.is_set()
    assert bodies.roster.has_room.is_set()


async def test_a_claim_takes_room(bodies: Bodies):
    await bodies.start("a")
    assert bodies.roster.room == 1
    assert bodies.roster.has_room.is_set()
    assert not bodies.roster.is_idle.is_set()
    await bodies.end("a")


async def test_a_full_roster_has_no_room(bodies: Bodies):
    await bodies.start("a", "b")
    assert bodies.roster.room == 0
    assert not bodies.roster.has_room.is_set()
    await bodies.end("a")
    await bodies.end("b")


async def test_a_body_that_ended_makes_room_before_its_verdict_is_written(bodies: Bodies):
    await bodies.start("a", "b")
    await bodies.end("a")
    assert bodies.roster.room == 1
    assert bodies.roster.has_room.is_set()
    await bodies.end("b")


async def test_a_verdict_is_handed_on(bodies: Bodies):
    await bodies.start("a")
    await bodies.end("a")
    assert [verdict.claim.id for verdict in bodies.settled] == ["a"]


async def test_a_run_is_in_hand_until_the_store_has_heard_its_verdict(bodies: Bodies):
    await bodies.start("a")
    await bodies.end("a")
    assert [tenure.claim.id for tenure in bodies.roster.in_hand()] == ["a"]
    assert not bodies.roster.is_idle.is_set()
    bodies.roster.settled(claim("a"))
    assert bodies.roster.in_hand() == []
    assert bodies.roster.is_idle.is_set()


async def test_word_of_an_older_claim_does_not_settle_a_newer_one(bodies: Bodies):
    bodies.roster.claimed([claim("a", epoch=2)], 100.0, 0.0)
    await asyncio.sleep(0)
    await bodies.end("a")
    bodies.roster.settled(claim("a", epoch=1))
    assert len(bodies.roster.in_hand()) == 1


async def test_a_run_can_be_claimed_again_while_its_last_verdict_is_being_written(bodies: Bodies):
    await bodies.start("a")
    await bodies.end("a")
    bodies.roster.claimed([claim("a", epoch=2)], 100.0, 0.0)
    await asyncio.sleep(0)
    bodies.roster.settled(claim("a", epoch=1))
    assert [tenure.claim.epoch for tenure in bodies.roster.in_hand()] == [2]
    await bodies.end("a")
    bodies.roster.settled(claim("a", epoch=2))
    assert bodies.roster.is_idle.is_set()


@pytest.mark.parametrize("error", [ValueError("ours"), SystemExit(1)])
async def test_an_error_of_our_own_frees_the_slot_and_is_logged(
    bodies: Bodies, error: BaseException, caplog: pytest.LogCaptureFixture
):
    await bodies.start("a")
    await bodies.end("a", error)
    assert bodies.roster.room == 2
    assert bodies.roster.is_idle.is_set()
    assert bodies.settled == []
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "'key of a'" in record.getMessage()


async def test_a_run_without_a_verdict_is_let_go(bodies: Bodies):
    async def attend(tenure: Tenure) -> None:
        return None

    roster = Roster(1, attend, bodies.settled.append, "docket")
    roster.claimed([claim("a")], 100.0, 0.0)
    await soon(roster.is_idle.wait())
    assert bodies.settled == []
    assert roster.in_hand() == []


# Stopping


async def test_a_run_that_is_stopped_is_cancelled_with_the_reason(bodies: Bodies):
    await bodies.start("a", "b")
    bodies.roster.stop("a", Reason.STOP)
    await asyncio.sleep(0)
    assert bodies.cancellations == ["a"]
    assert (bodies.tenures["a"].reason, bodies.tenures["b"].reason) == (Reason.STOP, None)
    await bodies.end("a")
    await bodies.end("b")


async def test_to_stop_a_run_that_is_not_here_is_nothing(bodies: Bodies):
    bodies.roster.stop("nobody", Reason.STOP)
    assert bodies.cancellations == []


async def test_a_body_is_cancelled_once_however_often_it_is_asked_to_stop(bodies: Bodies):
    # Every heartbeat says again which runs were asked to stop: a body that cleans up must be left to it.
    await bodies.start("a")
    for _ in range(3):
        bodies.roster.stop("a", Reason.STOP)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert bodies.cancellations == ["a"]
    await bodies.end("a")


async def test_the_first_reason_stands(bodies: Bodies):
    await bodies.start("a")
    bodies.roster.stop("a", Reason.STOP)
    bodies.roster.stop("a", Reason.SHUTDOWN)
    assert bodies.tenures["a"].reason is Reason.STOP
    await bodies.end("a")


@pytest.mark.parametrize("first", [Reason.STOP, Reason.SHUTDOWN])
async def test_a_lost_lease_overrules_every_reason(bodies: Bodies, first: Reason):
    await bodies.start("a")
    bodies.roster.stop("a", first)
    bodies.roster.stop("a", Reason.LOST)
    assert bodies.tenures["a"].reason is Reason.LOST
    await bodies.end("a")


async def test_nothing_overrules_a_lost_lease(bodies: Bodies):
    await bodies.start("a")
    bodies.roster.stop("a", Reason.LOST)
    bodies.roster.stop("a", Reason.STOP)
    assert bodies.tenures["a"].reason is Reason.LOST
    await bodies.end("a")


async def test_all_can_be_stopped(bodies: Bodies):
    await bodies.start("a", "b")
    bodies.roster.stop_all(Reason.SHUTDOWN)
    await asyncio.sleep(0)
    assert sorted(bodies.cancellations) == ["a", "b"]
    await bodies.end("a")
    await bodies.end("b")


async def test_a_run_that_is_stopped_before_it_began_frees_its_slot(bodies: Bodies):
    bodies.roster.claimed([claim("a")], 100.0, 0.0)
    bodies.roster.stop("a", Reason.SHUTDOWN)
    for _ in range(3):
        await asyncio.sleep(0)
    assert bodies.roster.running == []
    assert bodies.tenures == {}
    assert all(isinstance(verdict, Requeue) and verdict.attempt == 1 for verdict in bodies.settled)


async def test_a_run_is_started_in_an_asyncio_task_named_after_it(bodies: Bodies):
    await bodies.start("a")
    task = bodies.tenures["a"].task
    assert task is not None
    assert task.get_name() == "docket - task:key of a"
    await bodies.end("a")


async def test_the_task_factory_of_the_loop_makes_the_tasks(bodies: Bodies):
    made: list[str | None] = []

    def factory(loop: asyncio.AbstractEventLoop, coroutine: object, **options: object) -> asyncio.Task[object]:
        made.append(getattr(coroutine, "__qualname__", None))
        return asyncio.Task(coroutine, loop=loop, **options)  # type: ignore[arg-type]

    loop = asyncio.get_running_loop()
    loop.set_task_factory(factory)  # type: ignore[arg-type]
    try:
        await bodies.start("a")
    finally:
        loop.set_task_factory(None)
    assert len(made) == 1
    await bodies.end("a")


# In reserve


@pytest.fixture
async def full(bodies: Bodies) -> Bodies:
    """Two runs at work and one in reserve."""
    await bodies.start("a", "b", "c")
    return bodies


async def test_what_finds_no_slot_waits_in_reserve(full: Bodies):
    assert sorted(full.tenures) == ["a", "b"]
    assert [tenure.claim.id for tenure in full.roster.running] == ["a", "b"]


async def test_a_run_in_reserve_is_in_hand(full: Bodies):
    assert "c" in [tenure.claim.id for tenure in full.roster.in_hand()]


async def test_a_run_in_reserve_starts_as_soon_as_a_slot_is_free(full: Bodies):
    await full.end("a")
    await asyncio.sleep(0)
    assert "c" in full.tenures
    assert len(full.roster.running) == 2


async def test_runs_in_reserve_start_in_the_order_they_were_claimed(full: Bodies):
    await full.start("d")
    await full.end("a")
    await asyncio.sleep(0)
    assert "c" in full.tenures
    assert "d" not in full.tenures


async def test_a_run_in_reserve_that_is_cancelled_never_starts(full: Bodies):
    full.roster.stop("c", Reason.STOP)
    (verdict,) = full.settled
    assert isinstance(verdict, Settle)
    assert (verdict.claim.id, verdict.state) == ("c", State.CANCELLED)
    await full.end("a")
    await asyncio.sleep(0)
    assert "c" not in full.tenures


async def test_a_run_in_reserve_whose_lease_is_lost_never_starts(full: Bodies):
    full.roster.stop("c", Reason.LOST)
    await full.end("a")
    await asyncio.sleep(0)
    assert "c" not in full.tenures
    assert [verdict.claim.id for verdict in full.settled] == ["a"]


async def test_a_run_in_reserve_that_was_given_up_never_starts(full: Bodies):
    # As the pulse does when it can no longer renew a lease.
    (reserved,) = [tenure for tenure in full.roster.in_hand() if tenure.claim.id == "c"]
    reserved.stop(Reason.LOST)
    await full.end("a")
    await asyncio.sleep(0)
    assert "c" not in full.tenures


async def test_the_reserve_is_handed_back_at_no_cost(full: Bodies):
    full.roster.release_reserve()
    (verdict,) = full.settled
    assert isinstance(verdict, Requeue)
    assert (verdict.claim.id, verdict.attempt, verdict.failure) == ("c", 1, None)
    assert len(full.roster.running) == 2


async def test_a_roster_with_a_reserve_is_not_idle(full: Bodies):
    await full.end("a")
    await full.end("b")
    assert not full.roster.is_idle.is_set()
    for name in "ab":
        full.roster.settled(claim(name))
    assert not full.roster.is_idle.is_set()


# Pace


def test_at_first_nothing_is_held_in_reserve():
    assert Pace().foresight(10) == 0


def test_behind_short_runs_some_are_held_in_reserve():
    pace = Pace()
    for _ in range(200):
        pace.run_took(0.0005)
        pace.claim_took(0.002)
    assert 0 < pace.foresight(10) <= 100


def test_one_long_run_ends_the_reserve_at_once():
    pace = Pace()
    for _ in range(200):
        pace.run_took(0.0005)
        pace.claim_took(0.002)
    pace.run_took(1.0)
    assert pace.foresight(10) == 0


def test_the_reserve_is_bounded_however_short_the_runs():
    pace = Pace()
    for _ in range(1000):
        pace.run_took(0.0)
        pace.claim_took(100.0)
    assert pace.foresight(1_000_000) <= Pace.MOST


# What never began


async def test_a_verdict_says_that_a_body_never_began(bodies: Bodies):
    bodies.roster.claimed([claim("a")], 100.0, 0.0)
    bodies.roster.stop("a", Reason.SHUTDOWN)
    await eventually(lambda: bodies.settled)
    assert bodies.settled == [Requeue(claim("a"), 1, unbegun=True)]


@pytest.mark.parametrize("has_begun", [True, False])
@pytest.mark.parametrize("state", [State.COMPLETED, State.FAILED, State.CANCELLED])
async def test_only_one_that_did_not_complete_can_be_unbegun(state: State, has_begun: bool):
    settled: list[Verdict] = []

    async def attend(tenure: Tenure) -> Verdict:
        tenure.has_begun = has_begun
        return Settle(tenure.claim, state)

    Roster(1, attend, settled.append, "docket").claimed([claim("a")], 100.0, 0.0)
    await eventually(lambda: settled)
    is_unbegun = not has_begun and state is not State.COMPLETED
    assert settled == [Settle(claim("a"), state, unbegun=is_unbegun)]
