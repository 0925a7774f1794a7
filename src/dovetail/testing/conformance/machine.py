"""Random sequences of all verbs on any engine, checked step by step against a ledger.

The same machine serves every engine. Claims are kept after they were lost, so that late workers speak up; every request
and verdict may be repeated. At the end everything is worked off, and the store must be as empty as it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from dovetail.clock import VirtualClock
from dovetail.engine import Archives, Engine
from dovetail.engine.clearing import steps
from dovetail.errors import UnknownParent
from dovetail.model import (
    TERMINAL,
    Claim,
    Conflict,
    Failure,
    Finished,
    Hold,
    HoldKind,
    Limit,
    NewRun,
    Placing,
    Requeue,
    Retention,
    Revival,
    Run,
    RunQuery,
    Settle,
    State,
    Verdict,
    WorkerInfo,
    new_id,
)
from dovetail.testing.conformance.audit import Audit
from dovetail.testing.conformance.ledger import Ledger, Record
from dovetail.testing.conformance.vocabulary import assert_empty, sweep_all

OpenEngine = Callable[[VirtualClock], AbstractAsyncContextManager[Engine]]
"""Makes an engine on an empty store of its own; an engine that is not open yet will do."""

# No sum of jumps and delays meets the end of a lease, a window or a retention to the microsecond.
LEASE = timedelta(seconds=30, milliseconds=250)
LAPSE = timedelta(seconds=31)
KEPT = Retention.of(timedelta(minutes=15, milliseconds=125))
NOT_KEPT = Retention.of(timedelta())
ARCHIVED = Retention.of(timedelta(seconds=3, milliseconds=125)).but(archive=timedelta(minutes=15))
JUMPS = [*(timedelta(seconds=each) for each in (1, 2, 5, 7, 11)), LAPSE, timedelta(minutes=16)]
DELAYS = [timedelta(), timedelta(), timedelta(), timedelta(seconds=5), timedelta(seconds=40)]
SLOTS = Limit("slots", 1)
RATE = Limit("rate", 2, timedelta(seconds=10, milliseconds=500))
COOLDOWN = Limit("cooldown", 1, timedelta(seconds=3, milliseconds=500), drop=True)
LIMITS = [(), (SLOTS,), (SLOTS,), (RATE,), (SLOTS, RATE), (RATE, SLOTS), (COOLDOWN,), (SLOTS, COOLDOWN)]
KEYS = ["a", "b", "c"]
LIMITED, GROUPED = QUEUES = ["limited", "grouped"]
BOOM = Failure("ValueError", "boom")
CI = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def under_its_key(run: NewRun) -> NewRun:
    return run if run.key else run.but(key=run.id)


NEW_RUNS = st.builds(
    NewRun,
    id=st.builds(new_id),
    key=st.sampled_from([*KEYS, "", ""]),
    task=st.just("task"),
    due=st.sampled_from(DELAYS),
    queue=st.just(LIMITED),
    priority=st.sampled_from([0, 0, 1]),
    limits=st.sampled_from(LIMITS),
    conflict=st.sampled_from(Conflict),
    crash_limit=st.sampled_from([1, 2, 3]),
    retention=st.sampled_from([KEPT, KEPT, ARCHIVED, NOT_KEPT]),
).map(under_its_key)

CHILDREN = st.builds(
    NewRun,
    id=st.builds(new_id),
    key=st.sampled_from([*KEYS, "", ""]),
    task=st.just("task"),
    due=st.sampled_from(DELAYS),
    queue=st.just(GROUPED),
    group=st.sampled_from([None, "x", "y"]),
    after_failure=st.booleans(),
    retention=st.sampled_from([KEPT, ARCHIVED]),
).map(under_its_key)


class Machine(RuleBasedStateMachine):
    """The rules. `machine` binds them to an engine."""

    open_engine: ClassVar[OpenEngine]

    def __init__(self) -> None:
        super().__init__()
        self.clock = VirtualClock()
        self.ledger = Ledger()
        self.audit = Audit(self.ledger, self.clock, [SLOTS, RATE, COOLDOWN])
        self.requests: list[NewRun] = []
        self.verdicts: list[Verdict] = []
        self.handles: list[Claim] = []  # every claim ever made: most of them are void
        self.sound = True
        self._loop = asyncio.Runner()
        self._opened = type(self).open_engine(self.clock)
        self.engine: Engine = self._loop.run(self._opened.__aenter__())

    # Steps

    def step(self, action: Coroutine[Any, Any, None]) -> None:
        """Do something, then compare what the engine holds with what it should."""
        self.sound = False
        self._loop.run(self._step(action))
        self.sound = True

    async def _step(self, action: Coroutine[Any, Any, None]) -> None:
        await action
        self.ledger.expire(self.clock.now())
        self.audit.compare(await self.read())

    def teardown(self) -> None:
        try:
            if self.sound:
                self._loop.run(self.work_off())
        finally:
            self._loop.run(self._opened.__aexit__(None, None, None))
            self._loop.close()

    async def read(self) -> dict[str, Run]:
        page = await self.engine.find(RunQuery(limit=1000))
        return {run.id: run for run in page}

    def any_handle(self, data: st.DataObject) -> Claim:
        """A claim that holds; one whose run another worker has by now; or any that was ever made."""
        running = [claim for claim in self.handles if self.ledger.records[claim.id].state is State.RUNNING]
        held = [claim for claim in running if self.ledger.records[claim.id].is_held_by(claim)]
        late = [claim for claim in running if claim not in held]
        choices = [claims for claims in (held, held, late, self.handles) if claims]
        return data.draw(st.sampled_from(data.draw(st.sampled_from(choices))))

    def is_working(self) -> bool:
        return any(record.state is State.RUNNING for record in self.ledger)

    def possible(self, run: NewRun) -> NewRun:
        """A run as this engine takes it: not every one has an archive."""
        is_refused = run.retention.archive is not None and not isinstance(self.engine, Archives)
        return run.but(retention=KEPT) if is_refused else run

    # Scheduling

    @initialize(runs=st.lists(NEW_RUNS, min_size=4, max_size=8), want=st.integers(1, 4))
    def begin(self, runs: list[NewRun], want: int) -> None:
        self.step(self._schedule(*runs))
        self.step(self._claim("ann", want, ()))

    @rule(runs=st.lists(NEW_RUNS, min_size=1, max_size=3))
    def schedule(self, runs: list[NewRun]) -> None:
        self.step(self._schedule(*runs))

    @precondition(lambda self: self.ledger.records)
    @rule(run=CHILDREN, data=st.data())
    def schedule_child(self, run: NewRun, data: st.DataObject) -> None:
        references = [each for record in self.ledger for each in (record.run.id, record.run.key)]
        after = data.draw(st.lists(st.sampled_from(references), max_size=3)) if references else []
        self.step(self._schedule(run.but(after=tuple(after))))

    async def _schedule(self, *wanted: NewRun) -> None:
        runs = [self.possible(run) for run in wanted]
        expected: list[tuple[Placing, str]] = []
        try:
            expected = [self.ledger.schedule(run, self.clock.now()) for run in runs]
        except UnknownParent:
            with pytest.raises(UnknownParent):
                await self.engine.schedule(runs)
            return
        placements = await self.engine.schedule(runs)
        assert [each.id for each in placements] == [id for _, id in expected], "I10: all are told of the same run"
        if not {run.id for run in runs} & {run.id for run in self.requests}:
            assert [each.placing for each in placements] == [placing for placing, _ in expected]
        self.requests += runs

    # Claiming

    @precondition(lambda self: self.can_claim())
    @rule(want=st.integers(1, 4), queues=st.sampled_from([(), (LIMITED,), (GROUPED,)]))
    def claim(self, want: int, queues: tuple[str, ...]) -> None:
        self.step(self._claim("ann", want, queues))

    @precondition(lambda self: self.can_claim())
    @rule(want=st.integers(1, 4), data=st.data())
    def work(self, want: int, data: st.DataObject) -> None:
        """Claim, and finish all that came."""
        before = len(self.handles)
        self.step(self._claim("bob", want, ()))
        for claim in self.handles[before:]:
            self.step(self._finish(data.draw(st.sampled_from([Settle(claim, State.COMPLETED), Requeue(claim, 2)]))))

    @precondition(lambda self: self.is_working())
    @rule(want=st.integers(1, 4))
    def crash(self, want: int) -> None:
        """All workers fall silent, and another takes over."""
        self.clock.jump(LAPSE)
        self.ledger.expire(self.clock.now())
        self.step(self._claim("cid", want, ()))

    def can_claim(self) -> bool:
        """Whether something is there to be claimed, limits aside: otherwise most claims would bring nothing."""
        now = self.clock.now()
        return bool(self.ledger.eligible(now, QUEUES)) or any(each.has_lapsed(now) for each in self.ledger)

    async def _claim(self, worker: str, want: int, queues: tuple[str, ...]) -> None:
        claimed = await self.engine.claim(worker, want, queues=queues, lease=LEASE)
        open_queues = set(queues or QUEUES) - self.ledger.paused
        self.audit.follow_claim(claimed, await self.read(), want, open_queues, LEASE)
        self.handles += claimed.claims

    # Finishing

    @precondition(lambda self: self.is_working())
    @rule(
        data=st.data(),
        state=st.sampled_from([State.COMPLETED, State.COMPLETED, State.FAILED, State.CANCELLED]),
        successor=st.booleans(),
    )
    def settle(self, data: st.DataObject, state: State, successor: bool) -> None:
        claim = self.any_handle(data)
        then = (NewRun(new_id(), claim.key, "task", queue=LIMITED, retention=KEPT),) if successor else ()
        failure = BOOM if state is State.FAILED else None
        self.step(self._finish(Settle(claim, state, b"result", failure, then)))

    @precondition(lambda self: self.is_working())
    @rule(data=st.data(), delay=st.sampled_from(DELAYS), costs=st.booleans())
    def requeue(self, data: st.DataObject, delay: timedelta, costs: bool) -> None:
        claim = self.any_handle(data)
        self.step(self._finish(Requeue(claim, claim.attempt + costs, delay, None, BOOM if costs else None)))

    @precondition(lambda self: self.is_working())
    @rule(data=st.data(), delay=st.sampled_from(DELAYS), goes_again=st.booleans())
    def give_back(self, data: st.DataObject, delay: timedelta, goes_again: bool) -> None:
        """Say that the body of a claim never began."""
        claim = self.any_handle(data)
        again, over = Requeue(claim, claim.attempt, delay, unbegun=True), Settle(claim, State.CANCELLED, unbegun=True)
        self.step(self._finish(again if goes_again else over))

    @precondition(lambda self: self.is_working())
    @rule(data=st.data())
    def report_crash(self, data: st.DataObject) -> None:
        claim = self.any_handle(data)
        self.step(self._finish(Requeue(claim, claim.attempt, failure=BOOM, crashed=True)))

    async def _finish(self, verdict: Verdict) -> None:
        now, record = self.clock.now(), self.ledger.records[verdict.claim.id]
        if isinstance(verdict, Requeue) and self.is_left_open(record):
            return
        (answer,) = await self.engine.finish([verdict])
        assert answer in self.ledger.judge(verdict), "I5, I6: the first finish of a claim that holds, and no other"
        self.verdicts.append(verdict)
        if answer in (Finished.DONE, Finished.YIELDED):
            was_stopped = record.stopping
            self.ledger.accept(verdict, answer, now)
            for run in verdict.then if isinstance(verdict, Settle) else ():
                if not (was_stopped and run.key == record.run.key):
                    self.ledger.schedule(run, now)

    def is_left_open(self, record: Record) -> bool:
        """The contract is silent on the children of a run that gives way."""
        gives_way = not record.stopping and self.ledger.pending_of(record.run.key) is not None
        return gives_way and bool(self.ledger.waiting_for(record))

    # Leases

    @precondition(lambda self: self.is_working())
    @rule(data=st.data(), count=st.integers(1, 3))
    def heartbeat(self, data: st.DataObject, count: int) -> None:
        claims = {claim.id: claim for claim in (self.any_handle(data) for _ in range(count))}
        self.step(self._heartbeat(list(claims.values())))

    async def _heartbeat(self, claims: list[Claim]) -> None:
        pulse = await self.engine.heartbeat(WorkerInfo("ann", id="ann"), claims, lease=LEASE)
        held = [claim for claim in claims if self.ledger.records[claim.id].is_held_by(claim)]
        assert pulse.lost == {claim.id for claim in claims} - {claim.id for claim in held}, "I5"
        assert pulse.stopping == {each.id for each in held if self.ledger.records[each.id].stopping}, "I13"
        for claim in held:
            self.ledger.records[claim.id].lease_until = self.clock.now() + LEASE

    @rule(duration=st.sampled_from(JUMPS))
    def jump(self, duration: timedelta) -> None:
        self.clock.jump(duration)
        self.step(asyncio.sleep(0))

    # The rest

    @precondition(lambda self: sum(record.is_live for record in self.ledger) > 2)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        known = [record.run.key for record in self.ledger]
        self.step(self._cancel(data.draw(st.sampled_from([*known, KEYS[0]]))))

    async def _cancel(self, key: str) -> None:
        (answer,) = await self.engine.cancel([key])
        assert answer is self.ledger.cancel(key, self.clock.now())

    @precondition(lambda self: sum(record.is_pending for record in self.ledger) > 2)
    @rule(queue=st.sampled_from(QUEUES), limit=st.sampled_from([1, 2, 100]))
    def clear(self, queue: str, limit: int) -> None:
        self.step(self._clear(RunQuery(queues=(queue,), limit=limit)))

    async def _clear(self, query: RunQuery) -> None:
        meant = [each for each in self.ledger if each.is_pending and each.run.queue in query.queues]
        cleared = sum([step.runs async for step in steps(self.engine.clear, query)])
        assert cleared == self.audit.follow_clearing(meant, await self.read())

    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """A reply was lost, and the call is made again."""
        calls = [*(run for run in self.requests if self.is_repeatable(run)), *self.verdicts]
        call = data.draw(st.sampled_from(calls)) if calls else None
        if isinstance(call, NewRun):
            self.step(self._schedule(call))
        elif call:
            self.step(self._finish(call))

    def is_repeatable(self, run: NewRun) -> bool:
        """Left open: a request whose run is no longer kept, and a postponement, which has no run of its own."""
        known = self.ledger.records.get(run.id)
        return not known.gone if known else run.conflict is not Conflict.POSTPONE

    @rule(queue=st.sampled_from(QUEUES), action=st.sampled_from(["sweep", "resume", "pause"]))
    def maintain(self, queue: str, action: str) -> None:
        self.step(self._sweep() if action == "sweep" else self._pause_or_resume(queue, action == "pause"))

    async def _pause_or_resume(self, queue: str, paused: bool) -> None:
        hold = Hold(HoldKind.PAUSE, queue=queue)
        await (self.engine.hold([hold]) if paused else self.engine.lift([hold]))
        self.ledger.paused = self.ledger.paused | {queue} if paused else self.ledger.paused - {queue}
        assert {each.queue for each in await self.engine.holds()} == self.ledger.paused

    @precondition(lambda self: self.ledger.records)
    @rule(data=st.data())
    def revive(self, data: st.DataObject) -> None:
        over = [record.run.id for record in self.ledger if not record.is_live]
        chosen = over if over and data.draw(st.booleans()) else list(self.ledger.records)
        self.step(self._revive(data.draw(st.sampled_from(chosen))))

    async def _revive(self, id: str) -> None:
        record = self.ledger.records[id]
        if any(id in each.parents for each in self.ledger if each.state is State.WAITING):
            return  # the contract is silent on those who wait for others too, when one that completed goes again
        possible = not record.gone and not record.is_live and not self.ledger.live_of(record.run.key)
        assert await self.engine.revive([Revival(id)]) == [possible]
        if possible:
            self.audit.follow_revival(id, await self.read())

    @precondition(lambda self: self.ledger.records)
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        self.step(self._discard(data.draw(st.sampled_from(list(self.ledger.records)))))

    async def _discard(self, id: str) -> None:
        record = self.ledger.records[id]
        if any(id in each.parents for each in self.ledger):
            return  # what hangs on it is a matter of its own
        possible = not record.gone and not record.is_live
        assert await self.engine.discard([id]) == [possible]
        record.gone = record.gone or possible

    async def _sweep(self) -> None:
        await sweep_all(self.engine)

    # The end

    async def work_off(self) -> None:
        """Finish everything, let all retention pass, sweep: nothing may be left."""
        await self.engine.lift([Hold(HoldKind.PAUSE, queue=queue) for queue in QUEUES])
        for _ in range(200):
            claimed = await self.engine.claim("last", 100, lease=LEASE)
            await self.engine.finish([Settle(claim, State.COMPLETED) for claim in claimed.claims])
            if not any(run.state not in TERMINAL for run in (await self.read()).values()):
                break
            self.clock.jump(timedelta(seconds=31))
        else:
            raise AssertionError("L1: what is left never starts")
        self.clock.jump(timedelta(days=1))
        await sweep_all(self.engine)
        await assert_empty(self.engine)


def machine(open_engine: OpenEngine, *, with_settings: settings = CI) -> type[Machine]:
    """The machine for an engine. Its `TestCase` is what pytest runs."""

    class Bound(Machine):
        pass

    Bound.open_engine = staticmethod(open_engine)
    Bound.TestCase.settings = with_settings
    return Bound
