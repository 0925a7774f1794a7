"""A transaction as a dependency: what the task writes there is committed with the run's end, or not at all."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, cast

from uncalled_for import Provider

from dovetail.engine import Transaction, Transacts
from dovetail.errors import UsageError
from dovetail.injection.context import current_docket

open_transactions: ContextVar[list[Transaction]] = ContextVar("dovetail_transactions")
"""Those of the run at hand. Whoever runs it ends them."""


class _TaskTransaction(Provider[Any]):
    """The connection of the run's transaction. Asked for twice, it is the same."""

    name = "TaskTransaction()"
    is_the_workers = True

    async def __aenter__(self) -> Any:
        try:
            opened, engine = open_transactions.get(), current_docket.get().engine
        except LookupError:
            raise UsageError("TaskTransaction() has a value only while a worker runs a task") from None
        if not isinstance(engine, Transacts):
            raise UsageError("TaskTransaction() needs a docket in a database with transactions: PostgreSQL, or SQLite")
        if not opened:
            opened.append(await engine.transaction())
        return opened[0].connection


def TaskTransaction() -> Any:
    """A connection to the docket's own database. What the task writes there takes effect exactly once: it is committed
    together with the end of the run, and rolled back if the task fails or another worker has taken the run over."""
    return cast(Any, _TaskTransaction())
