"""Agenda: many calls, spread over a stretch of time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, ParamSpec, overload

from dovetail import checks
from dovetail.clock import from_microseconds
from dovetail.docket import Docket, TaskCall
from dovetail.errors import InvalidArgument
from dovetail.execution import Execution
from dovetail.tasks import TaskFunction

P = ParamSpec("P")

Entry = tuple[TaskFunction | str, tuple[Any, ...], dict[str, Any], str | None]


class Agenda:
    """Calls that are to be made over a stretch of time, so that they do not all start at once.

    agenda = Agenda()
    for city in cities:
        agenda.add(fetch, key=f"fetch:{city}")(city)
    await agenda.scatter(docket, over=timedelta(hours=1))
    """

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    @overload
    def add(self, function: Callable[P, Any], key: str | None = None) -> Callable[P, None]: ...
    @overload
    def add(self, function: str, key: str | None = None) -> Callable[..., None]: ...
    def add(self, function: TaskFunction | str, key: str | None = None) -> Callable[..., None]:
        """Put a call on the agenda. Nothing is scheduled yet."""
        if key is not None:
            checks.text(key, "key")

        def note(*args: Any, **kwargs: Any) -> None:
            self._entries.append((function, args, kwargs, key))

        return note

    def clear(self) -> None:
        """Take everything off."""
        self._entries.clear()

    async def scatter(
        self,
        docket: Docket,
        over: timedelta,
        start: datetime | None = None,
        jitter: timedelta | None = None,
        *,
        shuffle: bool = False,
    ) -> list[Execution[Any]]:
        """Schedule everything evenly over the time given, from `start`, or from now.

        Each time is moved by up to `jitter` either way, though never before the start. With `shuffle` the calls come
        in any order; without, in the order they were added. The executions are those of the agenda's order.
        """
        checks.instance(over, timedelta, "the 'over' parameter must be a timedelta")
        if over <= timedelta():
            raise InvalidArgument(f"the 'over' parameter must be a positive duration, not {over}")
        if jitter is not None:
            checks.duration(jitter, "jitter")
        begin = from_microseconds(docket.clock.microseconds()) if start is None else checks.moment(start, "start")
        try:
            times = [_jittered(when, begin, jitter) for when in _spread(len(self._entries), begin, over)]
        except OverflowError:
            raise InvalidArgument(f"over ({over}) and jitter ({jitter}) lead beyond the last date there is") from None
        if checks.truth(shuffle, "shuffle"):
            random.shuffle(times)
        return await docket.add_many(_calls(docket, self._entries, times))


def _calls(docket: Docket, entries: list[Entry], times: list[datetime]) -> list[TaskCall]:
    # A task that is not known is found here, before anything is scheduled.
    return [
        docket.call(function, when, key)(*args, **kwargs)
        for (function, args, kwargs, key), when in zip(entries, times, strict=True)
    ]


def _spread(count: int, start: datetime, over: timedelta) -> list[datetime]:
    """So many times, evenly from the start to the end; a single one in the middle."""
    if count == 1:
        return [start + over / 2]
    return [start + over * number / (count - 1) for number in range(count)]


def _jittered(when: datetime, start: datetime, jitter: timedelta | None) -> datetime:
    return when if not jitter else max(start, when + jitter * random.uniform(-1, 1))
