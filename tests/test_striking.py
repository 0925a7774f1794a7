"""Striking: what is stricken is neither scheduled nor started, whoever asks, until it is restored."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dovetail import Disposition, Docket, EngineUnavailable, Execution, ExecutionCancelled, Perpetual, Retry, Worker
from dovetail.clock import VirtualClock, from_microseconds
from dovetail.errors import InvalidArgument
from dovetail.model import RunQuery, State
from dovetail.strikelist import StrikeList
from tests.by_hand import ByHand, at_work, finish, run_of
from tests.conftest import MakeWorker
from tests.faults import behind_a_door
from tests.waiting import eventually, soon

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


class Calls:
    """What ran."""

    def __init__(self) -> None:
        self.seen: list[str] = []


calls = Calls()


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    calls.seen = []


async def send(to: str, amount: int = 1) -> None:
    calls.seen.append(to)


async def receive(to: str) -> None:
    calls.seen.append(f"from {to}")


# At scheduling


async def test_a_stricken_call_is_not_scheduled(still: Docket, caplog: pytest.LogCaptureFixture):
    await still.strike(send)
    execution = await still.add(send, key="a")("ann")
    assert execution.disposition is Disposition.STRUCK
    assert execution.state is State.SCHEDULED
    assert await still.get_execution("a") is None
    assert "send(...){a} is stricken and was not scheduled" in caplog.text


async def test_only_what_matches_is_stricken(still: Docket):
    await still.strike(send, "amount", ">=", 100)
    await still.strike(None, "to", "==", "ann")
    dispositions = [
        (await still.add(send)("bob", 99)).disposition,
        (await still.add(send)("bob", amount=100)).disposition,
        (await still.add(send)(to="ann")).disposition,
        (await still.add(receive)("ann")).disposition,
        (await still.add(receive)("bob")).disposition,
    ]
    assert dispositions == ["scheduled", "struck", "struck", "struck", "scheduled"]


async def test_a_default_counts_as_an_argument(still: Docket):
    await still.strike(send, "amount", "==", 1)
    assert (await still.add(send)("ann")).disposition is Disposition.STRUCK


async def test_a_stricken_replacement_leaves_what_waits(still: Docket, clock: VirtualClock):
    await still.add(send, when=clock.now() + HOUR, key="a")("ann")
    await still.strike(None, "to", "==", "bob")
    execution = await still.replace(send, clock.now(), "a")("bob")
    assert execution.disposition is Disposition.STRUCK
    assert (await run_of(still, key="a")).due == clock.now() + HOUR


async def test_a_batch_is_judged_call_by_call(still: Docket):
    await still.strike(None, "to", "==", "ann")
    call = still.call(send)
    executions = await still.add_many([call("bob"), call("ann"), call("carl"), call("ann")], chunk_size=1)
    assert [each.disposition for each in executions] == ["scheduled", "struck", "scheduled", "struck"]
    assert [each.args for each in executions] == [("bob",), ("ann",), ("carl",), ("ann",)]
    assert len((await still.engine.find(RunQuery())).items) == 2


async def test_a_ready_made_execution_is_judged_as_well(still: Docket, clock: VirtualClock):
    await still.strike(send)
    execution = await still.schedule(Execution(still, send, ("ann",), {}, "a", clock.now()))
    assert execution.disposition is Disposition.STRUCK


async def test_a_docket_just_opened_knows_what_was_stricken_before(still: Docket, url: str):
    await still.strike(send)
    async with Docket("tests", url) as fresh:
        assert (await fresh.add(send)("ann")).disposition is Disposition.STRUCK


async def test_a_docket_opened_again_knows_what_was_stricken_meanwhile(still: Docket, url: str):
    again = Docket("tests", url)
    async with again:
        await again.add(send)("ann")
    await still.strike(send)
    async with again:
        assert (await again.add(send)("ann")).disposition is Disposition.STRUCK


async def test_a_call_is_not_scheduled_while_the_strikes_cannot_be_read(url: str, monkeypatch: pytest.MonkeyPatch):
    async def away(self: StrikeList) -> None:
        raise EngineUnavailable("the door is shut")

    monkeypatch.setattr(StrikeList, "_read_strikes", away)
    async with Docket("tests", url) as fresh:
        with pytest.raises(EngineUnavailable, match="door"):
            await fresh.add(send)("ann")


async def test_strikes_outlive_the_program(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/strikes.db"
    async with Docket("tests", url) as first:
        await first.strike(send, reason="bounces")
    async with Docket("tests", url) as second:
        assert [strike.reason for strike in await second.strikes()] == ["bounces"]
        assert (await second.add(send)("ann")).disposition is Disposition.STRUCK


async def test_what_is_restored_is_scheduled_again(still: Docket):
    await still.strike(send)
    await still.restore(send)
    assert still.strike_list.is_clear
    assert (await still.add(send)("ann")).disposition is Disposition.SCHEDULED


async def test_a_strike_ends_with_its_time(still: Docket, clock: VirtualClock):
    await still.strike(send, until=clock.now() + MINUTE)
    assert (await still.add(send)("ann")).disposition is Disposition.STRUCK
    clock.jump(MINUTE)
    assert (await still.add(send)("ann")).disposition is Disposition.SCHEDULED


async def test_clearing_leaves_the_strikes(still: Docket):
    await still.strike(send)
    await still.clear()
    assert len(await still.strikes()) == 1


async def test_a_condition_of_the_programs_own_strikes_too(still: Docket):
    await still.add(send)("ann")
    still.strike_list.add_condition(lambda execution: execution.key == "a")
    assert (await still.add(send, key="a")("ann")).disposition is Disposition.STRUCK
    assert (await still.add(send, key="b")("ann")).disposition is Disposition.SCHEDULED


async def test_without_strikes_nobody_asks_what_is_stricken(still: Docket, monkeypatch: pytest.MonkeyPatch):
    await soon(still.wait_for_strikes_loaded())

    def asked(*_: Any) -> bool:
        raise AssertionError("asked")

    monkeypatch.setattr(StrikeList, "is_stricken", asked)
    await still.add(send)("ann")
    await still.add_many([still.call(send)("bob")])


# At start


async def test_what_waits_is_cancelled_when_it_would_start(
    still: Docket, by_hand: ByHand, caplog: pytest.LogCaptureFixture
):
    execution = await still.add(send, key="a")("ann")
    await still.strike(None, "to", "==", "ann")
    assert (await by_hand.step()).state is State.CANCELLED
    assert calls.seen == []
    assert "🗙 send(...){a}" in caplog.text
    with pytest.raises(ExecutionCancelled):
        await execution.get_result()


async def test_what_does_not_match_starts(still: Docket, by_hand: ByHand):
    await still.add(send)("bob")
    await still.strike(None, "to", "==", "ann")
    assert (await by_hand.step()).state is State.COMPLETED


async def test_what_was_stricken_does_not_come_back_by_itself(docket: Docket, worker: Worker):
    await docket.add(send)("ann")
    await docket.strike(send)
    await finish(worker)
    await docket.restore(send)
    await docket.add(send)("bob")
    await finish(worker)
    assert calls.seen == ["bob"]


async def test_a_retry_is_stricken_too(still: Docket, by_hand: ByHand):
    async def failing(retry: Retry = Retry(attempts=3)) -> None:
        raise ValueError("no")

    await still.add(failing, key="a")()
    assert (await by_hand.step()).state is State.QUEUED
    await still.strike(failing)
    assert (await by_hand.step()).state is State.CANCELLED


async def test_a_stricken_perpetual_ends(still: Docket, by_hand: ByHand):
    async def tick(perpetual: Perpetual = Perpetual()) -> None: ...

    await still.add(tick, key="tick")()
    await by_hand.step()
    await still.strike(tick)
    assert (await by_hand.step()).state is State.CANCELLED
    assert not (await still.snapshot()).future


async def test_a_worker_knows_the_strikes_before_it_claims(docket: Docket, make_worker: MakeWorker, url: str):
    await docket.add(send, key="a")("ann")
    await docket.strike(send)
    async with Docket("tests", url) as fresh:
        fresh.register(send)
        await finish(make_worker(fresh))
    assert calls.seen == []
    assert (await run_of(docket, key="a")).state is State.CANCELLED


async def test_a_worker_claims_nothing_until_the_strikes_can_be_read(docket: Docket, worker: Worker):
    await docket.add(send, key="a")("ann")
    faults = behind_a_door(docket)
    before: list[int] = []

    async def note_claims() -> None:
        before.append(faults.calls["claim"])

    faults.before["holds"] = note_claims
    faults.fail("holds", 3)
    await finish(worker)
    assert before[0] == 0
    assert faults.calls["holds"] >= 4
    assert calls.seen == ["ann"]


async def test_a_worker_stops_while_it_waits_for_the_strikes(
    url: str, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
):
    async def for_ever(self: StrikeList) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(StrikeList, "_read_strikes", for_ever)
    async with Docket("tests", url) as fresh, make_worker(fresh) as worker:
        running = asyncio.create_task(worker.run_forever())
        await eventually(lambda: worker._crew is not None)  # pyright: ignore[reportPrivateUsage]
        worker.stop()
        await soon(running)


async def test_a_worker_at_work_hears_of_strikes(docket: Docket, make_worker: MakeWorker, url: str):
    async with Docket("tests", url) as other:
        other.register(send)
        async with at_work(make_worker(other)):
            await docket.add(send)("ann")
            await eventually(lambda: calls.seen == ["ann"])
            late = await docket.add(send, when=from_microseconds(docket.clock.microseconds()) + HOUR, key="late")("bob")
            await docket.strike(send)
            await eventually(lambda: "send" in other.strike_list.task_strikes)
            # By a docket that has not heard of the strike, so that it is the worker that refuses.
            docket.strike_list.is_clear = True
            await docket.replace(send, from_microseconds(docket.clock.microseconds()), "late")("bob")
            with pytest.raises(ExecutionCancelled):
                await soon(late.get_result())
    assert calls.seen == ["ann"]


async def test_a_heartbeat_tells_the_list_which_holds_there_are(docket: Docket, worker: Worker):
    noticed: list[int] = []
    docket.strike_list.notice = noticed.append  # type: ignore[method-assign]
    async with at_work(worker):
        await eventually(lambda: bool(noticed))
        before = noticed[-1]
        await docket.strike(send)
        await eventually(lambda: noticed[-1] != before)


# Automatic ones


async def automatic(perpetual: Perpetual = Perpetual(every=HOUR, automatic=True)) -> None:
    calls.seen.append("automatic")


async def test_a_stricken_task_does_not_start_unasked(docket: Docket, worker: Worker):
    docket.register(automatic)
    await docket.strike("automatic")
    await finish(worker)
    assert calls.seen == []
    assert await docket.get_execution("automatic") is None


async def test_a_restored_task_starts_unasked_again(docket: Docket, worker: Worker, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("dovetail.worker.seeder.INTERVAL", timedelta(milliseconds=5))
    docket.register(automatic)
    await docket.strike(automatic)
    async with at_work(worker):
        await docket.restore(automatic)
        await eventually(lambda: calls.seen == ["automatic"])


# Previewing


async def test_a_preview_shows_what_waits_and_would_be_hit(still: Docket, clock: VirtualClock, monkeypatch: Any):
    monkeypatch.setattr("dovetail.previewing.WHOLE", 2)
    for index, to in enumerate(["ann", "bob", "ann", "carl", "ann"]):
        await still.add(send, when=clock.now() + HOUR * (index % 2), key=f"{to}-{index}")(to, index)
    await still.add(receive, key="other")("ann")
    preview = still.preview_strike(send, "to", "==", "ann")
    assert sorted([execution.key async for execution in preview]) == ["ann-0", "ann-2", "ann-4"]
    assert await preview.count() == 3
    assert await still.preview_strike(None, "to", "==", "ann").count() == 4
    assert await still.preview_strike(send).count() == 5
    assert await still.preview_strike(send, "amount", "between", (1, 2)).count() == 2
    assert await still.strikes() == []


async def test_a_preview_leaves_running_runs_out(still: Docket, by_hand: ByHand):
    await still.add(send)("ann")
    await by_hand.claim()
    assert await still.preview_strike(send).count() == 0


async def test_a_preview_does_not_guess_at_arguments_it_cannot_read(still: Docket, url: str):
    async def lenient(to: str = "ann") -> None: ...

    async with Docket("tests", url, codec="pickle") as pickling:
        await pickling.add(lenient)("bob")
    still.register(lenient)
    preview = still.preview_strike(lenient, "to", "==", "ann")
    assert (await preview.count(), preview.unjudged) == (0, 1)
    preview = still.preview_strike(lenient)
    assert (await preview.count(), preview.unjudged) == (1, 0)


def test_a_preview_of_nothing_is_refused(still: Docket):
    with pytest.raises(InvalidArgument, match="a function, a parameter, or both"):
        still.preview_strike()
