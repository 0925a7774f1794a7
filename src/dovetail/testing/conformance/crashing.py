"""Crashes that a worker reports: the process of a run died, and the worker did not."""

from __future__ import annotations

import pytest

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.model import Claim, Failure, Finished, Limit, Requeue, State
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import (
    MINUTE,
    a_run,
    crash,
    keys,
    newest,
    place,
    requeue,
    start_one,
    state_of,
    take,
    take_one,
)

DIED = Failure("ProcessDied", "killed by SIGSEGV")


def crashed(claim: Claim) -> Requeue:
    return Requeue(claim, claim.attempt, failure=DIED, crashed=True)


class Crashing(Fixtures):
    async def test_a_crash_that_is_reported_is_counted_and_costs_no_attempt(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run(attempt=2), worker="ann")
        assert await engine.finish([crashed(claim)]) == [Finished.DONE]
        again = await take_one(engine)
        assert (again.id, again.attempt, again.crashes, again.redelivered) == (claim.id, 2, 1, True)
        assert again.epoch > claim.epoch
        run = await newest(engine, "a")
        assert [(each.attempt, each.worker, each.failure) for each in run.errors] == [(2, "ann", DIED)]

    @pytest.mark.parametrize("crash_limit", [1, 3])
    async def test_at_the_crash_limit_the_run_is_poisoned_and_says_how_it_died(
        self, engine: Engine, clock: VirtualClock, crash_limit: int
    ) -> None:
        await place(engine, a_run(crash_limit=crash_limit))
        for _ in range(crash_limit):
            assert await engine.finish([crashed(await take_one(engine))]) == [Finished.DONE]
        assert await take(engine) == []
        run = await newest(engine, "a")
        assert (run.state, run.crashes, run.finished) == (State.FAILED, crash_limit, clock.now())
        assert run.error == f"Poisoned: the run crashed {crash_limit} times; the last time: {DIED}"
        assert [each.failure.type for each in run.errors] == ["ProcessDied"] * (crash_limit - 1) + ["Poisoned"]

    async def test_crashes_that_are_reported_and_leases_that_lapse_add_up(
        self, engine: Engine, clock: VirtualClock
    ) -> None:
        await place(engine, a_run())
        await crash(engine, clock)
        await engine.finish([crashed(await take_one(engine))])
        await engine.finish([crashed(await take_one(engine))])
        assert await state_of(engine, "a") is State.FAILED

    async def test_a_report_that_is_repeated_counts_once(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        assert await engine.finish([crashed(claim)]) == [Finished.DONE]
        assert await engine.finish([crashed(claim)]) == [Finished.ALREADY]
        assert (await newest(engine, "a")).crashes == 1

    async def test_the_report_of_the_last_crash_may_be_repeated(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run(crash_limit=1))
        assert await engine.finish([crashed(claim)]) == [Finished.DONE]
        assert await engine.finish([crashed(claim)]) == [Finished.ALREADY]
        assert (await newest(engine, "a")).crashes == 1

    async def test_a_late_report_is_fenced(self, engine: Engine, clock: VirtualClock) -> None:
        claim = await start_one(engine, a_run())
        clock.jump(MINUTE)
        await take_one(engine)
        assert await engine.finish([crashed(claim)]) == [Finished.FENCED]
        assert (await newest(engine, "a")).crashes == 1

    async def test_what_was_asked_to_stop_does_not_go_again_after_a_crash(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        await engine.cancel(["a"])
        assert await engine.finish([crashed(claim)]) == [Finished.DONE]
        assert await state_of(engine, "a") is State.CANCELLED

    async def test_a_crash_sets_its_slot_free(self, engine: Engine) -> None:
        limit = Limit("l", 1)
        claim = await start_one(engine, a_run("bad", limits=(limit,), crash_limit=1))
        await place(engine, a_run("good", limits=(limit,)))
        assert await take(engine) == []
        await engine.finish([crashed(claim)])
        assert keys(await take(engine)) == ["good"]

    async def test_an_ordinary_requeue_is_no_crash(self, engine: Engine) -> None:
        await requeue(engine, await start_one(engine, a_run(crash_limit=1)))
        again = await take_one(engine)
        assert (again.crashes, again.redelivered) == (0, False)
