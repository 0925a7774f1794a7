"""The doctor: what can be said of a docket at one look. Most of it is pure: something seen in, findings out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dovetail.clock import Clock, from_microseconds
from dovetail.engine import Engine, Examines, Mends
from dovetail.engine.finding import note, ok, problem, some, warning
from dovetail.errors import DovetailError, UsageError
from dovetail.model import Finding, Glance, Hold, HoldKind, QueueGlance, Repair, RunQuery, State, WorkerInfo
from dovetail.model.glance import KEPT, SHOWN
from dovetail.schedules import QUEUE, is_tick

SAMPLE = 500
"""Runs of which the tasks are looked at: so many that are queued, and so many that are scheduled."""
SKEW, GRAVE_SKEW = timedelta(seconds=1), timedelta(seconds=10)
"""How far this host's clock may be from the store's; and how far is a problem."""
LAPSED = timedelta(seconds=60)
"""How long a lease may have lapsed before somebody should have taken the run over."""
LATE = timedelta(seconds=60)
"""How long a run may be past due while there is room for it."""
BACKLOG, OLD = 10_000, timedelta(minutes=5)
"""How many runs may be due, and since when, before it is worth a word."""
FORGOTTEN = timedelta(days=7)
"""After how long a pause or a strike without an end may have been forgotten."""
RECENT, MANY_FAILURES = timedelta(hours=1), 10
"""How many failures in how long are a warning."""
EMPTIED = timedelta(days=1)
"""For how long it is said that the store had lost all that it held."""
SHORT_LEASE = timedelta(seconds=5)
"""A lease that a busy host may fail to renew."""
LONG_GRACE = timedelta(seconds=30)
"""What most supervisors give a process to stop."""
MOST_SWEEPS = 10_000


@dataclass(frozen=True, slots=True)
class Seen:
    """What the doctor looks at."""

    glance: Glance
    holds: list[Hold]
    offset: timedelta  # how far the store's clock is ahead of this host's
    unsure: timedelta  # and how far that may be wrong
    silence: timedelta  # after which a worker counts as dead
    tasks: Counter[str] = field(default_factory=Counter[str])  # of some that are queued, or were put back

    @property
    def now(self) -> datetime:
        return self.glance.at

    @property
    def alive(self) -> list[WorkerInfo]:
        return [each for each in self.glance.workers if self._was_heard(each)]

    @property
    def dead(self) -> list[WorkerInfo]:
        return [each for each in self.glance.workers if not self._was_heard(each)]

    def _was_heard(self, worker: WorkerInfo) -> bool:
        return worker.last_seen is None or worker.last_seen > self.now - self.silence

    @property
    def paused(self) -> dict[str, Hold]:
        return {hold.queue: hold for hold in self.holds if hold.kind is HoldKind.PAUSE and hold.queue is not None}

    def takers(self, queue: str) -> list[WorkerInfo]:
        # Schedules are everybody's, whichever queues a worker takes.
        return [each for each in self.alive if not each.queues or queue in (*each.queues, QUEUE)]


# Looking and mending


async def examine(engine: Engine, clock: Clock, silence: timedelta, durability: str | None = None) -> list[Finding]:
    """Everything that can be found out about a docket and its store, the gravest first."""
    if not isinstance(engine, Examines):
        return [note("store", "this engine cannot be looked at", "see its own tools")]
    found = await engine.examine(durability)
    try:
        seen = await _look(engine, clock, silence)
    except DovetailError as error:
        found.append(warning("runs", f"the runs could not be looked at: {error}", "run the doctor as one who may read"))
    else:
        found += judge(seen)
    return sorted(found, key=lambda each: -each.severity.rank)


async def glance_of(engine: Engine) -> Glance:
    """A bounded look at a docket, if its engine knows how."""
    if not isinstance(engine, Examines):
        raise UsageError(f"{type(engine).__name__} cannot be looked at: it has no glance()")
    return await engine.glance()


async def _look(engine: Engine, clock: Clock, silence: timedelta) -> Seen:
    before = clock.microseconds()
    glance = await glance_of(engine)
    after = clock.microseconds()
    queued = (await engine.find(RunQuery(states=(State.QUEUED,), limit=SAMPLE))).items if glance.queued else []
    later = any(each.scheduled for each in glance.queues)
    scheduled = (await engine.find(RunQuery(states=(State.SCHEDULED,), limit=SAMPLE))).items if later else []
    # A worker that does not know a task puts it back for a while: it is rarely seen in the queue.
    put_back = [run for run in scheduled if run.epoch > 0 and not run.errors]
    return Seen(
        glance,
        await engine.holds(),
        offset=glance.at - from_microseconds((before + after) // 2),
        unsure=timedelta(microseconds=(after - before) / 2),
        silence=silence,
        tasks=Counter(run.task for run in (*queued, *put_back) if not is_tick(run)),
    )


async def repair(engine: Engine, silence: timedelta) -> list[Repair]:
    """Put right what can be derived from what is there. Doing it again changes nothing, and no run is lost by it."""
    done = await engine.mend() if isinstance(engine, Mends) else []
    runs = workers = holds = repaired = 0
    for _ in range(MOST_SWEEPS):
        swept = await engine.sweep(silent_for=silence)
        runs, workers = runs + swept.runs, workers + swept.workers
        holds, repaired = holds + swept.holds, repaired + swept.repaired
        if not swept.more and not swept.repaired:
            break
    swept_up = [
        Repair("records past their retention removed", runs),
        Repair("dead workers forgotten", workers),
        Repair("holds past their time removed", holds),
        Repair("parked runs woken whose limit had room", repaired),
    ]
    return [*done, *(each for each in swept_up if each.count)]


# Judging


def judge(seen: Seen) -> list[Finding]:
    """What the checks have to say."""
    return [finding for check in CHECKS for finding in check(seen)]


def _clock(seen: Seen) -> Iterator[Finding]:
    off = max(abs(seen.offset) - seen.unsure, timedelta())
    told = f"this host's clock is {_span(off)} {'behind' if seen.offset > timedelta() else 'ahead of'} the store's"
    advice = "let both hosts follow one time server: due times given here are compared with the store's clock"
    if off >= GRAVE_SKEW:
        yield problem("clock", told, advice)
    elif off >= SKEW:
        yield warning("clock", told, advice)
    else:
        yield ok("clock", "this host and the store agree on the time")


def _workers(seen: Seen) -> Iterator[Finding]:
    alive, dead = seen.alive, seen.dead
    waits = seen.glance.queued
    if alive:
        yield ok("workers", f"{_many(len(alive), 'worker')} at work: {some([each.name for each in alive])}")
    elif waits:
        yield problem("workers", f"{_many(waits, 'run')} due, and no worker is there", "start one: `dovetail worker`")
    else:
        yield note("workers", "no worker is there", "start one: `dovetail worker`")
    if dead:
        yield warning(
            "workers.dead",
            f"not heard of for {_span(seen.silence)} or more: {some([each.name for each in dead])}",
            "they crashed, hang or are cut off: their runs start elsewhere; workers or --repair forget them",
        )


def _worker_clocks(seen: Seen) -> Iterator[Finding]:
    off = {each.name: skew for each in seen.alive if (skew := _skew_of(each))}
    if off:
        furthest = max(off.values(), key=abs)
        yield warning(
            "workers.clock",
            f"off from the store's clock by up to {_span(abs(furthest))}: {some(list(off))}",
            "let the hosts of these workers follow a time server: times that their tasks give are compared with the"
            " store's clock",
        )


def _skew_of(worker: WorkerInfo) -> timedelta:
    """How far a worker's clock is surely off; nothing if it may be right: a heartbeat is under way for a while."""
    if worker.clock is None or worker.last_seen is None:
        return timedelta()
    ahead = worker.clock - worker.last_seen
    under_way = (worker.lease or timedelta()) / 2  # after which the worker would have tried again
    return ahead if ahead > SKEW or ahead < -(SKEW + under_way) else timedelta()


