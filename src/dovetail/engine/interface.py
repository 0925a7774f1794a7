"""The seam: what a store must do to keep runs, and what it promises.

This docstring is the contract. Each line is one or more tests of `dovetail.testing.conformance`.

**schedule** is idempotent: a repeated request with the id of a run that is kept does nothing twice. The batch is
atomic: all of it, or, with an error, none; only a store that must keep its steps short may take a large batch, in
which no run waits for another, in parts that each are. A key is *taken* by a live run, pending or running; the run's
`conflict` says what then: KEEP (leave it, say so), KEEP_PENDING (only a pending run counts), REPLACE (a pending run
gives way; a running one goes on and the new run waits beside it), POSTPONE (the pending run stays, its due time
moves). A run that stands `instead_of` another is kept out unless that one, pending or running, is the latest to hold
the key. At most one run of a key is pending. A terminal run never holds its key. Later runs of a batch see the earlier
ones. A due time that no calendar has counts as the end of the calendar.

**claim** returns at most `want` runs, in the order: priority (higher first), place, due time, id. Places are compared
within a queue: of several queues whose first runs have the same priority, the one whose first is due first, or older,
is next. What has become due joins the ready order within the call; what the call itself sets free, by dropping a run
that others waited for, comes after what it had picked by then. *Place* is fair share as one number: given when a run
becomes ready, it is the larger of the queue's virtual time and its group's last place plus one over the weight; a run
without a group takes the queue's virtual time, which is the place of what was claimed last. Leases that lapsed are
taken over in the same call: `redelivered`, crash count + 1; at the crash limit the run fails as poisoned; one that was
asked to stop is cancelled. `lapsed` is how many these were, and `poisoned` names the tasks of those that failed, for
whoever counts them; where an answer was lost, they may be missing. Paused queues give nothing. Each claim raises the
epoch. The work of a call is bounded whatever the backlog. With `ageing`, a priority counts as one more for each
`ageing` that its run has been due, though as no higher than that of the run before it in the same queue and of the same
priority, so that among these the order stays; 64 priorities of a queue are looked at. `wait` is how long until
something known becomes due: a future run, a window that opens, a lease that lapses, a pause that ends.

**limits** A slot belongs to a run that is running; usage is the count of such runs, never a counter. A refused run is
parked on the limit and costs nothing until there is room: a slot set free, or a window that opens; then the first in
claim order is woken. `drop` cancels instead, and records which limit it was. A run may have several limits, all must
have room. *A turn is never lost*: whatever takes a woken run away without its starting (cancel, replace, postpone,
drop, another limit) wakes the next. A run whose lease lapsed keeps its slot until it is taken over, and takes it along.
A start counts in its window from the claim on, unless a verdict says that the body is *unbegun*: then what that claim
took is given back, and each such start wakes the next. A claim that took over a lapsed lease took none, since the body
may have begun before.

**finish** is one atomic unit: outcome, result, error history, the next attempt or the successors in `then`, children,
slots, event. FENCED, and nothing changed, when the epoch is old. ALREADY when this very verdict was accepted before and
its run is kept. A requeue whose key another pending run has taken gives way to it: YIELDED, and its record goes. A
requeue of a run that was asked to stop ends it as cancelled, and its settle places no successor under its key. One that
says the run *crashed*, its process having died under it, adds to the crash count; at the crash limit the run fails as
poisoned, and the failure says how the last crash came. Retention of zero drops the record at once. Each verdict stands
for itself: one that is fenced harms no other.

**parents** A waiting run is queued (or scheduled, if its due time is still ahead) when its last parent completes. A
parent that fails or is cancelled cancels what hangs on it, to any depth, in the same unit, with the cause recorded,
unless the child said `after_failure`. A parent that does not exist is an error when scheduling. A parent that is
already over counts as it ended. What hung on a pending run that is replaced hangs on its replacement; one that would
wait for any of that is an error. The claim of a run that `wants_results` brings along what its parents have returned,
as it is at that moment: of those that completed and are kept, each result of up to 16 KiB. Whatever is missing has to
be looked for. Past its retention a parent is kept for what hangs on it alone: nobody finds it, so its result is brought
whatever its size.

**heartbeat** renews all of a worker's claims that are still its own and says which are lost and which were asked to
stop. A lease that lapsed but was not taken over is renewed. It also records the worker, or forgets one that is leaving.
The `origin` that it tells stays the same while any worker is there. A store that may be emptied beneath its workers, as
by FLUSHALL, tells another one then; of other stores it is 0.

**cancel** ends a pending run for good; a running one is asked to stop, durably: the flag is in every later pulse. For
each key the newest live run is meant. With `running=False` one that is running is left in peace: OVER is said of it,
as far as cancelling goes.

**clear** cancels the pending runs that a query finds, in steps that are bounded by its limit, or by less; those that
run are left in peace. It says how many it cancelled, the dependents that fell with them included, and, by a cursor,
whether there may be more. Of the runs of one step those that others hang on go first.

**report** changes the progress of a running run, fenced by the epoch if one is given. Progress begins anew with every
claim and is gone when the run ends.

**revive** puts terminal runs back to work with a clean slate (attempt 1, no crashes), and with them the dependents that
their end had cancelled. A run whose key is taken is not revived.

**discard** drops the records of terminal runs at once, with all that belongs to them. False for a run that is not kept
or not terminal. What hangs on such a run stays as it is: one that waits for others still does, and a dependent that its
end had cancelled stays cancelled; revived, it waits no more for a run that is gone.

**retention** A record is kept for as long as its run says for that ending, and beyond if a live run still hangs on it.
Of the runs of one task that are kept by count and ended alike, the newest stay, by when they ended; how many is what
the one that ended last says, and the sweep sees to it. What is kept no longer goes to the archive if the run says so,
for as long as it says, and is dropped then. A completed or cancelled run whose key is used again gives way within
seconds, unless it is kept by count or for the archive. The archive is a place apart, so that what is in daily use stays
small; whoever finds a run, revives or discards it, or hangs another on it need not know where it lies. An engine that
has no archive refuses a run that asks for one.

**holds** are kept until lifted or past their time. Laying or lifting one twice is the same as once.

**watch** gives hints. They may be lost. All waiting code subscribes first, then reads, then waits, and reads again.

**find** sees every run that is kept, filtered and paged by a cursor that is stable while runs come and go, and while
they go to the archive. Tags are found by looking at one run after the other: no index is kept for them. A survey counts
what is not in the archive; what is due counts as queued there, though nobody may have looked at it since.

**standing** says where a live run stands: how many are before it in its queue or in the line of the limit that it is
parked on, how full each of its limits is and by whom, and which workers there are. All of it was so at one moment. The
count is bounded, and so is the work.

**sweep** does bounded work: drops or archives what is past its retention, forgets silent workers and holds past their
time, wakes parked runs whose limit has room. It says whether there is more to do.

Time is the store's own. In tests every engine takes a clock that the test moves. After everything has finished and
retention has passed, the store is as empty as it was.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any, Protocol, Self, runtime_checkable

from dovetail.model import (
    Cancelled,
    Claim,
    Claimed,
    Cleared,
    Event,
    Finding,
    Finished,
    Glance,
    Hold,
    NewRun,
    Page,
    Placement,
    ProgressReport,
    Pulse,
    Repair,
    Revival,
    Run,
    RunQuery,
    Standing,
    Survey,
    Swept,
    Topic,
    Verdict,
    WorkerInfo,
)


class Engine(Protocol):
    """Keeps the runs of one docket. Every operation is atomic, takes a batch, and goes by the store's own clock."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *_: object) -> None: ...

    def twin(self) -> Engine:
        """The same docket through connections of its own, not open yet; it may be used from another thread."""
        ...

    async def migrate(self, to: int | None = None) -> int:
        """Bring the store to a schema version, by default the newest, and say which it has."""
        ...

    # A run's life

    async def schedule(self, runs: Sequence[NewRun]) -> list[Placement]: ...

    async def claim(
        self,
        worker: str,
        want: int,
        *,
        queues: Sequence[str] = (),
        lease: timedelta,
        ageing: timedelta | None = None,
    ) -> Claimed:
        """Lease up to `want` runs to a worker, from these queues, or from all if none is named; and if runs age, by how
        long they have been due too."""
        ...

    async def finish(self, verdicts: Sequence[Verdict]) -> list[Finished]: ...

    async def heartbeat(self, worker: WorkerInfo, claims: Sequence[Claim], *, lease: timedelta) -> Pulse: ...

    async def cancel(self, keys: Sequence[str], *, running: bool = True) -> list[Cancelled]: ...

    async def clear(self, query: RunQuery) -> Cleared:
        """Cancel some of the pending runs that a query finds, in one bounded step."""
        ...

    async def report(self, reports: Sequence[ProgressReport]) -> list[bool]:
        """Note progress; False for a report that was fenced or whose run is not running."""
        ...

    async def revive(self, revivals: Sequence[Revival]) -> list[bool]: ...

    async def discard(self, ids: Sequence[str]) -> list[bool]:
        """Drop the records of runs that are over; False for a run that is not, or is not kept."""
        ...

    # Holds: strikes and pauses

    async def hold(self, holds: Sequence[Hold]) -> None: ...
    async def lift(self, holds: Sequence[Hold]) -> None: ...
    async def holds(self) -> list[Hold]: ...

    # Sight

    async def find(self, query: RunQuery) -> Page[Run]: ...
    async def survey(self) -> Survey: ...

    async def standing(self, run_id: str) -> Standing | None:
        """What is in the way of a live run; None if there is no such run, or it is over."""
        ...

    def watch(self, *topics: Topic) -> AbstractAsyncContextManager[AsyncIterator[Event]]: ...

    # Upkeep

    async def sweep(self, *, silent_for: timedelta = timedelta(minutes=1), at_most: int = 1000) -> Swept:
        """Tidy up, in one bounded step. Workers not heard of for `silent_for` are forgotten."""
        ...


