"""ConcurrencyLimit: only so many at once."""

from __future__ import annotations

from dovetail import checks
from dovetail.behaviors.limits import Limiting
from dovetail.errors import InvalidArgument
from dovetail.model import Limit


class ConcurrencyLimit(Limiting):
    """At most so many runs at once, over all workers: of the task, or for each value of one of its arguments.

        async def sync(account: Annotated[int, ConcurrencyLimit(2)]) -> None: ...
        async def sync(account: int, limit: ConcurrencyLimit = ConcurrencyLimit("account", max_concurrent=2)): ...
        async def reindex(limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> None: ...

    A run that finds no room is put aside in the store, and the first in line starts when a place is set free.
    """

    kind = "concurrency"
    single = True

    def __init__(
        self, argument_name: str | int | None = None, max_concurrent: int = 1, scope: str | None = None
    ) -> None:
        if isinstance(argument_name, int):  # ConcurrencyLimit(3)
            if max_concurrent != 1:
                raise InvalidArgument(f"max_concurrent is given twice: {argument_name} and {max_concurrent}")
            argument_name, max_concurrent = None, argument_name
        super().__init__(argument_name, scope)
        self.max_concurrent = checks.whole(max_concurrent, "max_concurrent", least=1)

    @property
    def concurrency_key(self) -> str:
        """What the runs that share this limit have in common."""
        if self._key is None:
            raise RuntimeError("ConcurrencyLimit not initialized: it has a key only while a worker runs the task")
        return self._key

    def limit(self, key: str) -> Limit:
        return Limit(key, self.max_concurrent)
