"""The lines a worker logs for people: an arrow, a duration and the call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from datetime import timedelta

import pytest

from dovetail import Docket, Perpetual, Retry
from dovetail.clock import VirtualClock
from dovetail.worker.lines import format_duration
from dovetail.worker.roster import Reason
from tests.by_hand import ByHand


class Kept(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[list[logging.LogRecord]]:
    caplog.set_level(logging.INFO, "dovetail.worker")
    logger, kept = logging.getLogger("dovetail.worker"), Kept()
    logger.addHandler(kept)
    yield kept.records
    logger.removeHandler(kept)


@pytest.mark.parametrize(
    ("duration", "shown"),
    [
        (timedelta(), "     0ms"),
        (timedelta(milliseconds=3), "     3ms"),
        (timedelta(seconds=1.5), "  1500ms"),
        (timedelta(seconds=99.9), " 99900ms"),
        (timedelta(seconds=100), "   100s "),
        (timedelta(hours=3), " 10800s "),
        (timedelta(milliseconds=-5), "    -5ms"),
    ],
)
def test_a_duration_is_six_wide(duration: timedelta, shown: str):
    assert format_duration(duration.total_seconds()) == shown


async def test_a_run_begins_with_how_late_it_is_and_ends_with_how_long_it_took(
    still: Docket, by_hand: ByHand, clock: VirtualClock, lines: list[logging.LogRecord]
):
    async def work() -> None:
        clock.jump(timedelta(seconds=2))

    await still.add(work, key="k")()
    clock.jump(timedelta(milliseconds=7))
    await by_hand.step()
    assert [line.getMessage() for line in lines] == ["↪ [     7ms] work(){k}", "↩ [  2000ms] work(){k}"]


async def test_another_attempt_begins_with_another_arrow(
    still: Docket, by_hand: ByHand, lines: list[logging.LogRecord]
):
    async def flaky(retry: Retry = Retry(attempts=2)) -> None:
        if retry.attempt == 1:
            raise ValueError

    await still.add(flaky, key="k")()
    await by_hand.step()
    lines.clear()
    await by_hand.step()
    assert lines[0].getMessage().startswith("↬")
    assert lines[-1].getMessage().startswith("↩")


async def test_a_run_that_goes_on_ends_with_another_arrow(
    still: Docket, by_hand: ByHand, lines: list[logging.LogRecord]
):
    async def tick(perpetual: Perpetual = Perpetual(every=timedelta(minutes=1))) -> None: ...

    await still.add(tick, key="k")()
    await by_hand.step()
    assert lines[-1].getMessage().startswith("↫")


async def test_a_run_that_goes_again_ends_with_another_arrow(
    still: Docket, by_hand: ByHand, lines: list[logging.LogRecord]
):
    async def fail(retry: Retry = Retry(attempts=2)) -> None:
        raise ValueError

    await still.add(fail, key="k")()
    await by_hand.step()
    assert any(line.getMessage().startswith("↫") for line in lines)


async def test_a_failure_is_an_error_with_its_traceback(still: Docket, by_hand: ByHand, lines: list[logging.LogRecord]):
    async def fail() -> None:
        raise ValueError("no")

    await still.add(fail, key="k")()
    await by_hand.step()
    (line,) = [line for line in lines if line.levelno == logging.ERROR]
    assert "fail(){k}" in line.getMessage()
    assert line.exc_info is not None
    assert line.exc_info[0] is ValueError


@pytest.mark.parametrize(("reason", "what"), [(Reason.STOP, "cancelled"), (Reason.SHUTDOWN, "handed back")])
async def test_a_run_that_was_stopped_is_crossed_out(
    still: Docket, by_hand: ByHand, lines: list[logging.LogRecord], reason: Reason, what: str
):
    started = asyncio.Event()

    async def work() -> None:
        started.set()
        await asyncio.Event().wait()

    await still.add(work, key="k")()
    await by_hand.attempt(stop_for=reason, once=started)
    assert lines[-1].getMessage() == f"✗ work(){{k}} ({what})"


async def test_every_line_carries_the_labels_of_its_run(still: Docket, by_hand: ByHand, lines: list[logging.LogRecord]):
    async def work() -> None: ...

    await still.add(work, key="k")()
    await by_hand.step()
    for line in lines:
        labels = {name: value for name, value in vars(line).items() if name.startswith("docket.")}
        assert labels["docket.name"] == "tests"
        assert labels["docket.task"] == "work"
        assert labels["docket.key"] == "k"
        assert labels["docket.attempt"] == 1
