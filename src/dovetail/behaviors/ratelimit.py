"""RateLimit: only so many in a window of time."""

from __future__ import annotations

from datetime import timedelta

from dovetail import checks
from dovetail.behaviors.limits import Limiting
from dovetail.model import Limit


class RateLimit(Limiting):
    """At most `limit` starts within any window of length `per`: of the task, or for each value of an argument.

        async def call(rate: RateLimit = RateLimit(10, per=timedelta(seconds=1))) -> None: ...
        async def call(tenant: Annotated[str, RateLimit(10, per=timedelta(seconds=1))]) -> None: ...

    The window slides. What is over the limit waits its turn in the store; with `drop` it is cancelled instead. Every
    start counts, those of retries and of failed runs too.
    """

    kind = "rate"

    def __init__(self, limit: int, *, per: timedelta, drop: bool = False, scope: str | None = None) -> None:
        super().__init__(None, scope)
        self.starts = checks.whole(limit, "limit", least=1)
        self.per = checks.window(per, "per")
        self.drop = checks.truth(drop, "drop")

    def limit(self, key: str) -> Limit:
        return Limit(key, self.starts, self.per, self.drop)
