"""Debounce: wait until it is quiet, then go once."""

from __future__ import annotations

from datetime import timedelta

from dovetail import checks
from dovetail.behaviors.base import Arguments
from dovetail.behaviors.limits import Keyed
from dovetail.clock import LAST
from dovetail.model import Conflict, Due, NewRun


class Debounce(Keyed):
    """Go once, when no further call has come for `settle`: of the task, or for each value of an argument.

        async def reindex(debounce: Debounce = Debounce(timedelta(seconds=5))) -> None: ...
        async def reindex(account: Annotated[int, Debounce(timedelta(seconds=5))]) -> None: ...

    All calls within the window are one run under one key: the first brings the arguments, the later ones put it off.
    It concerns `add` and `add_many`; `replace` means what it says.
    """

    kind = "debounce"
    single = True
    shows_value = False  # the key is the run's, and goes into every log line; an argument does not

    def __init__(self, settle: timedelta, *, scope: str | None = None) -> None:
        super().__init__(None, scope)
        self.settle = checks.duration(settle, "settle", positive=True)

    def plan(self, draft: NewRun, arguments: Arguments) -> NewRun:
        unfit = self.argument is not None and self.argument not in arguments
        if unfit or draft.conflict is not Conflict.KEEP:
            return draft
        key = self.key_for(draft.task, arguments)
        return draft.but(key=key, due=_after(draft.due, self.settle), conflict=Conflict.POSTPONE)


def _after(due: Due, settle: timedelta) -> Due:
    try:
        return due + settle
    except OverflowError:  # past the last moment that there is
        return LAST
