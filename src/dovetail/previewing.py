"""Previews: which of the runs that wait a strike would keep from starting."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from dovetail.engine.paging import WHOLE, pages
from dovetail.execution import Execution
from dovetail.holds import Strike
from dovetail.model import PENDING, Page, Run, RunQuery
from dovetail.strikelist import StrikeList


class StrikePreview:
    """The runs that wait and that a strike would keep from starting: iterate over them, or count them.

    async for execution in docket.preview_strike(send, "to", "==", "ann@example.com"):
        ...
    """

    def __init__(
        self,
        strike: Strike,
        find: Callable[[RunQuery], Awaitable[Page[Run]]],
        execution_of: Callable[[Run], Execution[Any]],
    ) -> None:
        self.strike = strike
        self.unjudged = 0
        """How many runs the last look passed over, since their arguments cannot be told apart here."""
        self._find = find
        self._execution_of = execution_of

    async def __aiter__(self) -> AsyncIterator[Execution[Any]]:
        self.unjudged = 0
        alone = StrikeList()
        alone.update(self.strike)
        tasks = (self.strike.function,) if self.strike.function else ()
        async for page in pages(self._find, RunQuery(states=PENDING, tasks=tasks, limit=WHOLE)):
            for execution in map(self._execution_of, page):
                is_clear = self.strike.parameter is None or has_named_arguments(execution)
                if alone.is_stricken(execution) and (is_clear or execution.schedule_exception is None):
                    yield execution
                elif not is_clear:
                    self.unjudged += 1

    async def count(self) -> int:
        return sum([1 async for _ in self])


def has_named_arguments(execution: Execution[Any]) -> bool:
    """Whether it is known here what each argument is called: without its task, positional ones have no names."""
    is_known = execution.function_name in execution.docket.tasks or not execution.args
    return is_known and execution.schedule_exception is None
