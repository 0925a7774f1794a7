"""A process that adds runs and forks meanwhile, more than once; both sides add on, and the parent closes first."""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from dovetail import Docket
from tests.system.programs import record
from tests.system.programs.record import note
from tests.system.programs.tasks import pause

CHILDREN = 5
EACH = 20
PATIENCE = 50


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what happens in another process; but not for one that is gone."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - no event reaches from one process to another
            await asyncio.sleep(0.005)


def noted(what: str) -> int:
    return sum(line.what == what for line in record.read(Path(os.environ[record.VARIABLE])))


async def add(docket: Docket) -> None:
    added = await docket.add(pause)(0)
    note("acknowledged", added.key, added.id or "-")


async def add_on(docket: Docket, stopping: asyncio.Event) -> None:
    while not stopping.is_set():
        await add(docket)


def files_of_the_store() -> dict[int, str]:
    """Descriptors of this process that lead to the database, its log or its shared memory."""
    store = os.environ["DOVETAIL_URL"].removeprefix("sqlite:///")
    names = {store: "database", f"{store}-wal": "log", f"{store}-shm": "memory"}
    found = {int(each.name): os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()}
    return {number: names[path] for number, path in found.items() if path in names}


async def live_on(docket: Docket, inherited: dict[int, str]) -> None:
    """The child's life: with the parent at first, then alone."""
    for _ in range(EACH):
        await add(docket)
    for number, name in files_of_the_store().items():
        if number not in inherited:
            note("opened", name)
    note("halfway")
    await until(lambda: noted("closed") == 1)
    for _ in range(EACH):
        await add(docket)


def be_a_child(docket: Docket) -> NoReturn:
    status = 1
    try:
        asyncio.run(live_on(docket, files_of_the_store()))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


async def main() -> list[int]:
    children: list[int] = []
    stopping = asyncio.Event()
    async with Docket() as docket, asyncio.TaskGroup() as group:
        # Several at once, so that the writer is in the middle of something whenever this process forks.
        for _ in range(4):
            group.create_task(add_on(docket, stopping))
        for number in range(CHILDREN):
            await until(lambda number=number: noted("acknowledged") >= 10 * (number + 1))
            child = os.fork()
            if child == 0:
                be_a_child(docket)
            children.append(child)
        await until(lambda: noted("halfway") == CHILDREN)
        stopping.set()
    note("closed")
    return children


if __name__ == "__main__":
    sys.exit(any(os.waitpid(child, 0)[1] for child in asyncio.run(main())))
