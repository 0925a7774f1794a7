"""A command's work on a docket: opened before it, closed after it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from dovetail.docket import Docket

T = TypeVar("T")


def on_docket(
    work: Callable[[Docket], Awaitable[T]], url: str | None, name: str | None, tasks: Iterable[str] = ()
) -> T:
    """Open the docket, register the collections of tasks, do the work, and close the docket again."""

    async def opened() -> T:
        async with Docket(name, url) as docket:
            for collection in tasks:
                docket.register_collection(collection)
            return await work(docket)

    return asyncio.run(opened())
