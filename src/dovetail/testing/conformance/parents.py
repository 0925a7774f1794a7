"""parents: a run that waits for others goes when they completed, and falls when they fell."""

from __future__ import annotations

import pytest

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.errors import UnknownParent
from dovetail.model import Conflict, Finished, Limit, Placing, Requeue, Settle, State
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import (
    AT_ONCE,
    HOUR,
    LEASE,
    MINUTE,
    SECOND,
    a_run,
    all_runs,
    complete,
    complete_one_by_one,
    completed,
    fail,
    keys,
    newest,
    place,
    requeue,
    run_of,
    start,
    start_one,
    state_of,
    states_of,
    take,
    take_once,
    take_one,
)

UNHAPPY = pytest.mark.parametrize("end", [State.FAILED, State.CANCELLED])


class Parents(Fixtures):
    # Waiting

    async def test_a_child_waits_for_its_parent(self, engine: Engine) -> None:
        parent = a_run("parent")
        _, placement = await place(engine, parent, a_run("child", after=(parent.id,)))
        assert (placement.placing, placement.state) == (Placing.PLACED, State.WAITING)
        claims = await take(engine)
        assert keys(claims) == ["parent"]
        await complete(engine, *claims)
        assert await state_of(engine, "child") is State.QUEUED
        assert keys(await take(engine)) == ["child"]

    async def test_what_a_claim_sets_free_joins_the_order(self, engine: Engine, clock: VirtualClock) -> None:
        """A run that a limit drops may have been the last that another waited for, in a queue that had nothing."""
        cooldown = Limit("cooldown", 1, HOUR, drop=True)
        await start_one(engine, a_run("first", limits=(cooldown,)))
        parent = a_run("parent", priority=1, limits=(cooldown,))
        await place(engine, parent, a_run("child", queue="another", after=(parent.id,), after_failure=True))
        clock.jump(SECOND)
        await place(engine, a_run("later"))
        assert keys(await take_once(engine, 1)) == ["child"]
        assert keys(await take_once(engine, 1)) == ["later"]
        assert await state_of(engine, "parent") is State.CANCELLED

    async def test_a_parent_may_be_named_by_its_key(self, engine: Engine) -> None:
        await place(engine, a_run("parent"), a_run("child", after=("parent",)))
        assert await complete_one_by_one(engine) == ["parent", "child"]

    async def test_a_key_means_its_newest_run(self, engine: Engine) -> None:
        await complete(engine, await start_one(engine, a_run("parent")))
        await place(engine, a_run("parent", due=MINUTE))
        (placement,) = await place(engine, a_run("child", after=("parent",)))
        assert placement.state is State.WAITING

    async def test_an_id_means_that_very_run(self, engine: Engine) -> None:
        first = await start_one(engine, a_run("parent"))
        await complete(engine, first)
        await place(engine, a_run("parent", due=MINUTE))
        (placement,) = await place(engine, a_run("child", after=(first.id,)))
        assert placement.state is State.QUEUED

    async def test_a_child_knows_its_parents(self, engine: Engine) -> None:
        one, two = a_run("one"), a_run("two")
        await place(engine, one, two, a_run("child", after=("one", two.id)))
        assert sorted((await newest(engine, "child")).parents) == sorted([one.id, two.id])

    async def test_a_child_waits_for_every_parent(self, engine: Engine) -> None:
        one, two, three = await start(engine, a_run("1"), a_run("2"), a_run("3"))
        await place(engine, a_run("child", after=("1", "2", "3")))
        await complete(engine, two)
        await complete(engine, one)
        assert await state_of(engine, "child") is State.WAITING
        assert await take(engine) == []
        await complete(engine, three)
        assert keys(await take(engine)) == ["child"]

    async def test_parents_may_complete_in_one_batch(self, engine: Engine) -> None:
        claims = await start(engine, a_run("1"), a_run("2"))
        await place(engine, a_run("child", after=("1", "2")))
        await complete(engine, *claims)
        assert keys(await take(engine)) == ["child"]

    async def test_a_parent_named_twice_is_one_parent(self, engine: Engine) -> None:
        parent = a_run("parent")
        await place(engine, parent, a_run("child", after=("parent", parent.id, "parent")))
        assert await complete_one_by_one(engine) == ["parent", "child"]

    async def test_a_parent_has_many_children(self, engine: Engine) -> None:
        await place(engine, a_run("parent"), *(a_run(f"{n}", after=("parent",)) for n in range(5)))
        await complete(engine, *await take(engine))
        assert keys(await take(engine)) == ["0", "1", "2", "3", "4"]

    async def test_a_chain_may_come_in_one_batch(self, engine: Engine) -> None:
        await place(engine, a_run("a"), a_run("b", after=("a",)), a_run("c", after=("b",)))
        assert await complete_one_by_one(engine) == ["a", "b", "c"]

    async def test_a_diamond_comes_together(self, engine: Engine) -> None:
        await place(
            engine,
            a_run("top"),
            a_run("left", after=("top",)),
            a_run("right", after=("top",)),
            a_run("bottom", after=("left", "right")),
        )
        assert await complete_one_by_one(engine, want=1) == ["top", "left", "right", "bottom"]

    async def test_a_retry_of_a_parent_is_not_its_end(self, engine: Engine) -> None:
        parent = await start_one(engine, a_run("parent"))
        await place(engine, a_run("child", after=("parent",)))
        await requeue(engine, parent, attempt=2)
        assert await state_of(engine, "child") is State.WAITING
        assert await complete_one_by_one(engine) == ["parent", "child"]

    async def test_a_child_with_a_time_ahead_is_scheduled(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, a_run("parent"), a_run("child", after=("parent",), due=MINUTE))
        await complete(engine, *await take(engine))
        assert await state_of(engine, "child") is State.SCHEDULED
        assert await take(engine) == []
        clock.jump(MINUTE)
        assert keys(await take(engine)) == ["child"]

    async def test_a_child_whose_time_came_while_it_waited_is_queued(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, a_run("parent"), a_run("child", after=("parent",), due=SECOND))
        clock.jump(MINUTE)
        claims = await take(engine)
        assert keys(claims) == ["parent"]
        await complete(engine, *claims)
        assert keys(await take(engine)) == ["child"]

    async def test_a_parent_whose_record_is_dropped_at_once_counts(self, engine: Engine) -> None:
        one, two = await start(engine, a_run("1", retention=AT_ONCE), a_run("2"))
        await place(engine, a_run("child", after=("1", "2")))
        await complete(engine, one)
        await complete(engine, two)
        assert keys(await take(engine)) == ["child"]

    async def test_a_parent_past_its_retention_counts(self, engine: Engine, clock: VirtualClock) -> None:
        one = await start_one(engine, a_run("1"))
        await place(engine, a_run("2", due=2 * HOUR), a_run("child", after=("1", "2")))
        await complete(engine, one)
        clock.jump(2 * HOUR)
        await engine.sweep()
        assert await complete_one_by_one(engine) == ["2", "child"]

    # Parents that are over, or never were

    async def test_a_parent_that_completed_already_counts_as_completed(self, engine: Engine) -> None:
        await complete(engine, await start_one(engine, a_run("parent")))
        (placement,) = await place(engine, a_run("child", after=("parent",)))
        assert placement.state is State.QUEUED

    @UNHAPPY
    async def test_a_parent_that_fell_already_cancels(self, engine: Engine, end: State) -> None:
        parent = await start_one(engine, a_run("parent"))
        await engine.finish([Settle(parent, end)])
        child = a_run("child", after=("parent",))
        (placement,) = await place(engine, child)
        assert (placement.id, placement.state) == (child.id, State.CANCELLED)
        run = await newest(engine, "child")
        assert (run.state, run.doomed_by) == (State.CANCELLED, parent.id)

    async def test_a_run_that_falls_when_it_is_scheduled_is_kept_for_its_retention(
        self, engine: Engine, clock: VirtualClock
    ) -> None:
        await fail(engine, await start_one(engine, a_run("parent")))
        child = a_run("child", after=("parent",))
        await place(engine, child)
        clock.jump(child.retention.cancelled - SECOND)
        assert await state_of(engine, "child") is State.CANCELLED

    async def test_a_parent_that_fell_already_outweighs_one_that_is_live(self, engine: Engine) -> None:
        await fail(engine, await start_one(engine, a_run("fallen")))
        await place(engine, a_run("live"))
        (placement,) = await place(engine, a_run("child", after=("live", "fallen")))
        assert placement.state is State.CANCELLED

    async def test_an_unknown_parent_is_an_error(self, engine: Engine) -> None:
        with pytest.raises(UnknownParent, match="nobody"):
            await place(engine, a_run("child", after=("nobody",)))
        assert await all_runs(engine) == []

    async def test_one_unknown_parent_among_others_is_an_error(self, engine: Engine) -> None:
        await place(engine, a_run("parent"))
        with pytest.raises(UnknownParent, match="nobody"):
            await place(engine, a_run("child", after=("parent", "nobody")))
        assert keys(await all_runs(engine)) == ["parent"]

    async def test_of_several_unknown_parents_the_first_is_named(self, engine: Engine) -> None:
        await place(engine, a_run("known"))
        with pytest.raises(UnknownParent, match="'child' is to wait for 'zeus'"):
            await place(engine, a_run("child", after=("known", "zeus", "hera")))

    async def test_of_several_parents_that_fell_before_the_oldest_is_the_cause(self, engine: Engine) -> None:
        old, young = [await start_one(engine, a_run(key)) for key in ("old", "young")]
        await fail(engine, young)
        await fail(engine, old)
        await place(engine, a_run("child", after=("young", "old")))
        assert (await newest(engine, "child")).doomed_by == old.id

    @pytest.mark.parametrize("siblings", [0, 1])
    async def test_a_parent_past_its_retention_is_unknown(
        self, engine: Engine, clock: VirtualClock, siblings: int
    ) -> None:
        parent = await start_one(engine, a_run("parent"))
        await place(engine, *(a_run(f"{n}", after=("parent",), due=2 * HOUR) for n in range(siblings)))
        await complete(engine, parent)
        clock.jump(HOUR)
        for reference in ("parent", parent.id):
            with pytest.raises(UnknownParent):
                await place(engine, a_run("child", after=(reference,)))

    async def test_a_parent_that_fell_with_its_batch_and_is_not_kept_is_unknown(self, engine: Engine) -> None:
        await fail(engine, await start_one(engine, a_run("fallen")))
        fleeting = a_run("fleeting", after=("fallen",), retention=AT_ONCE)
        with pytest.raises(UnknownParent, match="fleeting"):
            await place(engine, fleeting, a_run("child", after=("fleeting",)))

    async def test_a_parent_that_comes_later_in_the_batch_is_unknown(self, engine: Engine) -> None:
        with pytest.raises(UnknownParent):
            await place(engine, a_run("child", after=("parent",)), a_run("parent"))
        assert await all_runs(engine) == []

    async def test_a_run_is_not_its_own_parent(self, engine: Engine) -> None:
        with pytest.raises(UnknownParent):
            await place(engine, a_run("a", after=("a",)))

    async def test_a_parent_in_the_batch_that_was_kept_out_is_the_one_that_kept_it_out(self, engine: Engine) -> None:
        await place(engine, a_run("parent", payload=b"held"))
        placements = await place(engine, a_run("parent"), a_run("child", after=("parent",)))
        assert [each.placing for each in placements] == [Placing.KEPT, Placing.PLACED]
        assert await complete_one_by_one(engine) == ["parent", "child"]

    # Falling

    @UNHAPPY
    async def test_a_parent_that_falls_cancels_its_children(
        self, engine: Engine, clock: VirtualClock, end: State
    ) -> None:
        parent = await start_one(engine, a_run("parent"))
        await place(engine, a_run("child", after=("parent",)))
        clock.jump(SECOND)
        await engine.finish([Settle(parent, end)])
        run = await newest(engine, "child")
        assert (run.state, run.doomed_by, run.finished) == (State.CANCELLED, parent.id, clock.now())
        assert await take(engine) == []

    async def test_a_cascade_reaches_any_depth(self, engine: Engine) -> None:
        chain = [a_run("0"), *(a_run(f"{n}", after=(f"{n - 1}",)) for n in range(1, 51))]
        await engine.schedule(chain)
        await fail(engine, await take_one(engine))
        runs = {run.id: run for run in await all_runs(engine)}
        assert runs[chain[0].id].state is State.FAILED
        assert {runs[run.id].state for run in chain[1:]} == {State.CANCELLED}
        assert [runs[run.id].doomed_by for run in chain[1:]] == [run.id for run in chain[:-1]]

    async def test_a_cascade_reaches_a_diamond_once(self, engine: Engine) -> None:
        await place(
            engine,
            a_run("top"),
            a_run("left", after=("top",)),
            a_run("right", after=("top",)),
            a_run("bottom", after=("left", "right")),
        )
        await fail(engine, await take_one(engine))
        assert await states_of(engine, "left", "right", "bottom") == [State.CANCELLED] * 3
        bottom = await newest(engine, "bottom")
        assert bottom.doomed_by in bottom.parents

    async def test_one_fallen_parent_is_enough(self, engine: Engine) -> None:
        good, bad = await start(engine, a_run("good"), a_run("bad"))
        await place(engine, a_run("child", after=("good", "bad")))
        await fail(engine, bad)
        assert await state_of(engine, "child") is State.CANCELLED
        await complete(engine, good)
        assert await take(engine) == []

    async def test_cancelling_a_pending_parent_cancels_its_children(self, engine: Engine) -> None:
        await place(engine, a_run("a", due=MINUTE), a_run("b", after=("a",)), a_run("c", after=("b",)))
        await engine.cancel(["a"])
        assert await states_of(engine, "a", "b", "c") == [State.CANCELLED] * 3

    async def test_cancelling_a_waiting_run_leaves_its_parent_alone(self, engine: Engine) -> None:
        await place(engine, a_run("a"), a_run("b", after=("a",)), a_run("c", after=("b",)))
        await engine.cancel(["b"])
        assert await states_of(engine, "a", "b", "c") == [State.QUEUED, State.CANCELLED, State.CANCELLED]
        await complete(engine, await take_one(engine))
        assert await take(engine) == []

    async def test_a_poisoned_parent_cancels_its_children(self, engine: Engine, clock: VirtualClock) -> None:
        await start_one(engine, a_run("parent", crash_limit=1))
        await place(engine, a_run("child", after=("parent",)))
        clock.jump(LEASE + SECOND)
        assert await take(engine) == []
        assert await states_of(engine, "parent", "child") == [State.FAILED, State.CANCELLED]

    async def test_a_stopped_parent_whose_worker_died_cancels_its_children(
        self, engine: Engine, clock: VirtualClock
    ) -> None:
        await start_one(engine, a_run("parent"))
        await place(engine, a_run("child", after=("parent",)))
        await engine.cancel(["parent"])
        assert await state_of(engine, "child") is State.WAITING
        clock.jump(LEASE + SECOND)
        assert await take(engine) == []
        assert await states_of(engine, "parent", "child") == [State.CANCELLED, State.CANCELLED]

    async def test_a_fallen_parent_whose_record_is_dropped_at_once_cancels_its_children(self, engine: Engine) -> None:
        parent = await start_one(engine, a_run("parent", retention=AT_ONCE))
        await place(engine, a_run("child", after=("parent",)))
        await fail(engine, parent)
        run = await newest(engine, "child")
        assert (run.state, run.doomed_by) == (State.CANCELLED, parent.id)

    async def test_a_cancelled_child_with_no_retention_is_gone(self, engine: Engine) -> None:
        parent = await start_one(engine, a_run("parent"))
        await place(engine, a_run("child", after=("parent",), retention=AT_ONCE), a_run("last", after=("child",)))
        await fail(engine, parent)
        assert await states_of(engine, "child", "last") == [None, State.CANCELLED]

    async def test_a_cancelled_child_frees_its_key(self, engine: Engine) -> None:
        parent = await start_one(engine, a_run("parent"))
        await place(engine, a_run("child", after=("parent",)))
        await fail(engine, parent)
        (placement,) = await place(engine, a_run("child"))
        assert placement.placing is Placing.PLACED

    async def test_a_fenced_finish_of_a_parent_moves_no_child(self, engine: Engine, clock: VirtualClock) -> None:
        late = await start_one(engine, a_run("parent"), worker="ann")
        await place(engine, a_run("child", after=("parent",)))
        clock.jump(LEASE + SECOND)
        await take_one(engine, worker="bob")
        assert await engine.finish([completed(late)]) == [Finished.FENCED]
        assert await state_of(engine, "child") is State.WAITING

    async def test_an_ended_parent_in_a_batch_with_a_requeued_one_leaves_the_child_waiting(
        self, engine: Engine
    ) -> None:
        one, two = await start(engine, a_run("1"), a_run("2"))
        await place(engine, a_run("child", after=("1", "2")))
        await engine.finish([completed(one), Requeue(two, attempt=2)])
        assert await state_of(engine, "child") is State.WAITING

    # In spite of failure

    @UNHAPPY
    async def test_a_child_may_start_in_spite_of_a_fallen_parent(self, engine: Engine, end: State) -> None:
        parent = await start_one(engine, a_run("parent"))
        await place(engine, a_run("child", after=("parent",), after_failure=True))
        await engine.finish([Settle(parent, end)])
        assert keys(await take(engine)) == ["child"]

    @UNHAPPY
    async def test_a_child_may_start_in_spite_of_a_parent_that_fell_already(self, engine: Engine, end: State) -> None:
        parent = await start_one(engine, a_run("parent"))
        await engine.finish([Settle(parent, end)])
        (placement,) = await place(engine, a_run("child", after=("parent",), after_failure=True))
        assert placement.state is State.QUEUED

    async def test_a_child_that_starts_in_spite_of_failure_waits_for_all(self, engine: Engine) -> None:
        one, two = await start(engine, a_run("1"), a_run("2"))
        await place(engine, a_run("child", after=("1", "2"), after_failure=True))
        await fail(engine, one)
        assert await state_of(engine, "child") is State.WAITING
        await complete(engine, two)
        assert keys(await take(engine)) == ["child"]

    async def test_a_cascade_stops_at_a_child_that_starts_in_spite_of_failure(self, engine: Engine) -> None:
        await place(
            engine,
            a_run("a"),
            a_run("b", after=("a",)),
            a_run("rescue", after=("b",), after_failure=True),
            a_run("last", after=("rescue",)),
        )
        await fail(engine, await take_one(engine))
        assert await states_of(engine, "b", "rescue", "last") == [
            State.CANCELLED,
            State.QUEUED,
            State.WAITING,
        ]
        assert await complete_one_by_one(engine) == ["rescue", "last"]

    async def test_a_replaced_child_no_longer_hangs_on_its_parent(self, engine: Engine) -> None:
        parent = await start_one(engine, a_run("parent"))
        child = a_run("child", after=("parent",))
        await place(engine, child)
        await place(engine, a_run("child", conflict=Conflict.REPLACE, due=MINUTE))
        await fail(engine, parent)
        assert await run_of(engine, child.id) is None
        assert await state_of(engine, "child") is State.SCHEDULED
