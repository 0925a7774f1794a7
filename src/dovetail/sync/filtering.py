"""Filters: which runs are meant, as the methods of a docket that find some take it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TypedDict

from dovetail.model import State
from dovetail.tasks import TaskFunction


class Filters(TypedDict, total=False):
    """Which of the runs that failed."""

    task: TaskFunction | str | None
    queue: str | None
    group: str | None
    since: datetime | None
    before: datetime | None
    error: str | None
    tags: Iterable[str]
    limit: int
    cursor: str | None


class Query(TypedDict, total=False):
    """Which of all runs."""

    states: Iterable[State | str]
    tasks: Iterable[TaskFunction | str]
    queues: Iterable[str]
    groups: Iterable[str]
    tags: Iterable[str]
    key_prefix: str | None
    created_after: datetime | None
    created_before: datetime | None
    error: str | None
    newest_first: bool
    limit: int
    cursor: str | None
