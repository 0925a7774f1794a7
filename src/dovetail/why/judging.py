"""From facts to causes. Decides only; knows no store."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.model import Run, State
from dovetail.why import endings, obstacles, progress, words
from dovetail.why.answers import Cause, CauseCode, Why
from dovetail.why.facts import Facts


def judge(facts: Facts) -> Why:
    """Why the run is not running."""
    run = facts.run
    if run is None:
        causes = [*obstacles.strikes(facts)] or [_unknown(facts)]
        return Why(facts.key, facts.at, tuple(causes))
    return Why(run.key, facts.at, tuple(_causes(facts, run)), run.id, run.task, run.state)


def _unknown(facts: Facts) -> Cause:
    return Cause(
        CauseCode.UNKNOWN,
        f"There is no record of a run {facts.key!r}: nothing was scheduled under this key, or it is over and its"
        " record is no longer kept.",
    )


def _causes(facts: Facts, run: Run) -> Iterator[Cause]:
    if run.state.is_terminal:
        yield endings.ending(facts, run)
    elif run.state is State.RUNNING:
        yield from progress.running(facts, run)
        yield from _crashes(run)
    else:
        yield from _pending(facts, run)
        yield from _crashes(run)


def _pending(facts: Facts, run: Run) -> Iterator[Cause]:
    """What keeps a pending run. First what it waits for itself, then what stays until somebody does something about it,
    and last what passes."""
    workers = list(obstacles.workers(facts, run))
    was_put_back = any(cause.code is CauseCode.NO_WORKER_FOR_TASK for cause in workers) and _was_handed_back(run)
    itself = [*obstacles.parents(facts, run), *obstacles.due_time(facts, run)]
    # A worker that does not know the task puts it back for a moment: that moment is not the reason.
    yield from [*workers, *itself] if was_put_back else itself
    yield from obstacles.strikes(facts)
    yield from obstacles.pause(facts, run)
    if not was_put_back:
        yield from workers
    full = list(obstacles.limits(facts, run))
    yield from full
    if not (itself or workers or full or facts.strikes or facts.pause):
        yield obstacles.turn(facts, run)


def _was_handed_back(run: Run) -> bool:
    """Whether it was claimed before, and came back without having failed."""
    return run.epoch > 0 and run.attempt == 1 and not run.errors


def _crashes(run: Run) -> Iterator[Cause]:
    if run.crashes:
        yield Cause(
            CauseCode.CRASHED,
            f"Its worker vanished without a word {words.times(run.crashes)} while it ran, and it started anew. When"
            f" that has happened {words.times(run.crash_limit)}, it fails as poisoned.",
            {"crashes": run.crashes, "crash_limit": run.crash_limit},
        )
