"""Schedule: what users see of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from dovetail.model import tags_of
from dovetail.queues import Pause
from dovetail.schedules.definition import Definition, Misfire, Overlap


@dataclass(frozen=True, slots=True)
class Schedule:
    """A call that comes again at set times, as it stood when it was read."""

    name: str
    task: str
    args: tuple[Any, ...] | None  # None: they cannot be read here
    kwargs: Mapping[str, Any] | None
    cron: str | None
    every: timedelta | None
    tz: str
    next_time: datetime | None  # None while it is paused
    last_time: datetime | None  # the last of its times that has come
    last_key: str | None  # and the key of its run
    paused: Pause | None
    overlap: Overlap
    misfire: Misfire
    until: datetime | None
    queue: str
    priority: int
    group: str | None
    tags: tuple[str, ...]
    created: datetime

    @property
    def is_paused(self) -> bool:
        return self.paused is not None


def shown(definition: Definition, args: tuple[Any, ...] | None, kwargs: Mapping[str, Any] | None) -> Schedule:
    """A schedule as users see it, with its arguments as far as they can be read."""
    call, timing = definition.call, definition.timing
    last = definition.last_time
    return Schedule(
        definition.name, call.task, args, kwargs, timing.cron, timing.every, timing.tz,
        None if definition.paused else timing.on_the_wall(definition.slot),
        None if last is None else timing.on_the_wall(last), definition.last_key, definition.paused,
        definition.overlap, definition.misfire, definition.until, call.queue, call.priority, call.group,
        tags_of(call.headers), definition.created,
    )  # fmt: skip
