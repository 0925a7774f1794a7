"""What may keep a pending run from starting, one thing at a time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from dovetail.holds import Strike
from dovetail.model import AttemptError, LimitUse, Run, State
from dovetail.schedules import is_tick
from dovetail.why import words
from dovetail.why.answers import Cause, CauseCode
from dovetail.why.facts import Facts
from dovetail.why.progress import blockages

COSTS_NOTHING = "SharedUnavailable"
"""The failure after which workers put a run back at the attempt that it had."""


def parents(facts: Facts, run: Run) -> Iterator[Cause]:
    if run.state is not State.WAITING:
        return
    known = [facts.relatives[each] for each in run.parents if each in facts.relatives]
    unmet = [each for each in known if not each.state.is_terminal]
    failed = [each for each in known if each.state in (State.FAILED, State.CANCELLED)]
    gone = [each for each in run.parents if each not in facts.relatives]
    if unmet:
        text = f"It waits for {words.listed([_parent(each) for each in unmet])}."
    elif gone and not known:
        text = f"It waits for {words.count(len(gone), 'run')} that left no record, and so for ever: cancel it."
    else:
        text = "It waits for other runs."
    if failed:
        text += f" Of those that are over, {words.listed([_parent(each) for each in failed])}."
    states = {each.key: each.state for each in known}
    yield Cause(CauseCode.WAITING_FOR_PARENTS, text, {"parents": states, "unmet": [each.key for each in unmet]})


def _parent(parent: Run) -> str:
    if parent.state is State.FAILED:
        return f"{parent.key!r} failed ({parent.error})" if parent.error else f"{parent.key!r} failed"
    if parent.state is State.CANCELLED:
        return f"{parent.key!r} was cancelled"
    return f"{parent.key!r} ({parent.state})"


def due_time(facts: Facts, run: Run) -> Iterator[Cause]:
    if run.due <= facts.at or run.parked_on is not None:
        return
    when = words.ahead(run.due, facts.at)
    if run.errors and run.attempt > run.errors[-1].attempt:
        last = run.errors[-1]
        yield Cause(
            CauseCode.RETRYING,
            f"Attempt {last.attempt} failed {words.span(facts.at - last.at)} ago with {last.failure}."
            f" Attempt {run.attempt} is due {when}.",
            {"due": run.due, "attempt": run.attempt, "failed_attempt": last.attempt, "error": str(last.failure)},
        )
    elif last := _put_back_by(run):
        yield Cause(
            CauseCode.SCHEDULED,
            f"{_put_back(facts, last)} It is due {when}.",
            {"due": run.due, "error": str(last.failure)},
        )
    else:
        yield Cause(CauseCode.SCHEDULED, f"It is due {when}.", {"due": run.due})


def _put_back_by(run: Run) -> AttemptError | None:
    """The error that cost no attempt. Others of the same number are from before somebody ran it again."""
    last = run.errors[-1] if run.errors else None
    return last if last is not None and last.failure.type == COSTS_NOTHING else None


def _put_back(facts: Facts, last: AttemptError) -> str:
    return f"It was put back {words.span(facts.at - last.at)} ago, at no cost: {last.failure}."


def strikes(facts: Facts) -> Iterator[Cause]:
    for strike in facts.strikes:
        then = "It was not scheduled" if facts.run is None else "It is cancelled when it would start"
        yield Cause(
            CauseCode.STRUCK,
            f"The strike {_named(strike)} forbids it{_laid(strike, facts.at)}. {then}.",
            _rule(strike),
        )
    for strike in facts.doubtful:
        yield Cause(
            CauseCode.MAY_BE_STRUCK,
            f"The strike {_named(strike)} may forbid it{_laid(strike, facts.at)}. Its arguments cannot be told"
            " apart here, since this program does not know its task.",
            _rule(strike),
        )


def _named(strike: Strike) -> str:
    """What a strike is about: `of 'send' with to == 'ann'`."""
    task = "of every task" if strike.function is None else f"of {strike.function!r}"
    return f"{task} with {strike.parameter} {strike.operator} {strike.value!r}" if strike.parameter else task


def _rule(strike: Strike) -> dict[str, Any]:
    return {
        "task": strike.function,
        "parameter": strike.parameter,
        "operator": strike.operator.value if strike.parameter else None,
        "value": repr(strike.value) if strike.parameter else None,
        "reason": strike.reason,
        "owner": strike.owner,
        "since": strike.since,
        "until": strike.until,
    }


def _laid(hold: Any, now: datetime) -> str:
    """By whom, since when, until when and why: as far as it is known."""
    text = f", laid by {hold.owner}" if hold.owner else ""
    if hold.since is not None:
        text += f", since {words.clock_time(hold.since, now)}"
    if hold.until is not None:
        text += f", until {words.clock_time(hold.until, now)}"
    return text + (f" ({hold.reason})" if hold.reason else "")


def pause(facts: Facts, run: Run) -> Iterator[Cause]:
    hold = facts.pause
    if hold is None:
        return
    by = f" by {hold.owner}" if hold.owner else ""
    ends = "" if hold.until is not None else " It stays so until somebody resumes it."
    yield Cause(
        CauseCode.PAUSED,
        f"Its queue {run.queue!r} is paused{by}{_laid(hold.but(owner=None), facts.at)}.{ends}",
        {"queue": run.queue, "reason": hold.reason, "owner": hold.owner, "since": hold.since, "until": hold.until},
    )


def workers(facts: Facts, run: Run) -> Iterator[Cause]:
    if facts.standing is None:
        return  # it moves so fast that its surroundings could not be seen
    alive = facts.workers
    if not alive:
        yield _nobody(facts)
        return
    takers = facts.takers(run)
    names = [worker.name for worker in alive]
    if not takers:
        queues = sorted({queue for worker in alive for queue in worker.queues})
        yield Cause(
            CauseCode.NO_WORKER_FOR_QUEUE,
            f"No live worker takes the queue {run.queue!r}. Those that are alive take"
            f" {words.listed([repr(queue) for queue in queues])}.",
            {"queue": run.queue, "workers": names, "queues": queues},
        )
    elif not is_tick(run) and not any(run.task in worker.tasks or worker.has_fallback for worker in takers):
        elsewhere = [worker.name for worker in alive if run.task in worker.tasks]
        hint = (
            f" Others know it, but do not take the queue: {words.listed([repr(name) for name in elsewhere])}."
            if elsewhere
            else ""
        )
        yield Cause(
            CauseCode.NO_WORKER_FOR_TASK,
            f"No live worker of its queue knows the task {run.task!r}: a worker that claims it puts it back.{hint}",
            {"task": run.task, "workers": [worker.name for worker in takers]},
        )


def _nobody(facts: Facts) -> Cause:
    seen = [worker.last_seen for worker in facts.silent if worker.last_seen is not None]
    last = f" The last one was heard of {words.ago(max(seen), facts.at)}." if seen else ""
    return Cause(CauseCode.NO_WORKER, f"No worker is alive.{last}", {"last_seen": max(seen, default=None)})


def limits(facts: Facts, run: Run) -> Iterator[Cause]:
    # The one that it is parked on first: the others are looked at once that has room.
    uses = sorted(facts.limits, key=lambda use: use.limit.key != run.parked_on)
    for use in uses:
        if use.is_full:
            yield _closed(facts, run, use, use.opens) if use.opens else _full(facts, run, use)


def _full(facts: Facts, run: Run, use: LimitUse) -> Cause:
    holders = [facts.relatives[each] for each in use.holders if each in facts.relatives]
    name = words.limit_name(use.limit, run.task)
    text = f"The limit {name} is full: {use.limit.capacity} at once."
    if holders:
        text += f" It is held by {words.listed([_holder(each, facts.at) for each in holders], use.taken)}."
    is_parked = run.parked_on == use.limit.key
    if is_parked:
        text += f" {_line(facts.ahead)}"
    return Cause(
        CauseCode.LIMIT_FULL,
        text,
        {
            "limit": use.limit.key,
            "capacity": use.limit.capacity,
            "taken": use.taken,
            "holders": [{"key": each.key, "worker": each.worker, "since": each.started} for each in holders],
            "ahead": facts.ahead if is_parked else None,
        },
    )


def _line(ahead: int) -> str:
    if not ahead:
        return "This run is the first that waits for it."
    return f"{words.runs(ahead)} {'waits' if ahead == 1 else 'wait'} for it before this one.".capitalize()


def _holder(run: Run, now: datetime) -> str:
    since = f" since {words.clock_time(run.started, now)}" if run.started else ""
    return f"{run.key!r} on {run.worker!r}{since}"


def _closed(facts: Facts, run: Run, use: LimitUse, opens: datetime) -> Cause:
    limit = use.limit
    window = words.span(limit.window) if limit.window else ""
    starts = words.count(limit.capacity, "start")
    text = f"The limit {words.limit_name(limit, run.task)} is used up: {starts} per {window}. It opens"
    text += f" {words.ahead(opens, facts.at)}."
    if limit.drop:
        text += " What would start before that is cancelled."
    is_parked = run.parked_on == limit.key
    if is_parked:
        text += f" {_line(facts.ahead)}"
    return Cause(
        CauseCode.WINDOW_CLOSED,
        text,
        {
            "limit": limit.key, "capacity": limit.capacity, "window": limit.window, "opens": opens, "drop": limit.drop,
            "ahead": facts.ahead if is_parked else None,
        },
    )  # fmt: skip


def turn(facts: Facts, run: Run) -> Cause:
    """Nothing holds it: it has to wait for its turn, or is about to start."""
    takers = facts.takers(run)
    busy = [worker for worker in takers if worker.blocked is not None or worker.running >= worker.concurrency > 0]
    before = _position(facts.ahead)
    if not takers or len(busy) < len(takers):
        text = "Nothing is in its way: a worker takes it when it next looks."
        if facts.ahead:
            text += f" {before}"
        if last := _put_back_by(run):
            text += f" {_put_back(facts, last)}"
        return Cause(CauseCode.READY, text, {"ahead": facts.ahead})
    slots = sum(worker.concurrency for worker in busy)
    stuck = " ".join(cause.text for cause in blockages(facts, busy))
    crew = f"{words.count(len(busy), 'worker')} with {words.count(slots, 'slot')}"
    text = f"Every worker that could take it is busy: {crew}. {before} {stuck}".rstrip()
    return Cause(
        CauseCode.WORKERS_BUSY, text, {"workers": [each.name for each in busy], "slots": slots, "ahead": facts.ahead}
    )


def _position(ahead: int) -> str:
    if not ahead:
        return "It is the next of its queue."
    about = "" if words.is_many(ahead) else "about "
    return f"{about}{words.runs(ahead)} of its queue {'is' if ahead == 1 else 'are'} before it.".capitalize()
