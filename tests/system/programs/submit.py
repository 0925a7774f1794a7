"""Producers that note each id before they ask and after they were told, on and on until they are killed.

They are forked from a process that has nothing open, so that another one is there at once.
"""

from __future__ import annotations

import asyncio
import os
import sys
from itertools import count

from dovetail import Docket
from dovetail.model import NewRun, new_id
from dovetail.tasks import Task
from tests.system.programs.record import note
from tests.system.programs.tasks import pause

BATCH = 5


def drafted(docket: Docket, run_id: str) -> NewRun:
    """A request that may be repeated: the id is its own."""
    return NewRun(run_id, run_id, "pause", docket.codec.dump_call(Task.of(pause).types, (0,), {}))


async def submit() -> None:
    async with Docket() as docket:
        for batch in count(1):
            runs = [drafted(docket, new_id()) for _ in range(BATCH)]
            for run in runs:
                note("sent", run.key, run.id, batch)
            await docket.engine.schedule(runs)
            for run in runs:
                note("acknowledged", run.key, run.id, batch)


def keep_submitting(producers: int) -> None:
    """Keep so many producers alive."""
    for number in count():
        if number >= producers:
            os.wait()
        if os.fork() == 0:
            asyncio.run(submit())


if __name__ == "__main__":
    keep_submitting(int(sys.argv[1]))
