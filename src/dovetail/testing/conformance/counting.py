"""Retention by count: of the runs of a task that ended alike, the newest stay."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dovetail.clock import VirtualClock
from dovetail.engine import Archives, Engine
from dovetail.errors import UsageError
from dovetail.model import FOREVER, Retention, State
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import (
    HOUR,
    MINUTE,
    SECOND,
    a_run,
    all_runs,
    assert_empty,
    complete,
    fail,
    keys,
    place,
    revive,
    run_of,
    start_one,
    state_of,
    sweep_all,
)

TWO = Retention(keep=2)


async def end(engine: Engine, clock: VirtualClock, *names: str, badly: bool = False, **fields: object) -> list[str]:
    """Run these one after the other; their ids."""
    ids: list[str] = []
    for name in names:
        claim = await start_one(engine, a_run(name, **{"retention": TWO, **fields}))
        await (fail if badly else complete)(engine, claim)
        ids.append(claim.id)
        clock.jump(SECOND)
    return ids


class Counting(Fixtures):
    async def test_the_newest_so_many_stay(self, engine: Engine, clock: VirtualClock) -> None:
        await end(engine, clock, "a", "b", "c", "d")
        assert (await sweep_all(engine)).runs == 2
        assert keys(await all_runs(engine)) == ["c", "d"]

    async def test_what_is_kept_by_count_alone_stays_for_ever(self, engine: Engine, clock: VirtualClock) -> None:
        await end(engine, clock, "a", "b", "c")
        clock.jump(timedelta(days=3650))
        await sweep_all(engine)
        assert keys(await all_runs(engine)) == ["b", "c"]

    async def test_a_duration_beside_it_counts_too(self, engine: Engine, clock: VirtualClock) -> None:
        await end(engine, clock, "a", "b", "c", retention=Retention(completed=HOUR, keep=2))
        await sweep_all(engine)
        assert keys(await all_runs(engine)) == ["b", "c"]
        clock.jump(HOUR)
        await sweep_all(engine)
        await assert_empty(engine)

    async def test_the_newest_is_what_ended_last(self, engine: Engine, clock: VirtualClock) -> None:
        slow = await start_one(engine, a_run("slow", retention=TWO))
        await end(engine, clock, "a", "b")
        await complete(engine, slow)
        await sweep_all(engine)
        assert sorted(keys(await all_runs(engine))) == ["b", "slow"]

    async def test_each_task_is_counted_for_itself(self, engine: Engine, clock: VirtualClock) -> None:
        await end(engine, clock, "a", "b", "c", task="letters")
        await end(engine, clock, "1", "2", "3", task="numbers")
        await sweep_all(engine)
        assert keys(await all_runs(engine)) == ["b", "c", "2", "3"]

    async def test_each_ending_is_counted_for_itself(self, engine: Engine, clock: VirtualClock) -> None:
        await end(engine, clock, "a", "b", "c")
        await end(engine, clock, "x", "y", "z", badly=True)
        await place(engine, *(a_run(name, due=HOUR, retention=TWO) for name in "123"))
        for name in "123":
            await engine.cancel([name])
            clock.jump(SECOND)
        await sweep_all(engine)
        assert sorted(keys(await all_runs(engine))) == ["2", "3", "b", "c", "y", "z"]

    async def test_what_has_no_count_is_not_counted(self, engine: Engine, clock: VirtualClock) -> None:
        await end(engine, clock, "plain", "plainer", "plainest", retention=Retention.of(HOUR))
        await end(engine, clock, "a", "b", "c")
        await sweep_all(engine)
        assert keys(await all_runs(engine)) == ["plain", "plainer", "plainest", "b", "c"]

    async def test_the_run_that_ended_last_says_how_many(self, engine: Engine, clock: VirtualClock) -> None:
        await end(engine, clock, "a", "b", "c", retention=Retention(keep=10))
        await end(engine, clock, "d", retention=Retention(keep=3))
        await sweep_all(engine)
        assert keys(await all_runs(engine)) == ["b", "c", "d"]

    async def test_a_key_that_is_used_again_leaves_the_count_as_it_is(
        self, engine: Engine, clock: VirtualClock
    ) -> None:
        ids = await end(engine, clock, "same", "same", "same")
        clock.jump(MINUTE)
        await sweep_all(engine)
        assert [run.id for run in await all_runs(engine)] == ids[1:]

    async def test_a_sweep_of_what_is_too_many_is_bounded(self, engine: Engine, clock: VirtualClock) -> None:
        await end(engine, clock, *"abcdefg")
        first = await engine.sweep(at_most=2)
        assert (first.runs, first.more) == (2, True)
        assert (await sweep_all(engine, at_most=2)).runs == 3
        assert keys(await all_runs(engine)) == ["f", "g"]

    async def test_live_runs_do_not_count(self, engine: Engine, clock: VirtualClock) -> None:
        await start_one(engine, a_run("running", retention=TWO))
        await place(engine, a_run("later", due=HOUR, retention=TWO))
        await end(engine, clock, "a", "b")
        await sweep_all(engine)
        assert len(await all_runs(engine)) == 4

    async def test_what_goes_again_no_longer_counts(self, engine: Engine, clock: VirtualClock) -> None:
        ids = await end(engine, clock, "a", "b", badly=True)
        assert await revive(engine, ids[1]) == [True]
        await end(engine, clock, "c", badly=True, queue="other")
        await sweep_all(engine)
        assert await state_of(engine, "a") is State.FAILED

    async def test_what_others_wait_on_is_kept_for_them(self, engine: Engine, clock: VirtualClock) -> None:
        (parent,) = await end(engine, clock, "parent")
        await place(engine, a_run("child", after=("parent",), due=HOUR))
        await end(engine, clock, "a", "b", "c")
        assert (await sweep_all(engine)).runs == 1
        await engine.cancel(["child"])
        await sweep_all(engine)
        assert await run_of(engine, parent) is None

    async def test_many_at_once_are_counted_too(self, engine: Engine) -> None:
        runs = [a_run("", retention=TWO) for _ in range(20)]
        await place(engine, *(run.but(key=run.id) for run in runs))
        while claims := (await engine.claim("worker", 20, lease=MINUTE)).claims:
            await complete(engine, *claims)
        await sweep_all(engine)
        assert [run.id for run in await all_runs(engine)] == [run.id for run in runs[-2:]]

    async def test_discarding_all_that_is_counted_leaves_nothing(self, engine: Engine, clock: VirtualClock) -> None:
        ids = await end(engine, clock, "a", "b")
        await engine.discard(ids)
        await assert_empty(engine)

    @pytest.mark.parametrize("forever", [Retention.forever(), Retention.of(FOREVER), Retention(failed=FOREVER)])
    async def test_for_ever_is_for_ever(self, engine: Engine, clock: VirtualClock, forever: Retention) -> None:
        (ended,) = await end(engine, clock, "a", badly=True, retention=forever)
        clock.jump(timedelta(days=36_000))
        await sweep_all(engine)
        assert await run_of(engine, ended) is not None

    async def test_an_archive_that_an_engine_does_not_have_is_refused(self, engine: Engine) -> None:
        archived = a_run("archived", retention=Retention(archive=HOUR))
        if isinstance(engine, Archives):
            await place(engine, a_run("kept"), archived)
            return
        with pytest.raises(UsageError, match="archive"):
            await place(engine, a_run("kept"), archived)
        await assert_empty(engine)
