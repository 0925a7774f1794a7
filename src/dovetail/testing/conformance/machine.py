"""Random sequences of all verbs on any engine, checked step by step against a ledger.

The machine follows the engine where the contract leaves it a choice (which of the eligible runs a claim brings) and
checks everything else. After each step all runs are read back and compared. At the end everything is worked off, and
the store must be as empty as it was. The names I1 to I19 are those of the list of invariants.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
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
from dovetail.testing.conformance.ledger import PENDING, Ledger, Record
from dovetail.testing.conformance.vocabulary import assert_empty, sweep_all

OpenEngine = Callable[[VirtualClock], AbstractAsyncContextManager[Engine]]
"""Makes an engine on an empty store of its own; an engine that is not open yet will do."""

# No sum of jumps and delays meets the end of a lease, a window or a retention to the microsecond.
LEASE = timedelta(seconds=30, milliseconds=250)
KEPT = Retention.of(timedelta(minutes=15, milliseconds=125))
NOT_KEPT = Retention.of(timedelta())
JUMPS = [timedelta(seconds=1), timedelta(seconds=7), timedelta(seconds=31), timedelta(minutes=16)]
DELAYS = [timedelta(), timedelta(), timedelta(seconds=5), timedelta(seconds=40)]
LIMITS = {
    "slots": Limit("slots", 2),
    "rate": Limit("rate", 2, timedelta(seconds=10, milliseconds=500)),
    "cooldown": Limit("cooldown", 1, timedelta(seconds=3, milliseconds=500), drop=True),
}
KEYS = ["a", "b", "c", "d"]
QUEUES = ["limited", "grouped"]
BOOM = Failure("ValueError", "boom")
CI = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


class Machine(RuleBasedStateMachine):
    """The rules. `machine` binds them to an engine."""

    open_engine: ClassVar[OpenEngine]

    def __init__(self) -> None:
        super().__init__()
        self.clock = VirtualClock()
        self.ledger = Ledger()
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
        self.compare(await self.read())

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

    def any_of(self, data: st.DataObject, items: Sequence[Any]) -> Any:
        return data.draw(st.sampled_from(items))

    # Scheduling

    @rule(
        key=st.sampled_from(KEYS),
        conflict=st.sampled_from(Conflict),
        delay=st.sampled_from(DELAYS),
        priority=st.integers(-1, 1),
        limits=st.sets(st.sampled_from(list(LIMITS))),
        kept=st.sampled_from([True, True, True, False]),
        crash_limit=st.integers(1, 3),
    )
    def schedule(
        self,
        key: str,
        conflict: Conflict,
        delay: timedelta,
        priority: int,
        limits: set[str],
        kept: bool,
        crash_limit: int,
    ) -> None:
        run = NewRun(
            new_id(),
            key,
            "task",
            due=delay,
            queue="limited",
            priority=priority,
            limits=tuple(LIMITS[name] for name in sorted(limits)),
            conflict=conflict,
            crash_limit=crash_limit,
            retention=KEPT if kept else NOT_KEPT,
        )
        self.requests.append(run)
        self.step(self._schedule(run))

    @rule(
        key=st.sampled_from(KEYS),
        delay=st.sampled_from(DELAYS),
        group=st.sampled_from([None, "x", "y"]),
        after_failure=st.booleans(),
        data=st.data(),
    )
    def schedule_child(
        self, key: str, delay: timedelta, group: str | None, after_failure: bool, data: st.DataObject
    ) -> None:
        references = [record.run.id for record in self.ledger] + [record.run.key for record in self.ledger]
        after = data.draw(st.sets(st.sampled_from(references), max_size=3)) if references else set[str]()
        run = NewRun(
            new_id(),
            key,
            "task",
            due=delay,
            queue="grouped",
            group=group,
            after=tuple(sorted(after)),
            after_failure=after_failure,
            retention=KEPT,
        )
        self.requests.append(run)
        self.step(self._schedule(run))

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def repeat_request(self, data: st.DataObject) -> None:
        run = self.any_of(data, self.requests)
        known = self.ledger.records.get(run.id)
        # Left open: a request whose run is no longer kept, and a postponement, which has no run of its own.
        if (known and not known.gone) or (known is None and run.conflict is not Conflict.POSTPONE):
            self.step(self._schedule(run))

    async def _schedule(self, run: NewRun) -> None:
        known = self.ledger.records.get(run.id)
        try:
            placing, id = self.ledger.schedule(run, self.clock.now())
        except UnknownParent:
            with pytest.raises(UnknownParent):
                await self.engine.schedule([run])
            return
        (placement,) = await self.engine.schedule([run])
        assert placement.id == id, "I10: all who schedule a key are told of the same run"
        assert known or placement.placing is placing

    # Claiming

    @rule(
        worker=st.sampled_from(["ann", "bob"]),
        want=st.integers(1, 4),
        queues=st.sampled_from([(), (), ("limited",), ("grouped",)]),
    )
    def claim(self, worker: str, want: int, queues: tuple[str, ...]) -> None:
        self.step(self._claim(worker, want, queues))

    async def _claim(self, worker: str, want: int, queues: tuple[str, ...]) -> None:
        now = self.clock.now()
        claimed = await self.engine.claim(worker, want, queues=queues, lease=LEASE)
        assert len(claimed.claims) <= want
        open_queues = set(queues or QUEUES) - self.ledger.paused
        dropped = self.follow_endings(await self.read())
        eligible = self.ledger.eligible(now, open_queues)
        for claim in claimed.claims:
            self.check_claim(claim, eligible)
            self.ledger.start(claim, now, LEASE)
        self.handles += claimed.claims
        self.check_order(claimed.claims, eligible)
        assert not any(self.ledger.has_room(each, now) for each in dropped), "only a full limit drops"
        if len(claimed.claims) < want and claimed.wait != timedelta():
            self.check_nothing_left(open_queues)

    def follow_endings(self, runs: dict[str, Run]) -> list[Record]:
        """A claim may end runs: those whose worker died, and those that a limit drops; these are returned."""
        now = self.clock.now()
        dropped: list[Record] = []
        for record in list(self.ledger):
            run = runs.get(record.run.id)
            state = run.state if run else State.CANCELLED  # not kept, then: only a dropped run can be gone
            if not record.is_live or state not in TERMINAL:
                continue
            if record.state is State.WAITING:
                continue  # ends with its parent
            if record.has_lapsed(now):
                poisoned = record.crashes + 1 >= record.run.crash_limit
                assert record.stopping or poisoned, "I1: a run whose worker died goes on"
                record.crashes += not record.stopping
                self.ledger.end(record, State.CANCELLED if record.stopping else State.FAILED, now)
            else:
                assert record.is_pending, "I1: a run under a lease was ended"
                assert any(limit.drop for limit in record.run.limits), "I1: a run ended for no reason"
                dropped.append(record)
                self.ledger.end(record, State.CANCELLED, now)
        return dropped

    def check_claim(self, claim: Claim, eligible: list[Record]) -> None:
        now, record = self.clock.now(), self.ledger.records[claim.id]
        assert claim.epoch > record.epoch, "I4: each claim raises the epoch"
        assert claim.attempt == record.attempt, "I15: only a report changes the attempt"
        assert record.run.queue not in self.ledger.paused, "I19: a paused queue gives nothing"
        if record.state is State.RUNNING:
            assert record.has_lapsed(now), "I3: a run under a lease is left alone"
            assert not record.stopping, "I13: what was asked to stop does not start again"
            assert claim.redelivered
            assert claim.crashes == record.crashes + 1 < record.run.crash_limit, "I16"
        else:
            assert record in eligible, "I9, I13: only a run that is pending and due may start"
            assert claim.crashes == record.crashes, "I15"

    def check_order(self, claims: list[Claim], eligible: list[Record]) -> None:
        """Among runs without limits or groups the order is fully known, and the first come first."""
        plain = [each for each in eligible if each.run.queue == "limited" and not each.run.limits]
        order = [each.run.id for each in sorted(plain, key=lambda e: (-e.run.priority, e.due, e.run.id))]
        brought = [claim.id for claim in claims if claim.id in order]
        assert brought == order[: len(brought)], "claims come in their order"

    def check_nothing_left(self, queues: set[str]) -> None:
        now = self.clock.now()
        left = [each for each in self.ledger.eligible(now, queues) if self.ledger.has_room(each, now)]
        assert not left, "a turn was lost: these may start, and were not brought"
        silent = [each for each in self.ledger if each.has_lapsed(now) and each.run.queue in queues]
        assert not silent, "these leases lapsed, and were not taken over"

    # Finishing

    @precondition(lambda self: self.handles)
    @rule(
        data=st.data(),
        state=st.sampled_from([State.COMPLETED, State.COMPLETED, State.FAILED, State.CANCELLED]),
        successor=st.booleans(),
    )
    def settle(self, data: st.DataObject, state: State, successor: bool) -> None:
        claim = self.any_of(data, self.handles)
        then = (NewRun(new_id(), claim.key, "task", queue="limited", retention=KEPT),) if successor else ()
        failure = BOOM if state is State.FAILED else None
        self.step(self._finish(Settle(claim, state, b"result", failure, then)))

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), delay=st.sampled_from(DELAYS), costs=st.booleans())
    def requeue(self, data: st.DataObject, delay: timedelta, costs: bool) -> None:
        claim = self.any_of(data, self.handles)
        self.step(self._finish(Requeue(claim, claim.attempt + costs, delay, None, BOOM if costs else None)))

    @precondition(lambda self: self.verdicts)
    @rule(data=st.data())
    def repeat_verdict(self, data: st.DataObject) -> None:
        self.step(self._finish(self.any_of(data, self.verdicts)))

    async def _finish(self, verdict: Verdict) -> None:
        now, record = self.clock.now(), self.ledger.records[verdict.claim.id]
        if isinstance(verdict, Requeue) and self.is_left_open(record):
            return
        (answer,) = await self.engine.finish([verdict])
        assert answer in self.ledger.judge(verdict), "I5, I6: the first finish of a claim that holds, and no other"
        self.verdicts.append(verdict)
        if answer in (Finished.DONE, Finished.YIELDED):
            self.ledger.accept(verdict, answer, now)
            for run in verdict.then if isinstance(verdict, Settle) else ():
                self.ledger.schedule(run, now)

    def is_left_open(self, record: Record) -> bool:
        """The contract is silent on the children of a run that gives way."""
        gives_way = not record.stopping and self.ledger.pending_of(record.run.key) is not None
        return gives_way and bool(self.ledger.waiting_for(record))

    # Leases

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        claims = data.draw(st.lists(st.sampled_from(self.handles), max_size=4, unique_by=lambda claim: claim.id))
        self.step(self._heartbeat(claims))

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

    @rule(key=st.sampled_from(KEYS))
    def cancel(self, key: str) -> None:
        self.step(self._cancel(key))

    async def _cancel(self, key: str) -> None:
        (answer,) = await self.engine.cancel([key])
        assert answer is self.ledger.cancel(key, self.clock.now())

    @rule(queue=st.sampled_from(QUEUES), paused=st.booleans())
    def pause_or_resume(self, queue: str, paused: bool) -> None:
        self.step(self._pause_or_resume(queue, paused))

    async def _pause_or_resume(self, queue: str, paused: bool) -> None:
        hold = Hold(HoldKind.PAUSE, queue=queue)
        await (self.engine.hold([hold]) if paused else self.engine.lift([hold]))
        self.ledger.paused = self.ledger.paused | {queue} if paused else self.ledger.paused - {queue}
        assert {each.queue for each in await self.engine.holds()} == self.ledger.paused

    @precondition(lambda self: self.ledger.records)
    @rule(data=st.data())
    def revive(self, data: st.DataObject) -> None:
        self.step(self._revive(self.any_of(data, list(self.ledger.records))))

    async def _revive(self, id: str) -> None:
        record = self.ledger.records[id]
        if any(id in each.parents for each in self.ledger if each.state is State.WAITING):
            return  # the contract is silent on those who wait for others too, when one that completed goes again
        possible = not record.gone and not record.is_live and not self.ledger.live_of(record.run.key)
        assert await self.engine.revive([Revival(id)]) == [possible]
        if possible:
            self.follow_revival(id, await self.read())

    def follow_revival(self, id: str, runs: dict[str, Run]) -> None:
        """Those that the run's end had cancelled are back as well, unless something still keeps them."""
        back = [id]
        for parent in back:
            self.ledger.revive(runs[parent])
            back += [
                child.run.id
                for child in self.ledger.records.values()
                if parent in child.parents
                and child.doomed_by
                and child.run.id not in back
                and child.run.id in runs
                and runs[child.run.id].state is State.WAITING
            ]
        for revived in back:
            record = self.ledger.records[revived]
            record.unmet = self.ledger.live_parents(record)
            assert bool(record.unmet) == (record.state is State.WAITING), "who waits, waits for somebody"
        for record in self.ledger:
            if record.doomed_by in back:
                key_is_taken = bool(self.ledger.live_of(record.run.key))
                assert key_is_taken or self.ledger.fallen_parents(record), "dependents come back too"

    @rule()
    def sweep(self) -> None:
        self.step(self._sweep())

    async def _sweep(self) -> None:
        await sweep_all(self.engine)

    # What must be true after each step

    def compare(self, runs: dict[str, Run]) -> None:
        for record in self.ledger:
            run = runs.get(record.run.id)
            if run is None:
                assert record.state in TERMINAL, "I1: a run that is not over is kept"
                assert self.ledger.is_superseded(record), "I1: a run is kept for its retention"
                record.gone = True
            else:
                self.compare_run(record, run)
        assert set(runs) <= {record.run.id for record in self.ledger}, "I2: a run that was never accepted"
        self.check_keys(runs)
        self.check_limits(runs)

    def compare_run(self, record: Record, run: Run) -> None:
        assert run.state in (PENDING if record.state is State.SCHEDULED else (record.state,)), "I1"
        assert run.epoch >= record.epoch, "I4: epochs never fall"
        assert (run.attempt, run.crashes) == (record.attempt, record.crashes), "I15"
        assert run.crashes <= run.crash_limit, "I16"
        assert run.lease_until == record.lease_until, "I3"
        assert (run.due, run.finished, run.stopping) == (record.due, record.finished, record.stopping)
        assert run.doomed_by == record.doomed_by or run.doomed_by in record.parents

    def check_keys(self, runs: dict[str, Run]) -> None:
        pending = [run.key for run in runs.values() if run.state in (*PENDING, State.WAITING)]
        assert len(pending) == len(set(pending)), "I10: at most one run of a key is pending"

    def check_limits(self, runs: dict[str, Run]) -> None:
        now = self.clock.now()
        for limit in LIMITS.values():
            assert self.ledger.used(limit.key, limit.window, now) <= limit.capacity, "I12"
        running = [run for run in runs.values() if run.state is State.RUNNING and LIMITS["slots"] in run.limits]
        assert len(running) <= LIMITS["slots"].capacity, "I12"

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
