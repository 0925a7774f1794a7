"""Membership: what a worker process does beside its work. It notices when it is worn, and reports to a supervisor."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from enum import Enum
from typing import TYPE_CHECKING

from dovetail.observe.prometheus import fetches
from dovetail.worker.deafness import Deafness
from dovetail.worker.logs import logger
from dovetail.worker.recycling import Limits, Wear

if TYPE_CHECKING:
    from dovetail.worker.worker import Worker

LINE = "_DOVETAIL_LINE"
"""The variable in which a supervisor names the line to itself. It is nobody else's business."""
INTERVAL = 0.5
"""Seconds from one sign to the next."""
CLOSELY = 0.1
"""The same, for a worker whose runs are counted: some are very short."""


class Sign(bytes, Enum):
    """What a worker process tells its supervisor, over and over."""

    READY = b"r"
    WAITING = b"w"  # it has not claimed yet, or cannot at the moment
    STUCK = b"s"  # its claim loop does not move
    GOING = b"g"  # it is worn, and ends once its running work has


@asynccontextmanager
async def membership(
    worker: Worker, limits: Limits, stop_serving: Callable[[], None] = lambda: None
) -> AsyncGenerator[None]:
    """Around a worker that runs: nothing, unless it is limited or has a supervisor. What it serves is given up when a
    successor takes its place: of two at one port, nobody knows which one answers."""
    line = line_to_supervisor()
    if line is None and not limits:
        yield
        return
    attending = asyncio.create_task(_attend(worker, Wear(limits), line, stop_serving), name="dovetail membership")
    try:
        yield
    finally:
        attending.cancel()
        if line is not None:
            line.close()


def line_to_supervisor() -> socket.socket | None:
    """The line, if there is a supervisor. Asked once: what this process starts has none."""
    handle = os.environ.pop(LINE, None)
    if handle is None:
        return None
    line = socket.socket(fileno=int(handle))
    line.setblocking(False)
    os.set_inheritable(int(handle), False)
    return line


async def _attend(worker: Worker, wear: Wear, line: socket.socket | None, stop_serving: Callable[[], None]) -> None:
    if line is not None:
        asyncio.get_running_loop().add_reader(line.fileno(), _orphaned, worker, line)
    is_going = False
    deafness = Deafness(fetches)
    while True:
        reason = None if is_going else wear.reason_to_go(worker.attempts_made)
        if reason is None and line is not None and not is_going:  # without a line nobody would replace the process
            reason = deafness.reason_to_go(worker.vitals())
        if reason is not None:
            logger.info("this worker makes room for another: %s", reason)
            is_going = True
            if line is not None:
                await asyncio.to_thread(stop_serving)
            # In one go: an idle worker has ended before anything else is said.
            worker.retire()
            _tell(line, Sign.GOING)
        _tell(line, _sign(worker))
        await asyncio.sleep(CLOSELY if wear.counts_runs and not is_going else INTERVAL)


def _orphaned(worker: Worker, line: socket.socket) -> None:
    asyncio.get_running_loop().remove_reader(line.fileno())
    logger.warning("the supervisor is gone, and this worker stops")
    worker.stop()


def _sign(worker: Worker) -> Sign:
    if worker.is_ready:
        return Sign.READY
    return Sign.STUCK if worker.is_stuck else Sign.WAITING


def _tell(line: socket.socket | None, sign: Sign) -> None:
    if line is not None:
        with suppress(OSError):  # a supervisor that is slow, or gone
            line.send(sign.value)