def _emptied(seen: Seen) -> Iterator[Finding]:
    when = max((each.emptied for each in seen.alive if each.emptied is not None), default=None)
    if when is not None and when > seen.now - EMPTIED:
        yield problem(
            "store.emptied",
            f"the store lost all that it held {_span(max(seen.now - when, timedelta()))} ago",
            "find out what emptied it (FLUSHALL, a restart without an append-only file); then make schedules, strikes"
            " and pauses anew, and schedule again what waited: only automatic tasks came back by themselves",
        )


def _deaf(seen: Seen) -> Iterator[Finding]:
    deaf = [f"{key} on {each.name}" for each in seen.alive for key in each.deaf]
    if deaf:
        yield warning(
            "workers.deaf",
            f"cancelled, and still at it: {some(deaf)}",
            "their code swallows the cancellation: let CancelledError pass, or use executor='process'; a restart of the"
            " worker ends them",
        )


def _worker_settings(seen: Seen) -> Iterator[Finding]:
    hasty = [each.name for each in seen.alive if each.lease is not None and each.lease < SHORT_LEASE]
    if hasty:
        yield warning(
            "workers.lease",
            f"the lease is shorter than {_span(SHORT_LEASE)}: {some(hasty)}",
            "a host that is busy for as long, and their runs start elsewhere too: raise redelivery_timeout (--lease)",
        )
    slow = [each.name for each in seen.alive if each.grace is not None and each.grace > LONG_GRACE]
    if slow:
        yield note(
            "workers.grace",
            f"running work has more than {_span(LONG_GRACE)} to end: {some(slow)}",
            "see that whoever stops them waits as long (TimeoutStopSec, terminationGracePeriodSeconds)",
        )


