"""What whoever subscribes to a run is told: how it stands, and every change."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, Required, TypedDict

from dovetail.model import Event, EventKind, Run, State
from dovetail.progress import ProgressEvent, progress_event


class StateEvent(TypedDict, total=False):
    """A run's state, as `subscribe` tells it; of the rest only what is known or has changed."""

    type: Required[Literal["state"]]
    key: Required[str]
    state: Required[State]
    when: str | None
    worker: str | None
    started_at: str | None
    completed_at: str | None
    error: str | None


def state_now(key: str, run: Run | None) -> StateEvent:
    """The state of a run as it was read; without one, that of a call which is not there yet."""
    if run is None:
        return StateEvent(
            type="state", key=key, state=State.SCHEDULED, when=None, worker=None, started_at=None, completed_at=None,
            error=None,
        )  # fmt: skip
    return StateEvent(
        type="state", key=key, state=run.state, when=_text(run.due), worker=run.worker,
        started_at=_text(run.started), completed_at=_text(run.finished), error=run.error,
    )  # fmt: skip


def progress_now(key: str, run: Run | None) -> ProgressEvent:
    return progress_event(key, run.progress if run else None)


def news_of(key: str, event: Event) -> StateEvent | ProgressEvent:
    """A live event: only what changed is in it."""
    if event.kind is EventKind.PROGRESS:
        return progress_event(key, event.progress)
    told = StateEvent(type="state", key=key, state=event.state or State.SCHEDULED)
    if event.when is not None:
        told["when"] = _text(event.when)
    if event.state is State.RUNNING:
        told["worker"] = event.worker
        told["started_at"] = _text(event.started)
    if event.finished is not None:
        told["completed_at"] = _text(event.finished)
    if event.error is not None:
        told["error"] = event.error
    return told


def is_known(event: Event, run: Run | None) -> bool:
    """Whether an event tells of a change that the run, as it was read after somebody began to listen, shows already."""
    if run is None or event.kind is not EventKind.STATE or (event.id, event.state) != (run.id, run.state):
        return False
    seen = ((event.when, run.due), (event.started, run.started), (event.finished, run.finished))
    return all(told is None or told == read for told, read in seen)


def _text(moment: datetime | None) -> str | None:
    return moment and moment.isoformat()
