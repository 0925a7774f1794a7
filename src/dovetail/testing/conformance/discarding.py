"""discard: the record of a run that is over goes at once, and leaves nothing behind."""

from __future__ import annotations

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.model import Cancelled, State
from dovetail.testing.conformance.finding import one_of_each_state
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import (
    HOUR,
    a_run,
    all_runs,
    assert_empty,
    assert_leaves_nothing,
    complete,
    complete_one_by_one,
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
    take,
    take_one,
)


class Discarding(Fixtures):
    async def test_what_is_over_can_be_discarded(self, engine: Engine) -> None:
        claims = await start(engine, a_run("well"), a_run("badly"))
        await complete(engine, claims[0], result=b"result")
        await fail(engine, claims[1])
        await place(engine, a_run("never", due=HOUR))
        await engine.cancel(["never"])
        ids = [run.id for run in await all_runs(engine)]
        assert await engine.discard(ids) == [True, True, True]
        await assert_empty(engine)

    async def test_what_is_not_over_cannot_be_discarded(self, engine: Engine) -> None:
        await one_of_each_state(engine)
        live = [run for run in await all_runs(engine) if not run.state.is_terminal]
        assert await engine.discard([run.id for run in live]) == [False] * 4
        assert [run for run in await all_runs(engine) if not run.state.is_terminal] == live

    async def test_what_is_not_there_cannot_be_discarded(self, engine: Engine) -> None:
        assert await engine.discard(["nobody"]) == [False]
        assert await engine.discard([]) == []

    async def test_what_is_past_its_retention_is_not_there(self, engine: Engine, clock: VirtualClock) -> None:
        claim = await start_one(engine, a_run())
        await complete(engine, claim)
        clock.jump(HOUR)
        assert await engine.discard([claim.id]) == [False]

    async def test_each_of_a_batch_stands_for_itself(self, engine: Engine) -> None:
        first, second = await start(engine, a_run("first"), a_run("second"))
        await complete(engine, first)
        assert await engine.discard([second.id, first.id, first.id, "nobody"]) == [False, True, False, False]
        assert keys(await all_runs(engine)) == ["second"]

    async def test_an_error_history_goes_too(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        await requeue(engine, claim, attempt=2, failure=None)
        claim = await take_one(engine)
        await fail(engine, claim)
        assert await engine.discard([claim.id]) == [True]
        await assert_empty(engine)

    async def test_the_key_of_a_discarded_run_is_unknown(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        await complete(engine, claim)
        await engine.discard([claim.id])
        assert await engine.cancel(["a"]) == [Cancelled.UNKNOWN]
        await place(engine, a_run())
        assert keys(await take(engine)) == ["a"]

    async def test_an_older_run_of_the_key_is_then_the_newest(self, engine: Engine) -> None:
        older = await start_one(engine, a_run())
        await fail(engine, older)
        newer = await start_one(engine, a_run())
        await fail(engine, newer)
        await engine.discard([newer.id])
        assert (await newest(engine, "a")).id == older.id

    async def test_dependents_that_it_had_cancelled_stay_as_they_are(self, engine: Engine) -> None:
        parent = await start_one(engine, a_run("parent"))
        await place(engine, a_run("child", after=("parent",)))
        await fail(engine, parent)
        assert await engine.discard([parent.id]) == [True]
        child = await newest(engine, "child")
        assert (child.state, child.doomed_by) == (State.CANCELLED, parent.id)

    async def test_a_dependent_whose_parent_was_discarded_can_be_revived(
        self, engine: Engine, clock: VirtualClock
    ) -> None:
        parent = await start_one(engine, a_run("parent"))
        await place(engine, a_run("child", after=("parent",)))
        await fail(engine, parent)
        await engine.discard([parent.id])
        child = await newest(engine, "child")
        assert await revive(engine, child.id) == [True]
        assert await complete_one_by_one(engine) == ["child"]
        await assert_leaves_nothing(engine, clock)

    async def test_a_dependent_that_waits_for_others_goes_on(self, engine: Engine, clock: VirtualClock) -> None:
        first, second = await start(engine, a_run("first"), a_run("second"))
        await place(engine, a_run("child", after=("first", "second")))
        await complete(engine, first)
        assert await engine.discard([first.id]) == [True]
        assert await state_of(engine, "child") is State.WAITING
        await complete(engine, second)
        assert await complete_one_by_one(engine) == ["child"]
        await assert_leaves_nothing(engine, clock)

    async def test_a_dependent_can_be_discarded_and_its_parent_revived(
        self, engine: Engine, clock: VirtualClock
    ) -> None:
        parent = await start_one(engine, a_run("parent"))
        await place(engine, a_run("child", after=("parent",)))
        await fail(engine, parent)
        child = await newest(engine, "child")
        assert await engine.discard([child.id]) == [True]
        assert await revive(engine, parent.id) == [True]
        assert await complete_one_by_one(engine) == ["parent"]
        assert await run_of(engine, child.id) is None
        await assert_leaves_nothing(engine, clock)
