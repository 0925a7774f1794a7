"""The way past dead rows: taken after a slow claim, for a while, and never at the cost of a run."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from dovetail.clock import SYSTEM_CLOCK
from dovetail.engines.postgres import PostgresEngine
from dovetail.engines.postgres.answers import Closing
from dovetail.engines.postgres.shortcut import LONGEST, SLOW, Shortcut
from dovetail.model import NewRun, new_id
from tests.waiting import PATIENCE

LEASE = timedelta(seconds=30)


class Watch:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def last_row(run_id: str = "a") -> Closing:
    return Closing(None, 0, "", None, None, None, 7, '["default"]', 0, run_id, 0, "0", None, None)


def test_after_a_slow_claim_the_next_goes_on_where_it_ended() -> None:
    shortcut = Shortcut(watch := Watch())
    shortcut.note((), last_row(), 2 * SLOW, was_full=True, went_beyond=False)
    assert shortcut.beyond(()) == '{"queues":["default"],"priority":0,"place":0.0,"due":7,"id":"a"}'
    watch.now += LONGEST
    assert shortcut.beyond(()) is None


@pytest.mark.parametrize(("took", "was_full"), [(SLOW / 2, True), (2 * SLOW, False)])
def test_a_claim_that_was_quick_or_brought_all_is_no_reason(took: float, was_full: bool) -> None:
    shortcut = Shortcut(Watch())
    shortcut.note((), last_row(), took, was_full=was_full, went_beyond=False)
    assert shortcut.beyond(()) is None


def test_it_serves_only_a_claim_on_the_same_queues() -> None:
    shortcut = Shortcut(Watch())
    shortcut.note(("default",), last_row(), 2 * SLOW, was_full=True, went_beyond=False)
    assert shortcut.beyond(("other",)) is None
    assert shortcut.beyond(("default",)) is not None


@pytest.fixture
async def engine(postgres_url: str) -> AsyncIterator[PostgresEngine]:
    async with PostgresEngine(postgres_url, new_id(), clock=SYSTEM_CLOCK) as engine:
        yield engine


async def test_no_run_is_left_behind_and_none_comes_twice(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every claim counts as slow, while runs come in before and behind the place where the last one ended."""
    monkeypatch.setattr("dovetail.engines.postgres.shortcut.SLOW", 0.0)
    runs = [NewRun(i := new_id(), i, "task", priority=n % 3, queue="ab"[n % 2]) for n in range(300)]
    seen: list[str] = []

    async def work() -> None:
        while len(seen) < len(runs):
            seen.extend(claim.id for claim in (await engine.claim("w", 7, lease=LEASE)).claims)
            await asyncio.sleep(0)

    async def schedule() -> None:
        for run in runs:
            await engine.schedule([run])

    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(work(), schedule())
    assert sorted(seen) == sorted(run.id for run in runs)


async def test_runs_that_wait_in_several_queues_keep_their_order(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail.engines.postgres.shortcut.SLOW", 0.0)
    placed = [("a", 9), ("a", 1), ("b", 5), ("b", -7), ("a", 5), ("c", 7)]
    await engine.schedule([NewRun(i := new_id(), i, "task", queue=queue, priority=n) for queue, n in placed])
    claims = [(await engine.claim("w", 1, lease=LEASE)).claims[0] for _ in placed]
    assert [claim.priority for claim in claims] == [9, 7, 5, 5, 1, -7]
