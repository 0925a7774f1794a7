"""Somebody who terminates connections on the side of the server."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import psycopg


async def kill_backends(url: str, stop: asyncio.Event, pause: float = 0.02, at_most: int = 100) -> int:
    """Terminate one connection after the other. A bounded number: on a busy host, whoever is killed by the clock never
    gets anywhere."""
    ended = 0
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as killer:
        while not stop.is_set() and ended < at_most:
            rows = await killer.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'dovetail' ORDER BY random() LIMIT 1"
            )
            ended += len(await rows.fetchall())
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause)
    return ended