def _unserved(seen: Seen) -> Iterator[Finding]:
    if not seen.alive:
        return
    left = [each for each in seen.glance.queues if each.oldest_due and not seen.takers(each.queue)]
    if left:
        yield problem(
            "queues.unserved",
            f"work is due that no worker takes, in {some([each.queue for each in left])}",
            "start a worker for these queues (--queue), or one for all",
        )


def _unknown_tasks(seen: Seen) -> Iterator[Finding]:
    if not seen.alive or any(each.has_fallback for each in seen.alive):
        return
    known = frozenset[str]().union(*(each.tasks for each in seen.alive))
    unknown = [task for task in sorted(seen.tasks) if task not in known]
    if unknown:
        yield problem(
            "tasks.unknown",
            f"tasks are due that no worker knows: {some(unknown)}",
            "start workers with these tasks (--tasks module:collection), or cancel the runs; until then they wait",
        )


def _paused(seen: Seen) -> Iterator[Finding]:
    waiting = {each.queue: each for each in seen.glance.queues if each.queued or each.oldest_due}
    blocked = [queue for queue in seen.paused if queue in waiting]
    if blocked:
        yield warning(
            "queues.paused",
            f"paused, with work in them: {', '.join(_pause(queue, seen) for queue in blocked[:3])}",
            "if that is over: `dovetail resume QUEUE`",
        )
    idle = [queue for queue, hold in seen.paused.items() if queue not in waiting and _is_forgotten(hold, seen)]
    if idle:
        yield note(
            "queues.forgotten",
            f"paused for more than {_span(FORGOTTEN)}, without an end: {some(idle)}",
            "`dovetail resume QUEUE`, or pause them with an end (--until)",
        )


def _strikes(seen: Seen) -> Iterator[Finding]:
    old = [hold for hold in seen.holds if hold.kind is HoldKind.STRIKE and _is_forgotten(hold, seen)]
    if old:
        yield note(
            "strikes.forgotten",
            f"in force for more than {_span(FORGOTTEN)}, without an end: {some([_struck(hold) for hold in old])}",
            "`dovetail restore`, or strike with an end (--until); see `dovetail strikes ls`",
        )


def _stuck(seen: Seen) -> Iterator[Finding]:
    stuck = [run for run in seen.glance.running if run.lease_until and run.lease_until < seen.now - LAPSED]
    if stuck:
        yield problem(
            "runs.stuck",
            f"leases that lapsed long ago, and nobody took the runs over: {some([run.key for run in stuck])}",
            f"start a worker for {some(sorted({run.queue for run in stuck}))}: it takes them over at once, unless the"
            " queue is paused",
        )
    else:
        yield ok("runs.stuck", "every run that runs has a worker")