@runtime_checkable
class Enlists(Protocol):
    """An engine that can schedule inside a transaction the caller has open."""

    async def schedule_within(self, connection: Any, runs: Sequence[NewRun]) -> list[Placement]: ...


@runtime_checkable
class Lends(Protocol):
    """An engine whose server may be used for other things too."""

    def client(self) -> AbstractAsyncContextManager[Any]:
        """The driver's own client to the server. What is closed at the end is the engine's business."""
        ...


@runtime_checkable
class SignsIn(Protocol):
    """An engine whose server can be told by a provider, and not by the URL, who is asking."""

    def sign_in_with(self, provider: Any) -> None:
        """Ask the provider anew before every connection. To be called before the engine is opened."""
        ...


class Transaction(Protocol):
    """A transaction in which a task writes. What it wrote counts with the verdict, or not at all."""

    @property
    def connection(self) -> Any:
        """The driver's own connection. To commit is not the task's business."""
        ...

    async def finish(self, verdict: Verdict) -> Finished:
        """Write the verdict, fenced by its epoch, and commit; FENCED, and all rolled back, when the claim is void.
        After OutcomeUnknown nobody knows whether it was committed; the epoch still decides who may speak next."""
        ...

    async def abandon(self) -> None:
        """Roll back. Doing so twice, or after `finish`, is the same as once."""
        ...


