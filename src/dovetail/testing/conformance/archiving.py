"""The archive: what is past its retention lies apart, and is found, revived and discarded as before."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dovetail.clock import VirtualClock
from dovetail.engine import Archives, Engine
from dovetail.model import FOREVER, Cancelled, Finished, Placing, Retention, RunQuery, State, Swept
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import (
    AT_ONCE,
    BOOM,
    HOUR,
    MINUTE,
    SECOND,
    a_run,
    all_runs,
    assert_empty,
    complete,
    complete_one_by_one,
    completed,
    fail,
    keys,
    newest,
    place,
    requeue,
    revive,
    run_of,
    start,
    start_one,
    state_of,
    sweep_all,
    take_one,
)

DAY = timedelta(days=1)
A_DAY = Retention(MINUTE, MINUTE, MINUTE, archive=DAY)


async def archived(engine: Engine) -> int:
    assert isinstance(engine, Archives)
    return await engine.archived()


async def put_away(engine: Engine, clock: VirtualClock, *names: str, badly: bool = False) -> list[str]:
    """Run these, and let their retention pass; their ids."""
    claims = await start(engine, *(a_run(name, retention=A_DAY) for name in names))
    await (fail if badly else complete)(engine, *claims)
    clock.jump(MINUTE)
    assert (await sweep_all(engine)).archived == len(names)
    return [claim.id for claim in claims]


class Archiving(Fixtures):
    @pytest.fixture
    def keeper(self, engine: Engine) -> Engine:
        """An engine that has an archive."""
        if not isinstance(engine, Archives):
            pytest.skip("this engine has no archive")
        return engine

    async def test_what_is_past_its_retention_goes_to_the_archive(self, keeper: Engine, clock: VirtualClock) -> None:
        await complete(keeper, *await start(keeper, a_run("a", retention=A_DAY), a_run("b", retention=A_DAY)))
        assert (await keeper.sweep()).archived == 0
        clock.jump(MINUTE)
        assert await keeper.sweep() == Swept(archived=2)
        assert await archived(keeper) == 2
        assert await keeper.sweep() == Swept()

    async def test_it_leaves_the_archive_when_its_time_is_over(self, keeper: Engine, clock: VirtualClock) -> None:
        await put_away(keeper, clock, "a", badly=True)
        clock.jump(DAY)
        assert await all_runs(keeper) == []
        assert await keeper.sweep() == Swept(runs=1)
        await assert_empty(keeper)

    async def test_the_archive_can_be_for_ever(self, keeper: Engine, clock: VirtualClock) -> None:
        await complete(keeper, await start_one(keeper, a_run(retention=Retention(archive=FOREVER))))
        clock.jump(36_000 * DAY)
        await sweep_all(keeper)
        assert keys(await all_runs(keeper)) == ["a"]

    async def test_what_has_no_retention_goes_to_the_archive_at_once(self, keeper: Engine) -> None:
        claim = await start_one(keeper, a_run(retention=AT_ONCE.but(archive=DAY)))
        await complete(keeper, claim, result=b"result")
        assert (await sweep_all(keeper)).archived == 1
        run = await run_of(keeper, claim.id)
        assert run is not None
        assert run.result == b"result"

    async def test_its_record_is_as_it_was(self, keeper: Engine, clock: VirtualClock) -> None:
        claim = await start_one(keeper, a_run(retention=A_DAY, headers={"trace": "1"}, group="x", payload=b"call"))
        await requeue(keeper, claim, attempt=2, failure=BOOM)
        await fail(keeper, await take_one(keeper))
        before = await run_of(keeper, claim.id)
        clock.jump(MINUTE)
        await keeper.sweep()
        assert before is not None
        assert len(before.errors) == 2
        assert await run_of(keeper, claim.id) == before

    async def test_moving_is_bounded(self, keeper: Engine, clock: VirtualClock) -> None:
        await complete(keeper, *await start(keeper, *(a_run(f"{n}", retention=A_DAY) for n in range(5))))
        clock.jump(MINUTE)
        first = await keeper.sweep(at_most=2)
        assert (first.archived, first.more) == (2, True)
        assert (await sweep_all(keeper, at_most=2)).archived == 3
        clock.jump(DAY)
        first = await keeper.sweep(at_most=2)
        assert (first.runs, first.more) == (2, True)
        await sweep_all(keeper, at_most=2)
        await assert_empty(keeper)

    async def test_pages_go_through_both_in_one_order(self, keeper: Engine, clock: VirtualClock) -> None:
        names = [f"{n}" for n in range(9)]
        for n, name in enumerate(names):
            retention = A_DAY if n % 3 else Retention.of(DAY)
            await complete(keeper, await start_one(keeper, a_run(name, retention=retention)))
        clock.jump(MINUTE)
        await sweep_all(keeper)
        assert await archived(keeper) == 6
        assert keys(await all_runs(keeper, limit=2)) == names
        assert keys(await all_runs(keeper, limit=2, newest_first=True)) == names[::-1]
        assert keys(await all_runs(keeper, limit=2, keys=tuple(names[2:6]))) == names[2:6]

    async def test_a_cursor_outlives_the_move(self, keeper: Engine, clock: VirtualClock) -> None:
        names = [f"{n}" for n in range(6)]
        await complete(keeper, *await start(keeper, *(a_run(name, retention=A_DAY) for name in names)))
        found = await all_runs(keeper, limit=6)
        page = await keeper.find(RunQuery(limit=3))
        clock.jump(MINUTE)
        await keeper.sweep(at_most=3)
        rest = await keeper.find(RunQuery(limit=3, cursor=page.cursor))
        assert [*page, *rest] == found

    async def test_numbers_are_not_given_twice(self, keeper: Engine, clock: VirtualClock) -> None:
        await put_away(keeper, clock, "old")
        await complete(keeper, await start_one(keeper, a_run("fleeting", retention=AT_ONCE)))
        await complete(keeper, await start_one(keeper, a_run("new")))
        assert keys(await all_runs(keeper)) == ["old", "new"]
        await put_away(keeper, clock, "newer")
        assert keys(await all_runs(keeper, newest_first=True)) == ["newer", "new", "old"]

    async def test_it_is_found_by_all_that_is_asked(self, keeper: Engine, clock: VirtualClock) -> None:
        (failed,) = await put_away(keeper, clock, "a", badly=True)
        for query in (
            {"ids": (failed,)},
            {"keys": ("a",)},
            {"states": (State.FAILED,)},
            {"tasks": ("task",)},
            {"error_contains": "boom"},
            {"keys": ("a",), "latest": True},
        ):
            assert keys(await all_runs(keeper, **query)) == ["a"], query
        assert await all_runs(keeper, states=(State.QUEUED, State.COMPLETED)) == []

    async def test_the_newest_of_a_key_may_lie_in_the_archive(self, keeper: Engine, clock: VirtualClock) -> None:
        older = await start_one(keeper, a_run("a", retention=Retention.of(DAY)))
        await fail(keeper, older)
        (newer,) = await put_away(keeper, clock, "a")
        assert [run.id for run in await all_runs(keeper, keys=("a",), latest=True)] == [newer]
        assert [run.id for run in await all_runs(keeper, keys=("a",), newest_first=True)] == [newer, older.id]

    async def test_a_survey_leaves_the_archive_out(self, keeper: Engine, clock: VirtualClock) -> None:
        await put_away(keeper, clock, "a")
        assert (await keeper.survey()).counts == []

    async def test_a_request_that_was_made_before_is_known(self, keeper: Engine, clock: VirtualClock) -> None:
        runs = [a_run(key, retention=A_DAY) for key in ("a", "b")]
        runs += [run.but(key=run.id) for run in (a_run(retention=A_DAY) for _ in range(12))]
        await complete(keeper, *await start(keeper, *runs))
        clock.jump(MINUTE)
        await sweep_all(keeper)
        for repeated in (runs[:1], runs[2:3], runs):
            placements = await place(keeper, *repeated)
            assert {(each.placing, each.state) for each in placements} == {(Placing.PLACED, State.COMPLETED)}
        assert len(await all_runs(keeper)) == len(runs)

    async def test_a_verdict_that_was_accepted_before_is_known(self, keeper: Engine, clock: VirtualClock) -> None:
        claim = await start_one(keeper, a_run(retention=A_DAY))
        await complete(keeper, claim)
        clock.jump(MINUTE)
        await keeper.sweep()
        assert await keeper.finish([completed(claim)]) == [Finished.ALREADY]

    async def test_a_key_in_the_archive_is_over_and_free(self, keeper: Engine, clock: VirtualClock) -> None:
        await put_away(keeper, clock, "a")
        assert await keeper.cancel(["a"]) == [Cancelled.OVER]
        (placement,) = await place(keeper, a_run("a"))
        assert placement.placing is Placing.PLACED
        assert await state_of(keeper, "a") is State.QUEUED

    @pytest.mark.parametrize(("badly", "state"), [(False, State.QUEUED), (True, State.CANCELLED)])
    async def test_a_parent_in_the_archive_counts_as_it_ended(
        self, keeper: Engine, clock: VirtualClock, badly: bool, state: State
    ) -> None:
        (parent,) = await put_away(keeper, clock, "parent", badly=badly)
        await place(keeper, a_run("child", after=("parent",)))
        child = await newest(keeper, "child")
        assert (child.state, child.parents) == (state, (parent,))
        assert keys(await all_runs(keeper, parent=parent)) == ["child"]

    async def test_what_others_wait_on_stays_in_the_archive_for_them(self, keeper: Engine, clock: VirtualClock) -> None:
        (parent,) = await put_away(keeper, clock, "parent")
        await place(keeper, a_run("child", after=("parent",), due=2 * DAY))
        clock.jump(DAY)
        assert (await sweep_all(keeper)).runs == 0
        await keeper.cancel(["child"])
        clock.jump(HOUR)
        assert (await sweep_all(keeper)).runs == 2
        assert await run_of(keeper, parent) is None
        await assert_empty(keeper)

    async def test_it_can_be_revived(self, keeper: Engine, clock: VirtualClock) -> None:
        (failed,) = await put_away(keeper, clock, "a", badly=True)
        assert await revive(keeper, failed) == [True]
        assert await archived(keeper) == 0
        assert await complete_one_by_one(keeper) == ["a"]
        clock.jump(MINUTE)
        assert (await sweep_all(keeper)).archived == 1
        assert (await newest(keeper, "a")).id == failed

    async def test_it_is_not_revived_while_its_key_is_taken(self, keeper: Engine, clock: VirtualClock) -> None:
        (failed,) = await put_away(keeper, clock, "a", badly=True)
        await place(keeper, a_run("a"))
        assert await revive(keeper, failed) == [False]
        await sweep_all(keeper)
        assert await archived(keeper) == 1

    async def test_its_dependents_come_back_with_it(self, keeper: Engine, clock: VirtualClock) -> None:
        parent = await start_one(keeper, a_run("parent", retention=A_DAY))
        await place(keeper, a_run("child", after=("parent",), retention=A_DAY))
        await place(keeper, a_run("grandchild", after=("child",), retention=A_DAY))
        await fail(keeper, parent)
        clock.jump(MINUTE)
        assert (await sweep_all(keeper)).archived == 3
        assert await revive(keeper, parent.id) == [True]
        assert await complete_one_by_one(keeper) == ["parent", "child", "grandchild"]

    async def test_a_dependent_stays_down_while_another_parent_in_the_archive_has_failed(
        self, keeper: Engine, clock: VirtualClock
    ) -> None:
        first, second = await put_away(keeper, clock, "first", "second", badly=True)
        await place(keeper, a_run("child", after=("first", "second"), retention=A_DAY))
        assert await revive(keeper, first) == [True]
        assert await state_of(keeper, "child") is State.CANCELLED
        assert await revive(keeper, second) == [True]
        assert await state_of(keeper, "child") is State.WAITING
        assert sorted(await complete_one_by_one(keeper)) == ["child", "first", "second"]

    async def test_a_revived_dependent_counts_a_parent_in_the_archive_as_over(
        self, keeper: Engine, clock: VirtualClock
    ) -> None:
        await put_away(keeper, clock, "done")
        other = await start_one(keeper, a_run("other"))
        await place(keeper, a_run("child", after=("done", "other")))
        await fail(keeper, other)
        assert await revive(keeper, other.id) == [True]
        assert await complete_one_by_one(keeper) == ["other", "child"]

    async def test_it_can_be_discarded(self, keeper: Engine, clock: VirtualClock) -> None:
        ids = await put_away(keeper, clock, "a", "b", badly=True)
        assert await keeper.discard(ids) == [True, True]
        await assert_empty(keeper)

    async def test_what_is_too_many_goes_to_the_archive(self, keeper: Engine, clock: VirtualClock) -> None:
        for name in "abc":
            await complete(keeper, await start_one(keeper, a_run(name, retention=Retention(keep=1, archive=DAY))))
            clock.jump(SECOND)
        assert await sweep_all(keeper) == Swept(archived=2)
        assert keys(await all_runs(keeper)) == ["a", "b", "c"]

    async def test_a_key_that_is_used_again_leaves_it_its_time(self, keeper: Engine, clock: VirtualClock) -> None:
        for _ in range(3):
            await complete(keeper, await start_one(keeper, a_run("same", retention=A_DAY)))
            clock.jump(MINUTE)
        await sweep_all(keeper)
        assert len(await all_runs(keeper)) == 3
