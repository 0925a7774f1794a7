"""Which thread a connection of the caller's belongs to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_djangos_thread(work: Callable[[], T]) -> T:
    """Do something with Django's connection, which belongs to the thread in which the view runs."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()  # this is that thread: a sync docket hands its errands back to it
    from asgiref.sync import sync_to_async

    return await sync_to_async(work, thread_sensitive=True)()
