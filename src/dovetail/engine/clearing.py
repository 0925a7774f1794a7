"""Clearing: what is asked of a store, and all the steps it takes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from dovetail.model import PENDING, Cleared, RunQuery


def pending_of(query: RunQuery) -> RunQuery | None:
    """The query without runs that have begun; None if it asks for no others."""
    states = tuple(state for state in PENDING if state in query.states) if query.states else PENDING
    return query.but(states=states) if states else None


async def steps(clear: Callable[[RunQuery], Awaitable[Cleared]], query: RunQuery) -> AsyncIterator[Cleared]:
    """Clear all that a query finds, step by step."""
    step = await clear(query)
    yield step
    while step.cursor is not None:
        step = await clear(query.but(cursor=step.cursor))
        yield step
