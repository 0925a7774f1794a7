"""A producer process: adds runs, some one by one, some in one go."""

from __future__ import annotations

import asyncio
import sys

from dovetail import Docket
from tests.system.programs.record import note
from tests.system.programs.tasks import pause, pause_in_thread

TASKS = (pause, pause_in_thread)


async def produce(count: int) -> None:
    async with Docket() as docket:
        note("ready")
        for number in range(count // 2):
            added = await docket.add(TASKS[number % 2])(0)
            note("added", added.key, added.id or "-")
        for added in await docket.add_many(docket.call(pause)(0) for _ in range(count - count // 2)):
            note("added", added.key, added.id or "-")


if __name__ == "__main__":
    asyncio.run(produce(int(sys.argv[1])))
