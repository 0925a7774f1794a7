"""All the answers to a query, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from dovetail.errors import InvalidArgument
from dovetail.model import Page, Run, RunQuery

Find = Callable[[RunQuery], Awaitable[Page[Run]]]
WHOLE = 5_000
"""Runs on a page, for whoever wants to see them all: a store may look at everything that waits for each page."""
LONGEST = 18
"""Digits of a number that every store can hold."""


async def pages(find: Find, query: RunQuery) -> AsyncIterator[Page[Run]]:
    """Every page of a query, each asked for when the one before has been dealt with."""
    page = await find(query)
    yield page
    while page.cursor is not None:
        page = await find(query.but(cursor=page.cursor))
        yield page


def place_of(cursor: str) -> int:
    """The place in the order of arrival that a cursor names; an error if it is no number, or one that no run has."""
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > LONGEST:
        raise no_cursor(cursor)
    return int(cursor)


def no_cursor(cursor: str) -> InvalidArgument:
    return InvalidArgument(f"cursor {cursor!r} is none that a page gave")
