"""Schedules: the same calls without await."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, overload

import dovetail.schedules
from dovetail.schedules import Schedule
from dovetail.schedules.keeping import AddOptions
from dovetail.sync.execution import Execution

if TYPE_CHECKING:
    from dovetail.sync.docket import Docket

P = ParamSpec("P")
R = TypeVar("R")

AsyncSchedules = dovetail.schedules.Schedules


def carried(
    method: Callable[Concatenate[AsyncSchedules, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Schedules, P], R]:
    """A method of the async schedules, without await."""

    @wraps(method)
    def carry(self: Schedules, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.docket.carry(lambda docket: method(docket.schedules, *args, **kwargs))

    return carry


class Schedules:
    """The schedules of a docket, for code that does not await.

    docket.schedules.add("nightly", report, "0 3 * * *", tz="Europe/Vienna")("sales")
    """

    def __init__(self, docket: Docket) -> None:
        self.docket = docket

    @overload
    def add(
        self, name: str, function: Callable[P, Any], cron: str | None = None, **options: Unpack[AddOptions]
    ) -> Callable[P, Schedule]: ...
    @overload
    def add(
        self, name: str, function: str, cron: str | None = None, **options: Unpack[AddOptions]
    ) -> Callable[..., Schedule]: ...
    def add(self, name: str, function: Any, cron: str | None = None, **options: Any) -> Callable[..., Schedule]:
        """Let a call come again, at the times of a cron expression or every so often."""
        make = self.docket.docket.schedules.add(name, function, cron, **options)

        def made(*args: Any, **kwargs: Any) -> Schedule:
            return self.docket.carry(lambda _: make(*args, **kwargs))

        return made

    get = carried(AsyncSchedules.get)
    pause = carried(AsyncSchedules.pause)
    resume = carried(AsyncSchedules.resume)
    change = carried(AsyncSchedules.change)
    delete = carried(AsyncSchedules.delete)
    list = carried(AsyncSchedules.list)

    def trigger(self, name: str) -> Execution[Any]:
        """Make a run now, besides its times, paused or not."""
        return self.docket.execution(self.docket.carry(lambda docket: docket.schedules.trigger(name)))
