"""A store of runs as plain Python: what the stateful test believes an engine to hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dovetail.errors import UnknownParent
from dovetail.model import (
    TERMINAL,
    Cancelled,
    Claim,
    Conflict,
    Due,
    Finished,
    NewRun,
    Placing,
    Requeue,
    Run,
    Settle,
    State,
    Verdict,
)

PENDING = (State.SCHEDULED, State.QUEUED)


@dataclass(eq=False)
class Record:
    """What is believed of one run. SCHEDULED stands for all that is pending and waits for nobody."""

    run: NewRun
    due: datetime
    state: State = State.SCHEDULED
    attempt: int = 1
    crashes: int = 0
    epoch: int = 0  # of the last claim
    seen: int = 0  # the last that the engine showed
    parents: set[str] = field(default_factory=set[str])
    unmet: set[str] = field(default_factory=set[str])  # parents that are not over
    doomed_by: str | None = None
    lease_until: datetime | None = None
    stopping: bool = False
    finished: datetime | None = None
    gone: bool = False  # replaced, given way, dropped or past its retention
    starts: list[datetime] = field(default_factory=list[datetime])
    is_taken_over: bool = False  # the last claim found it running, and took no start
    last: Verdict | None = None  # accepted, and nothing has happened since
    accepted: list[Verdict] = field(default_factory=list[Verdict])

    @property
    def is_live(self) -> bool:
        return not self.gone and self.state not in TERMINAL

    @property
    def is_pending(self) -> bool:
        return self.is_live and self.state is not State.RUNNING

    def is_held_by(self, claim: Claim) -> bool:
        return self.is_live and self.state is State.RUNNING and self.epoch == claim.epoch

    def has_lapsed(self, now: datetime) -> bool:
        return self.state is State.RUNNING and self.lease_until is not None and self.lease_until <= now

    def expires(self) -> datetime | None:
        if self.finished is None:
            return None
        kept = self.run.retention
        ends = {
            State.COMPLETED: kept.completed,
            State.FAILED: kept.failed,
            State.CANCELLED: kept.cancelled,
        }
        return self.finished + ends[self.state] + (kept.archive or timedelta())


class Ledger:
    """Every run that was ever placed, in the order of arrival."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.paused: set[str] = set()

    # Looking

    def __iter__(self) -> Iterator[Record]:
        return (record for record in self.records.values() if not record.gone)

    def of_key(self, key: str) -> list[Record]:
        """The runs of a key that are kept, newest first."""
        return [record for record in self if record.run.key == key][::-1]

    def live_of(self, key: str) -> list[Record]:
        return [record for record in self.of_key(key) if record.is_live]

    def pending_of(self, key: str) -> Record | None:
        return next((record for record in self.live_of(key) if record.is_pending), None)

    def live_parents(self, record: Record) -> set[str]:
        return {each for each in record.parents if self.records[each].is_live}

    def fallen_parents(self, record: Record) -> set[str]:
        ends = (State.FAILED, State.CANCELLED)
        return {each for each in record.parents if self.records[each].state in ends}

    def waiting_for(self, record: Record) -> list[Record]:
        return [each for each in self if each.state is State.WAITING and record.run.id in each.unmet]

    def is_superseded(self, record: Record) -> bool:
        """Whether its key was used again: then a record that is over may go before its time."""
        later = list(self.records.values())
        return any(each.run.key == record.run.key for each in later[later.index(record) + 1 :])

    def has_room(self, record: Record, now: datetime) -> bool:
        return all(self.used(limit.key, limit.window, now) < limit.capacity for limit in record.run.limits)

    def used(self, key: str, window: timedelta | None, now: datetime) -> int:
        """How many run under a limit, or were started within its window."""
        under = [each for each in self.records.values() if key in {limit.key for limit in each.run.limits}]
        if window is None:
            return sum(each.is_live and each.state is State.RUNNING for each in under)
        return sum(start > now - window for each in under for start in each.starts)

    def eligible(self, now: datetime, queues: Iterable[str]) -> list[Record]:
        """What a worker of these queues may start, limits aside."""
        return [
            record
            for record in self
            if record.state is State.SCHEDULED
            and record.due <= now
            and record.run.queue in queues
            and record.run.queue not in self.paused
        ]

    # Scheduling

    def schedule(self, run: NewRun, now: datetime) -> tuple[Placing, str]:
        known = self.records.get(run.id)
        if known and not known.gone:
            return Placing.PLACED, run.id
        live, pending = self.live_of(run.key), self.pending_of(run.key)
        holder = pending or (live[0] if live else None)
        if holder and (run.conflict is Conflict.KEEP or (pending and run.conflict is Conflict.KEEP_PENDING)):
            return Placing.KEPT, holder.run.id
        if pending and run.conflict is Conflict.POSTPONE:
            pending.due = moment(run.due, now)
            return Placing.POSTPONED, pending.run.id
        self._place(run, now, heir_of=pending)
        return (Placing.REPLACED if live and run.conflict is Conflict.REPLACE else Placing.PLACED), run.id

    def _place(self, run: NewRun, now: datetime, heir_of: Record | None) -> None:
        parents = [self._parent(reference) for reference in run.after]
        record = Record(run, moment(run.due, now), attempt=run.attempt)
        record.parents = {parent.run.id for parent in parents}
        record.unmet = self.live_parents(record)
        self.records[run.id] = record
        if heir_of:
            self._inherit(record, heir_of)
        fallen = self.fallen_parents(record)
        if fallen and not run.after_failure:
            self.end(record, State.CANCELLED, now, doomed_by=min(fallen))
        elif record.unmet:
            record.state = State.WAITING

    def _inherit(self, heir: Record, replaced: Record) -> None:
        """What hung on a run that was replaced hangs on its replacement."""
        for child in self.records.values():
            for parents in (child.parents, child.unmet):
                if replaced.run.id in parents:
                    parents.remove(replaced.run.id)
                    parents.add(heir.run.id)
        replaced.gone = True

    def _parent(self, reference: str) -> Record:
        known = self.records.get(reference)
        found = [known] if known and not known.gone else self.of_key(reference)
        if not found:
            raise UnknownParent(reference)
        return found[0]

    # Running

    def start(self, claim: Claim, now: datetime, lease: timedelta) -> None:
        record = self.records[claim.id]
        record.is_taken_over = record.state is State.RUNNING
        if not record.is_taken_over:
            record.starts.append(now)
        record.state, record.epoch, record.lease_until = State.RUNNING, claim.epoch, now + lease
        record.last, record.crashes = None, claim.crashes

    def judge(self, verdict: Verdict) -> set[Finished]:
        """What an engine may answer to this verdict now."""
        claim, record = verdict.claim, self.records[verdict.claim.id]
        if record.is_held_by(claim):
            goes_again = isinstance(verdict, Requeue) and not record.stopping and not self.poisons(verdict)
            gives_way = goes_again and self.pending_of(record.run.key)
            return {Finished.YIELDED if gives_way else Finished.DONE}
        if verdict == record.last and not record.gone:
            return {Finished.ALREADY}
        # A store may know more of an earlier verdict than it must.
        if any(each.claim.epoch == claim.epoch for each in record.accepted):
            return {Finished.ALREADY, Finished.FENCED}
        return {Finished.FENCED}

    def poisons(self, verdict: Verdict) -> bool:
        """Whether this would be one crash too many."""
        record = self.records[verdict.claim.id]
        return isinstance(verdict, Requeue) and verdict.crashed and record.crashes + 1 >= record.run.crash_limit

    def accept(self, verdict: Verdict, answer: Finished, now: datetime) -> None:
        record = self.records[verdict.claim.id]
        if verdict.unbegun and not record.is_taken_over:
            record.starts.pop()
        if answer is Finished.YIELDED:
            record.gone = True
        elif isinstance(verdict, Settle):
            self.end(record, verdict.state, now)
        elif record.stopping:
            self.end(record, State.CANCELLED, now)
        elif self.poisons(verdict):
            record.crashes += 1
            self.end(record, State.FAILED, now)
        else:
            record.crashes += verdict.crashed
            record.state, record.attempt, record.stopping = State.SCHEDULED, verdict.attempt, False
            record.due, record.lease_until = moment(verdict.due, now), None
        record.last = verdict
        record.accepted.append(verdict)

    def end(self, record: Record, state: State, now: datetime, doomed_by: str | None = None) -> None:
        """End a run, and release or end what waits for it."""
        record.state, record.finished, record.doomed_by = state, now, doomed_by
        record.lease_until, record.stopping, record.last = None, False, None
        for child in self.waiting_for(record):
            child.unmet.discard(record.run.id)
            if state is not State.COMPLETED and not child.run.after_failure:
                self.end(child, State.CANCELLED, now, doomed_by=record.run.id)
            elif not child.unmet:
                child.state = State.SCHEDULED
        self.expire(now)

    def cancel(self, key: str, now: datetime) -> Cancelled:
        if not (live := self.live_of(key)):
            return Cancelled.OVER if self.of_key(key) else Cancelled.UNKNOWN
        if live[0].is_pending:
            self.end(live[0], State.CANCELLED, now)
            return Cancelled.CANCELLED
        live[0].stopping = True
        return Cancelled.STOPPING

    def expire(self, now: datetime) -> None:
        for record in self:
            expires = record.expires()
            record.gone = expires is not None and expires <= now

    # Reviving

    def revive(self, run: Run) -> None:
        """Believe that a run which was over is at work again, as the engine shows it."""
        record = self.records[run.id]
        record.state = State.WAITING if run.state is State.WAITING else State.SCHEDULED
        record.due, record.gone = run.due, False
        record.attempt, record.crashes, record.finished = 1, 0, None
        record.doomed_by, record.last = None, None


def moment(due: Due, now: datetime) -> datetime:
    return now + due if isinstance(due, timedelta) else due
