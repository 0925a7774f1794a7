"""Tasks whose bodies note in the record that they start and end."""

from __future__ import annotations

import asyncio
import os
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from dovetail import Docket, task
from dovetail.injection import current_docket
from tests.system.programs.record import note_run, noted

GLANCE = 0.01
EXIT_OF_THE_PILL = 17


async def pause(milliseconds: int) -> None:
    """Takes a while on the event loop."""
    with noted():
        await asyncio.sleep(milliseconds / 1000)


def pause_in_thread(milliseconds: int) -> None:
    """Takes a while in a thread."""
    with noted():
        time.sleep(milliseconds / 1000)


async def wait_at(gate: str) -> int:
    """Goes on until the gate opens; returns who it was."""
    with noted():
        while not Path(gate).exists():  # noqa: ASYNC110 - another process opens it
            await asyncio.sleep(GLANCE)
    return os.getpid()


async def block_at(gate: str) -> int:
    """As `wait_at`, but in the way of the event loop."""
    with noted():
        while not Path(gate).exists():
            time.sleep(GLANCE)
    return os.getpid()


def wait_in_thread_at(gate: str) -> int:
    """As `wait_at`, in a thread."""
    with noted():
        while not Path(gate).exists():
            time.sleep(GLANCE)
    return os.getpid()


async def block(milliseconds: int) -> None:
    """Does not let the event loop turn for so long."""
    with noted():
        time.sleep(milliseconds / 1000)  # the line that blocks


async def swallow_pill() -> None:
    """Takes its worker down with it."""
    note_run("start")
    os._exit(EXIT_OF_THE_PILL)


async def stop_worker() -> None:
    """Tells its worker to stop, as a signal from outside does."""
    with noted():
        os.kill(os.getpid(), signal.SIGTERM)


async def carry(load: str) -> None:
    """Only takes up room."""
    with noted():
        pass


async def fork_and_add(key: str) -> int:
    """Forks; the child adds a run under this key. Returns how the child ended."""
    docket = current_docket.get()
    with noted():
        child = os.fork()
        if child == 0:
            status = 1
            try:
                asyncio.run(_add(docket, key))
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
    return status


async def _add(docket: Docket, key: str) -> None:
    await docket.add(pause, key=key)(0)


async def ignore_everything() -> None:
    """Lets nothing end it."""
    note_run("start")
    while True:
        with suppress(BaseException):
            await asyncio.sleep(60)


leaked: list[bytes] = []


async def leak(mebibytes: int) -> None:
    """Takes memory and never gives it back."""
    with noted():
        leaked.append(os.urandom(1 << 10) * (mebibytes << 10))
        await asyncio.sleep(0.05)


@task(executor="process")
def wait_abroad_at(gate: str) -> int:
    """As `wait_at`, in a process of its own."""
    with noted():
        while not Path(gate).exists():
            time.sleep(GLANCE)
    return os.getpid()


@task(executor="process")
def hold_the_interpreter(seconds: float) -> None:
    """Lets no other thread of its process have a turn, for so long or a bit longer."""
    over = time.monotonic() + seconds
    with noted():
        while time.monotonic() < over:
            sum(range(10**8))


tasks: list[Callable[..., Any]] = [
    pause,
    pause_in_thread,
    wait_at,
    block_at,
    wait_in_thread_at,
    block,
    swallow_pill,
    fork_and_add,
    stop_worker,
    carry,
    ignore_everything,
    leak,
    wait_abroad_at,
    hold_the_interpreter,
]
