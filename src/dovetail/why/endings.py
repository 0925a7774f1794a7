"""What became of a run that is over."""

from __future__ import annotations

from typing import Any

from dovetail.model import Run, State
from dovetail.why import words
from dovetail.why.answers import Cause, CauseCode
from dovetail.why.facts import Facts


def ending(facts: Facts, run: Run) -> Cause:
    when = "" if run.finished is None else f" {words.ago(run.finished, facts.at)}"
    known: dict[str, Any] = {"finished": run.finished, "attempt": run.attempt, "worker": run.worker, "error": run.error}
    if run.state is State.COMPLETED:
        return Cause(CauseCode.COMPLETED, f"It completed{when}, on attempt {run.attempt}.", known)
    if run.state is State.FAILED:
        return _failure(run, when, known)
    return _cancellation(facts, run, when, known)


def _failure(run: Run, when: str, known: dict[str, Any]) -> Cause:
    if (run.error or "").startswith("Poisoned") and run.crashes >= run.crash_limit:
        return Cause(
            CauseCode.POISONED,
            f"It failed{when}, as poisoned: its worker vanished without a word {words.times(run.crashes)} while it ran,"
            " and it is not started again by itself.",
            {**known, "crashes": run.crashes, "crash_limit": run.crash_limit},
        )
    return Cause(
        CauseCode.FAILED, f"It failed{when}, on attempt {run.attempt}: {run.error or 'no error is kept'}", known
    )


def _cancellation(facts: Facts, run: Run, when: str, known: dict[str, Any]) -> Cause:
    if run.doomed_by is not None:
        return _doom(facts, run, run.doomed_by, when, known)
    drops = [words.limit_name(limit, run.task) for limit in run.limits if run.error == str(limit.dropped)]
    if drops:
        said = f": there was no room under {words.listed(drops)}, which cancels what it does not admit."
    else:
        said = f": {run.error}" if run.error else "."
    return Cause(CauseCode.CANCELLED, f"It was cancelled{when}{said}", {**known, "drops": drops})


def _doom(facts: Facts, run: Run, parent_id: str, when: str, known: dict[str, Any]) -> Cause:
    parent = facts.relatives.get(parent_id)
    facts_of_it = {**known, "parent": parent_id if parent is None else parent.key}
    if parent is None:
        why = f"the run {parent_id}, which it waited for, failed or was cancelled. Its record is no longer kept."
    elif parent.state.is_terminal and parent.state is not State.COMPLETED:
        how = "failed" if parent.state is State.FAILED else "was cancelled"
        why = f"{parent.key!r}, which it waited for, {how}{f': {parent.error}' if parent.error else '.'}"
    else:
        why = f"{parent.key!r}, which it waited for, had failed or was cancelled; by now that is {parent.state}."
    return Cause(CauseCode.CANCELLED_BY_PARENT, f"It was cancelled{when}, because {why}", facts_of_it)
