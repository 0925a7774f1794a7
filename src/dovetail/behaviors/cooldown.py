"""Cooldown: after one, none for a while."""

from __future__ import annotations

from datetime import timedelta

from dovetail import checks
from dovetail.behaviors.limits import Limiting
from dovetail.model import Limit


class Cooldown(Limiting):
    """After a start, whatever would start within the window is cancelled: the first goes, at once.

    async def refresh(cooldown: Cooldown = Cooldown(timedelta(minutes=1))) -> None: ...
    async def refresh(account: Annotated[int, Cooldown(timedelta(minutes=1))]) -> None: ...
    """

    kind = "cooldown"

    def __init__(self, window: timedelta, *, scope: str | None = None) -> None:
        super().__init__(None, scope)
        self.window = checks.window(window, "window")

    def limit(self, key: str) -> Limit:
        return Limit(key, 1, self.window, drop=True)
