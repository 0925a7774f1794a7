"""The ticker: claims of schedules, and what becomes of those that go wrong."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dovetail import Docket
from dovetail.clock import VirtualClock
from dovetail.errors import UnknownParent
from dovetail.model import Claim, Requeue, Settle, State, Verdict
from dovetail.worker.roster import Tenure
from dovetail.worker.ticker import PUT_BACK, Ticker

HOUR = timedelta(hours=1)


async def work() -> None: ...


@pytest.fixture
def ticker(still: Docket, clock: VirtualClock) -> Ticker:
    return Ticker(still.engine, still.codec, clock)


@pytest.fixture
async def claim(still: Docket, clock: VirtualClock) -> Claim:
    await still.schedules.add("hourly", work, every=HOUR)()
    await clock.advance(HOUR)
    (claim,) = (await still.engine.claim("worker", 1, lease=HOUR)).claims
    return claim


OTHER = Claim("id", 1, "key", "work", b"", 1, VirtualClock().now())


async def test_a_tick_ends_with_the_run_and_the_next_tick(ticker: Ticker, claim: Claim):
    verdict = ticker.verdict(claim)
    assert isinstance(verdict, Settle)
    assert [run.task for run in verdict.then] == ["work", "dovetail.schedule"]


async def test_all_other_claims_are_the_runners(ticker: Ticker, claim: Claim):
    asked: list[str] = []

    async def attend(tenure: Tenure) -> Verdict | None:
        asked.append(tenure.claim.task)
        return None

    around = ticker.around(attend)
    assert isinstance(await around(Tenure(claim, 0)), Settle)
    assert await around(Tenure(OTHER, 0)) is None
    assert asked == ["work"]


@pytest.mark.parametrize("payload", [b"", b"broken", b"\x00" * 100])
async def test_one_that_cannot_be_read_is_put_back_and_told_of(
    ticker: Ticker, claim: Claim, payload: bytes, caplog: pytest.LogCaptureFixture
):
    verdict = ticker.verdict(claim.but(payload=payload))
    assert isinstance(verdict, Requeue)
    assert verdict.due == PUT_BACK
    assert "'dovetail.schedule:hourly' cannot go on here" in caplog.text


async def test_a_schedule_whose_end_the_store_does_not_take_tries_again(ticker: Ticker, claim: Claim):
    assert ticker.given_up(claim, ValueError("no")) == Requeue(claim, 1, PUT_BACK)
    failed = ticker.given_up(OTHER, ValueError("no"))
    assert isinstance(failed, Settle)
    assert failed.state is State.FAILED


async def test_a_predecessor_that_is_gone_by_now_is_not_waited_for(ticker: Ticker, claim: Claim):
    verdict = ticker.given_up(claim, UnknownParent("the run before"))
    assert isinstance(verdict, Settle)
    assert [(run.task, run.after) for run in verdict.then] == [("work", ()), ("dovetail.schedule", ())]


async def test_a_tick_is_not_handed_back(ticker: Ticker, claim: Claim):
    for handed_back in (
        Requeue(claim, 1),
        Requeue(claim, 1, timedelta(seconds=5)),
    ):  # the other is put off as a suspect
        assert isinstance(ticker.instead_of_handing_back(handed_back), Settle)
    other = Requeue(OTHER, 1)
    assert ticker.instead_of_handing_back(other) is other
