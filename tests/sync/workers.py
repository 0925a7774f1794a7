"""Workers beside a sync program: each in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import dovetail
from dovetail import Worker
from tests.waiting import PATIENCE

Function = Callable[..., Any]


def finish(url: str, *tasks: Function) -> None:
    """Run everything that is on the docket, in this thread."""

    async def work() -> None:
        async with dovetail.Docket("tests", url) as docket:
            for task in tasks:
                docket.register(task)
            await Worker(docket, redelivery_timeout=timedelta(minutes=1)).run_until_finished()

    asyncio.run(work())


@contextmanager
def working(url: str, *tasks: Function) -> Iterator[None]:
    """A worker that runs meanwhile."""
    started = threading.Event()
    stop: list[Callable[[], Any]] = []

    async def work() -> None:
        async with dovetail.Docket("tests", url) as docket:
            for task in tasks:
                docket.register(task)
            worker = Worker(docket, redelivery_timeout=timedelta(minutes=1))
            loop = asyncio.get_running_loop()
            running = asyncio.create_task(worker.run_forever())
            stop.append(lambda: loop.call_soon_threadsafe(running.cancel))
            started.set()
            await running

    thread = threading.Thread(target=asyncio.run, args=(work(),))
    thread.start()
    assert started.wait(PATIENCE)
    try:
        yield
    finally:
        stop[0]()
        thread.join(PATIENCE)
