"""Leaks: what is left in the store, and of Dovetail in the process, when a test is over."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from dovetail.clock import VirtualClock
from dovetail.docket import PENDING, Docket
from dovetail.engine.interface import Countable
from dovetail.engine.paging import pages
from dovetail.model import TERMINAL, RunQuery, State

LIVE = (*PENDING, State.RUNNING)
SHOWN = 20
"""How many runs a message lists."""
A_CENTURY = timedelta(days=36525)
"""Longer than any record is kept."""
PASSING = ("run", "archive", "start", "opening", "share", "worker")
"""What goes by itself in time; on a clock that cannot be moved it is left alone."""
OF_A_STORE = ("dovetail-writer", "dovetail-reader", "dovetail-doorbell")
ENDING = 5.0
"""Seconds that a thread which was told to end may take."""


@asynccontextmanager
async def leak_check(docket: Docket | None = None) -> AsyncGenerator[None]:
    """At its end nothing is left behind by what began inside it: no thread and no asyncio task of Dovetail, and, if a
    docket is given, which has to be open then, nothing in its store.

        async with leak_check():
            async with Docket(url="memory://", clock=VirtualClock()) as docket, leak_check(docket):
                ...

    An error inside goes before: nothing is checked then.
    """
    threads, tasks = set(threading.enumerate()), asyncio.all_tasks()
    yield
    if docket is not None:
        await assert_nothing_left(docket)
    else:
        assert_no_strays(threads, tasks)


async def assert_nothing_left(docket: Docket) -> None:
    """Nothing waits or runs, no limit holds a slot, no queue is paused or task struck; and once its time has passed, no
    record remains. On a virtual clock that time does pass: it stands a century later afterwards."""
    clock = docket.clock
    if isinstance(clock, VirtualClock):
        await clock.settle()
    live = await docket.find_all(RunQuery(states=LIVE))
    if live:
        lines = [f"  - {run.task} key={run.key!r} {run.state}, due {run.due}" for run in live[:SHOWN]]
        if len(live) > SHOWN:
            lines.append(f"  ... and {len(live) - SHOWN} more")
        raise AssertionError(f"{len(live)} runs are left on the docket {docket.name!r}:\n" + "\n".join(lines))
    if isinstance(clock, VirtualClock):
        clock.jump(A_CENTURY)
    residue = await _residue(docket)
    if residue:
        kinds = ", ".join(f"{count} x {kind}" for kind, count in sorted(residue.items()))
        raise AssertionError(
            f"the store of the docket {docket.name!r} is not as empty as it was; it still holds: {kinds}"
        )


async def _residue(docket: Docket) -> dict[str, int]:
    """What a sweep leaves that it should not."""
    engine = docket.engine
    if not isinstance(engine, Countable):
        return {}
    while (await engine.sweep(silent_for=timedelta())).more:
        pass
    if isinstance(docket.clock, VirtualClock):
        # What is left was to be kept for ever, which is no leak.
        async for page in pages(engine.find, RunQuery(states=tuple(TERMINAL))):
            await engine.discard([run.id for run in page])
    residue = await engine.residue()
    expected = () if isinstance(docket.clock, VirtualClock) else PASSING
    return {kind: count for kind, count in residue.items() if kind not in expected}


def assert_no_strays(threads: set[threading.Thread], tasks: set[asyncio.Task[Any]]) -> None:
    """No thread or asyncio task of Dovetail is there that was not there then."""
    left = [f"the thread {each.name}" for each in _lasting(set(threading.enumerate()) - threads)]
    left += [
        f"the asyncio task {task.get_name()!r}" for task in asyncio.all_tasks() - tasks if _is_ours(task.get_coro())
    ]
    if left:
        raise AssertionError(
            f"left behind: {', '.join(sorted(left))}; close every docket and stop every worker: use 'async with'"
        )


def _lasting(threads: set[threading.Thread]) -> list[threading.Thread]:
    """Threads of ours that do not end though they were given time to."""
    deadline = time.monotonic() + ENDING
    ours = [each for each in threads if each.name.startswith("dovetail-")]
    for thread in ours:
        # Those of a store have ended when it is closed, and do not end before: they are not waited for.
        if not thread.name.startswith(OF_A_STORE):
            thread.join(max(deadline - time.monotonic(), 0))
    return [each for each in ours if each.is_alive()]


def _is_ours(coroutine: Any) -> bool:
    frame = getattr(coroutine, "cr_frame", None)
    return frame is not None and frame.f_globals.get("__name__", "").startswith("dovetail.")