def _late(seen: Seen) -> Iterator[Finding]:
    late = [each for each in seen.glance.queues if _is_late(each, seen)]
    if late:
        yield warning(
            "runs.late",
            f"due for more than {_span(LATE)} while workers have room: {some([each.queue for each in late])}",
            "look at the log of these workers: the store may be slow, or their event loop blocked",
        )


def _is_late(queue: QueueGlance, seen: Seen) -> bool:
    if queue.oldest_due is None or queue.oldest_due > seen.now - LATE or queue.queue in seen.paused:
        return False
    return any(each.running < each.concurrency for each in seen.takers(queue.queue))


def _backlog(seen: Seen) -> Iterator[Finding]:
    oldest = min((each.oldest_due for each in seen.glance.queues if each.oldest_due is not None), default=None)
    age = timedelta() if oldest is None else seen.now - oldest
    told = f"{_many(seen.glance.queued, 'run')} due, the first for {_span(age)}"
    if seen.glance.queued >= BACKLOG:
        yield warning("backlog", told, "add workers, or raise their concurrency")
    elif age >= OLD and seen.glance.queued:
        yield note("backlog", told, "if it should not wait so long: add workers, or raise their concurrency")
    else:
        yield ok("backlog", told if seen.glance.queued else "nothing is due")


def _failures(seen: Seen) -> Iterator[Finding]:
    recent = [run for run in seen.glance.failures if run.finished is None or run.finished > seen.now - RECENT]
    if len(recent) >= MANY_FAILURES:
        cause = Counter(run.error or "" for run in recent).most_common(1)[0][0]
        more = " or more" if len(recent) == SHOWN else ""
        yield warning(
            "failures",
            f"{len(recent)}{more} runs failed within {_span(RECENT)}; most often: {cause[:120]}",
            "see `dovetail failed ls`; once the cause is mended, `dovetail failed retry` runs them again",
        )
    elif seen.glance.failures:
        failed = _many(len(seen.glance.failures), "run")
        yield note("failures", f"{failed} failed and kept: {some([run.key for run in seen.glance.failures])}",
                   "see `dovetail failed ls`, or let their retention end")  # fmt: skip
    else:
        yield ok("failures", "no failed run is kept")
    poisoned = [run.key for run in seen.glance.failures if (run.error or "").startswith("Poisoned")]
    if poisoned:
        yield warning(
            "runs.poisoned",
            f"lost their workers again and again, and were given up: {some(poisoned)}",
            "they may kill the process, by memory or a crash in native code; run one alone and watch it",
        )


def _retention(seen: Seen) -> Iterator[Finding]:
    if seen.glance.kept >= KEPT:
        yield note(
            "retention",
            f"{KEPT:,} records or more of runs that are over are kept",
            "a shorter execution_ttl, or @task(retention=...), keeps the store small",
        )
    else:
        yield ok("retention", f"{_many(seen.glance.kept, 'record')} kept of runs that are over")


CHECKS: tuple[Callable[[Seen], Iterator[Finding]], ...] = (
    _emptied, _clock, _workers, _worker_clocks, _deaf, _worker_settings, _unserved, _unknown_tasks, _paused, _strikes,
    _stuck, _late, _backlog, _failures, _retention,
)  # fmt: skip


# Words


def _is_forgotten(hold: Hold, seen: Seen) -> bool:
    return hold.until is None and hold.since is not None and hold.since < seen.now - FORGOTTEN


def _pause(queue: str, seen: Seen) -> str:
    hold = seen.paused[queue]
    since = f" for {_span(seen.now - hold.since)}" if hold.since else ""
    return f"{queue!r}{since}" + (f" ({hold.reason})" if hold.reason else "")


def _struck(hold: Hold) -> str:
    return hold.task or f"parameter {hold.parameter}"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun} is" if count == 1 else f"{count:,} {noun}s are"


def _span(span: timedelta) -> str:
    """A duration as people say it."""
    seconds = span.total_seconds()
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size or (seconds == size and unit != "minutes"):
            return f"{seconds / size:.0f} {unit}" if seconds != size else f"1 {unit[:-1]}"
    return f"{seconds:.3g} s"
