"""What must be true of an engine after each step of the stateful test. No I/O: it is handed what the engine shows.

Where the contract leaves the engine a choice the ledger follows it; everything else is checked. The names I1 to I19 are
those of the list of invariants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from dovetail.clock import VirtualClock
from dovetail.model import TERMINAL, Claim, Claimed, Limit, Run, State
from dovetail.testing.conformance.ledger import PENDING, Ledger, Record


class Audit:
    """Compares an engine with the ledger of what it should hold."""

    def __init__(self, ledger: Ledger, clock: VirtualClock, limits: Sequence[Limit]) -> None:
        self.ledger = ledger
        self.clock = clock
        self.limits = limits

    # Claims

    def follow_claim(
        self, claimed: Claimed, runs: Mapping[str, Run], want: int, queues: set[str], lease: timedelta
    ) -> None:
        """Which of the eligible runs come is for the engine to say, within what the contract allows."""
        now, claims = self.clock.now(), claimed.claims
        assert len(claims) <= want
        found = {each.run.id for each in self.ledger.eligible(now, queues)}
        dropped = self.follow_endings(runs)
        eligible = self.ledger.eligible(now, queues)
        for claim in claims:
            self.check_claim(claim, eligible)
            self.ledger.start(claim, now, lease)
        # What the call itself has set free has no place in its order.
        self.check_order(claims, [each for each in eligible if each.run.id in found])
        assert not any(self.ledger.has_room(each, now) for each in dropped), "only a full limit drops"
        if len(claims) < want and claimed.wait != timedelta():
            self.check_nothing_left(queues)

    def follow_endings(self, runs: Mapping[str, Run]) -> list[Record]:
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
        grouped = {each.run.queue for each in self.ledger.records.values() if each.run.group}
        plain = [each for each in eligible if not each.run.limits and each.run.queue not in grouped]
        order = [each.run.id for each in sorted(plain, key=lambda e: (-e.run.priority, e.due, e.run.id))]
        brought = [claim.id for claim in claims if claim.id in order]
        assert brought == order[: len(brought)], "claims come in their order"

    def check_nothing_left(self, queues: set[str]) -> None:
        now = self.clock.now()
        left = [each for each in self.ledger.eligible(now, queues) if self.ledger.has_room(each, now)]
        assert not left, "a turn was lost: these may start, and were not brought"
        silent = [each for each in self.ledger if each.has_lapsed(now) and each.run.queue in queues]
        assert not silent, "these leases lapsed, and were not taken over"

    # Clearing

    def follow_clearing(self, meant: Sequence[Record], runs: Mapping[str, Run]) -> int:
        """All that was meant is over; which of it fell with others is for the engine to say. How many have ended, those
        that fell included."""
        live = self._live()
        kept = {record.run.id: runs.get(record.run.id) for record in meant}
        assert all(run is None or run.state is State.CANCELLED for run in kept.values()), "I13: what is cleared is over"
        alone = [record for record in meant if (run := kept[record.run.id]) is None or run.doomed_by is None]
        for record in alone:
            # One that was cancelled by itself was so before what it waited for.
            for waiting in [each for each in self.ledger.waiting_for(record) if each in alone]:
                self.ledger.end(waiting, State.CANCELLED, self.clock.now())
            if record.is_live:
                self.ledger.end(record, State.CANCELLED, self.clock.now())
        return live - self._live()

    def _live(self) -> int:
        return sum(record.is_live for record in self.ledger.records.values())

    # Revivals

    def follow_revival(self, id: str, runs: Mapping[str, Run]) -> None:
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

    # Everything that is kept

    def compare(self, runs: Mapping[str, Run]) -> None:
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
        assert run.epoch >= record.seen, "I4: epochs never fall"
        record.seen = run.epoch
        assert (run.attempt, run.crashes) == (record.attempt, record.crashes), "I15"
        assert run.crashes <= run.crash_limit, "I16"
        assert run.lease_until == record.lease_until, "I3"
        assert (run.due, run.finished, run.stopping) == (record.due, record.finished, record.stopping)
        assert run.doomed_by == record.doomed_by or run.doomed_by in record.parents

    def check_keys(self, runs: Mapping[str, Run]) -> None:
        pending = [run.key for run in runs.values() if run.state in (*PENDING, State.WAITING)]
        assert len(pending) == len(set(pending)), "I10: at most one run of a key is pending"

    def check_limits(self, runs: Mapping[str, Run]) -> None:
        now = self.clock.now()
        running = [run for run in runs.values() if run.state is State.RUNNING]
        for limit in self.limits:
            assert self.ledger.used(limit.key, limit.window, now) <= limit.capacity, "I12"
            assert limit.window or sum(limit in run.limits for run in running) <= limit.capacity, "I12"