@runtime_checkable
class Transacts(Protocol):
    """An engine that can finish a run in the transaction in which its task wrote."""

    async def transaction(self) -> Transaction: ...


@runtime_checkable
class Plans(Protocol):
    """An engine whose schema can be looked at before it is changed. None of this needs the engine to be open."""

    async def plan(self) -> list[str]:
        """The steps that are missing, by name; none if the schema is the newest."""
        ...

    def script(self) -> str:
        """All steps, as SQL to read, or to run by hand."""
        ...

    def roles(self) -> str:
        """The roles that may use the schema, as SQL for an administrator; empty where there are none."""
        ...


@runtime_checkable
class Archives(Protocol):
    """An engine with an archive: it keeps records past their retention, apart from the others."""

    async def archived(self) -> int:
        """How many records lie in the archive. It counts them."""
        ...


@runtime_checkable
class Countable(Protocol):
    """An engine that can say how much it holds, for tests that look for what was left behind."""

    async def residue(self) -> dict[str, int]:
        """Rows or keys that remain for this docket, by kind; nothing at all when it is empty."""
        ...


@runtime_checkable
class Examines(Protocol):
    """An engine that can be looked at: at a glance as often as one likes, and from head to foot."""

    async def glance(self) -> Glance:
        """What waits and runs, in one bounded look: cheap beside any number of runs, and not exact to the last one."""
        ...

    async def examine(self, durability: str | None = None) -> list[Finding]:
        """The store itself, against a durability, which is that with which it was opened unless another is named: its
        version, settings, room and rights, and whether what it keeps hangs together. What this user may not ask is a
        note."""
        ...


@runtime_checkable
class Mends(Protocol):
    """An engine that can derive what was damaged from what is left. No run is lost by it; workers may be at work."""

    async def mend(self) -> list[Repair]: ...
