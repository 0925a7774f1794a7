"""A task whose effect is a row, for tests that count effects; run as a program it is a worker to be killed."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from typing import Any

from dovetail import CurrentExecution, Docket, ExponentialRetry, TaskTransaction, Worker
from dovetail.execution import Execution

TABLE = "CREATE TABLE IF NOT EXISTS effect (docket text, run text, worker text)"


async def leave_effect(
    pause: float,
    connection: Any = TaskTransaction(),
    execution: Execution[Any] = CurrentExecution(),
    retry: ExponentialRetry = ExponentialRetry(
        attempts=1000, minimum_delay=timedelta(milliseconds=5), maximum_delay=timedelta(milliseconds=50)
    ),
) -> None:
    """Write once before a pause and once after it: both count, or neither."""
    values = (execution.docket.name, execution.id, execution.worker)
    await connection.execute("INSERT INTO effect VALUES (%s, %s, %s)", values)
    await asyncio.sleep(pause)
    await connection.execute("INSERT INTO effect VALUES (%s, %s, %s)", values)


async def work(url: str, name: str) -> None:
    async with Docket(name, url) as docket:
        docket.register(leave_effect)
        async with Worker(docket, concurrency=10, redelivery_timeout=timedelta(seconds=3)) as worker:
            await worker.run_forever()


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
