"""All the answers to a query, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from dovetail.model import Page, Run, RunQuery

Find = Callable[[RunQuery], Awaitable[Page[Run]]]


async def pages(find: Find, query: RunQuery) -> AsyncIterator[Page[Run]]:
    """Every page of a query, each asked for when the one before has been dealt with."""
    page = await find(query)
    yield page
    while page.cursor is not None:
        page = await find(query.but(cursor=page.cursor))
        yield page
