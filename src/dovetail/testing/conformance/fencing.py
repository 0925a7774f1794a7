"""The epoch fences every write: a claim that is void changes nothing, and is told so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.model import Claim, Conflict, Finished, ProgressReport, Requeue, Settle, State, Verdict
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import (
    AT_ONCE,
    BOOM,
    LEASE,
    MINUTE,
    SECOND,
    a_run,
    all_runs,
    beat,
    complete,
    completed,
    newest,
    place,
    requeue,
    revive,
    start_one,
    state_of,
    take,
    take_one,
)

Voided = Callable[[Engine, VirtualClock], Awaitable[Claim]]
"""Makes a claim of the key `a`, and voids it."""


async def _taken_over(engine: Engine, clock: VirtualClock) -> Claim:
    claim = await start_one(engine, a_run(), worker="ann")
    clock.jump(LEASE + SECOND)
    await take_one(engine, worker="bob")
    return claim


async def _requeued(engine: Engine, clock: VirtualClock) -> Claim:
    claim = await start_one(engine, a_run())
    await requeue(engine, claim, attempt=7, due=MINUTE)
    return claim


async def _claimed_again(engine: Engine, clock: VirtualClock) -> Claim:
    claim = await start_one(engine, a_run())
    await requeue(engine, claim, attempt=7)
    await take_one(engine)
    return claim


async def _cancelled_while_pending(engine: Engine, clock: VirtualClock) -> Claim:
    claim = await _requeued(engine, clock)
    await engine.cancel(["a"])
    return claim


async def _replaced(engine: Engine, clock: VirtualClock) -> Claim:
    claim = await _requeued(engine, clock)
    await place(engine, a_run(conflict=Conflict.REPLACE))
    return claim


async def _settled_by_another(engine: Engine, clock: VirtualClock) -> Claim:
    claim = await start_one(engine, a_run(), worker="ann")
    clock.jump(LEASE + SECOND)
    await complete(engine, await take_one(engine, worker="bob"), result=b"bob's")
    return claim


async def _dropped(engine: Engine, clock: VirtualClock) -> Claim:
    claim = await start_one(engine, a_run(retention=AT_ONCE))
    await complete(engine, claim)
    return claim


async def _revived(engine: Engine, clock: VirtualClock) -> Claim:
    claim = await start_one(engine, a_run())
    await engine.finish([Settle(claim, State.FAILED)])
    assert await revive(engine, claim.id) == [True]
    return claim


async def _revived_and_claimed(engine: Engine, clock: VirtualClock) -> Claim:
    claim = await _revived(engine, clock)
    await take_one(engine)
    return claim


VOIDED = {
    "taken over": _taken_over,
    "requeued": _requeued,
    "claimed again": _claimed_again,
    "cancelled while pending": _cancelled_while_pending,
    "replaced": _replaced,
    "settled by another": _settled_by_another,
    "dropped": _dropped,
    "revived": _revived,
    "revived and claimed": _revived_and_claimed,
}
REQUEUED = {_requeued, _claimed_again, _cancelled_while_pending}
EVERY_WAY = pytest.mark.parametrize("voided", VOIDED.values(), ids=VOIDED.keys())


async def finish(engine: Engine, verdict: Verdict) -> Finished:
    (answer,) = await engine.finish([verdict])
    return answer


class Fencing(Fixtures):
    @EVERY_WAY
    async def test_a_settle_of_a_void_claim_is_fenced(
        self, engine: Engine, clock: VirtualClock, voided: Voided
    ) -> None:
        claim = await voided(engine, clock)
        before = await all_runs(engine)
        late = completed(claim, result=b"late", then=(a_run("successor"),))
        assert await finish(engine, late) is Finished.FENCED
        assert await all_runs(engine) == before

    @EVERY_WAY
    async def test_a_requeue_of_a_void_claim_is_fenced(
        self, engine: Engine, clock: VirtualClock, voided: Voided
    ) -> None:
        claim = await voided(engine, clock)
        before = await all_runs(engine)
        answer = await finish(engine, Requeue(claim, attempt=9, payload=b"late", failure=BOOM))
        # A store need not tell two requeues of the same claim apart.
        assert answer in ({Finished.FENCED, Finished.ALREADY} if voided in REQUEUED else {Finished.FENCED})
        assert await all_runs(engine) == before

    @EVERY_WAY
    async def test_a_heartbeat_of_a_void_claim_says_it_is_lost(
        self, engine: Engine, clock: VirtualClock, voided: Voided
    ) -> None:
        claim = await voided(engine, clock)
        before = await all_runs(engine)
        clock.jump(SECOND)
        pulse = await beat(engine, claim)
        assert (pulse.lost, pulse.stopping) == ({claim.id}, frozenset())
        assert await all_runs(engine) == before

    @EVERY_WAY
    async def test_a_report_with_a_void_epoch_is_refused(
        self, engine: Engine, clock: VirtualClock, voided: Voided
    ) -> None:
        claim = await voided(engine, clock)
        before = await all_runs(engine)
        report = ProgressReport("a", claim.id, claim.epoch, increment=5, message="late")
        assert await engine.report([report]) == [False]
        assert await all_runs(engine) == before

    async def test_a_late_worker_does_not_harm_the_one_who_took_over(self, engine: Engine, clock: VirtualClock) -> None:
        late = await start_one(engine, a_run(), worker="ann")
        clock.jump(LEASE + SECOND)
        present = await take_one(engine, worker="bob")
        assert await finish(engine, completed(late, result=b"ann's")) is Finished.FENCED
        await beat(engine, late, worker="ann")
        await complete(engine, present, result=b"bob's")
        assert (await newest(engine, "a")).result == b"bob's"

    async def test_a_fenced_verdict_harms_no_other_of_its_batch(self, engine: Engine, clock: VirtualClock) -> None:
        late = await start_one(engine, a_run("late"), worker="ann")
        clock.jump(LEASE + SECOND)
        await take_one(engine, worker="bob")
        good = await start_one(engine, a_run("good"))
        assert await engine.finish([completed(late), completed(good)]) == [Finished.FENCED, Finished.DONE]
        assert await state_of(engine, "late") is State.RUNNING
        assert await state_of(engine, "good") is State.COMPLETED

    async def test_a_claim_of_a_run_that_never_was_is_fenced(self, engine: Engine) -> None:
        real = await start_one(engine, a_run())
        invented = real.but(id="no such run")
        assert await finish(engine, completed(invented)) is Finished.FENCED
        assert (await beat(engine, invented)).lost == {"no such run"}

    async def test_an_epoch_from_the_future_is_fenced(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        assert await finish(engine, completed(claim.but(epoch=claim.epoch + 1))) is Finished.FENCED
        assert await state_of(engine, "a") is State.RUNNING

    async def test_the_first_finish_of_a_claim_wins(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        await complete(engine, claim, result=b"first")
        second = Settle(claim, State.FAILED, failure=BOOM)
        assert await finish(engine, second) in {Finished.ALREADY, Finished.FENCED}
        assert await finish(engine, Requeue(claim, attempt=2)) in {Finished.ALREADY, Finished.FENCED}
        run = await newest(engine, "a")
        assert (run.state, run.result, run.error) == (State.COMPLETED, b"first", None)
        assert await take(engine) == []

    async def test_two_verdicts_on_one_claim_in_a_batch_are_one(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        first, second = await engine.finish([Requeue(claim, attempt=2, due=MINUTE), completed(claim)])
        assert (first, second) == (Finished.DONE, Finished.FENCED)
        assert await state_of(engine, "a") is State.SCHEDULED

    async def test_a_revived_run_has_a_greater_epoch_than_before(self, engine: Engine, clock: VirtualClock) -> None:
        old = await _revived(engine, clock)
        assert (await take_one(engine)).epoch > old.epoch
