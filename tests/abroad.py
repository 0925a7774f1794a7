"""Tasks that run in processes of their own. They have to be found by name, so they have a module to themselves."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from dovetail import (
    CurrentExecution,
    Depends,
    Execution,
    Fail,
    Perpetual,
    Progress,
    Retry,
    Shared,
    TaskArgument,
    TaskKey,
    TaskLogger,
    Timeout,
    task,
)

on_its_own = task(executor="process")


@on_its_own
def add(a: int, b: int = 1) -> int:
    return a + b


@on_its_own
def whoami() -> int:
    return os.getpid()


@on_its_own
async def whoami_async() -> tuple[int, bool]:
    await asyncio.sleep(0)
    return os.getpid(), threading.current_thread() is threading.main_thread()


@on_its_own
def segfault() -> None:
    ctypes.string_at(0)


@on_its_own
def close_everything() -> None:
    os.closerange(3, 256)


@on_its_own
def leave(code: int) -> None:
    os._exit(code)


@on_its_own
def stumble(path: str) -> int:
    """Dies the first time."""
    if not Path(path).exists():
        Path(path).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


@on_its_own
def spin(timeout: Timeout = Timeout(timedelta(seconds=0.5))) -> None:
    """Never ends."""
    while True:
        pass


@on_its_own
def spin_for_ever(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    while True:
        pass


@on_its_own
def spin_in_c(timeout: Timeout = Timeout(timedelta(seconds=0.5))) -> None:
    """Holds the interpreter: no other thread has a turn, and no handler of a signal either."""
    sum(range(10**13))


@on_its_own
def sleep_tidily(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    try:
        time.sleep(600)
    finally:
        Path(path + ".tidied").touch()


@on_its_own
async def sleep_tidily_async(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    try:
        await asyncio.sleep(600)
    finally:
        Path(path + ".tidied").touch()


@on_its_own
def wait_for(path: str) -> int:
    while not Path(path).exists():
        time.sleep(0.01)
    return os.getpid()


class Misshapen(ValueError):
    """It pickles, and does not unpickle."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} and {two}")


class Own(Exception):
    pass


@on_its_own
def fail(kind: str) -> None:
    if kind == "own":
        raise Own("a text")
    if kind == "misshapen":
        raise Misshapen("this", "that")
    if kind == "exit":
        raise SystemExit(3)
    if kind == "fail":
        raise Fail("for good")
    raise ValueError("no good")


@on_its_own
def try_again(retry: Retry = Retry(attempts=3)) -> int:
    if retry.attempt < 3:
        retry.after(timedelta())
    return retry.attempt


@on_its_own
def fails_at_times(retry: Retry = Retry(attempts=2, on=ValueError)) -> int:
    if retry.attempt == 1:
        raise Misshapen("this", "that")
    return retry.attempt


@on_its_own
def go_on(count: int, perpetual: Perpetual = Perpetual()) -> int:
    if count >= 3:
        perpetual.cancel()
    perpetual.perpetuate(count + 1)
    return count


@on_its_own
def advance(gate: str, progress: Progress = Progress()) -> None:
    progress.set_total(7)
    progress.increment(3)
    progress.set_message("three")
    while not Path(gate).exists():
        time.sleep(0.01)


@on_its_own
def take_longer(timeout: Timeout = Timeout(timedelta(seconds=5))) -> float:
    before = timeout.remaining()
    timeout.extend(timedelta(minutes=5))
    time.sleep(5.1)
    return before.total_seconds()


def slowly_made() -> str:
    time.sleep(5.2)
    return "made"


@on_its_own
def use_what_was_slow(made: str = Depends(slowly_made), timeout: Timeout = Timeout(timedelta(seconds=5))) -> str:
    return made


@on_its_own
def unsendable() -> Any:
    return threading.Lock()


@on_its_own
def receive(value: Any) -> str:
    return type(value).__name__


def plain() -> str:
    return "plain"


async def awaited(argument: int = TaskArgument("n")) -> str:
    return f"awaited {argument}"


@contextmanager
def entered() -> Iterator[str]:
    yield "entered"


async def generated() -> AsyncIterator[str]:
    yield "generated"


@asynccontextmanager
async def async_entered() -> AsyncIterator[str]:
    yield "async entered"


def expensive() -> object:
    return object()


@on_its_own
def ask(
    n: int,
    a: str = Depends(plain),
    b: str = Depends(awaited),
    c: str = Depends(entered),
    d: str = Depends(async_entered),
    key: str = TaskKey(),
    execution: Execution[Any] = CurrentExecution(),
) -> list[Any]:
    return [a, b, c, d, key, execution.get_argument("n"), execution.attempt, execution.state.value]


@on_its_own
def share(shared: object = Shared(expensive)) -> tuple[int, int]:
    return os.getpid(), id(shared)


@on_its_own
def speak(logger: logging.LoggerAdapter[logging.Logger] = TaskLogger()) -> None:
    logger.warning("from %s", "afar", extra={"lock": threading.Lock()})
    try:
        raise ValueError("in the log")
    except ValueError:
        logger.exception("it went wrong")
    logger.debug("not to be heard")


@on_its_own
def use_the_docket(execution: Execution[Any] = CurrentExecution()) -> None:
    execution.docket.name  # noqa: B018 - it raises


@on_its_own
def carried() -> dict[str, str]:
    """The trace that a body is part of, as it would be carried on to what it schedules."""
    from dovetail.observe.tracing import carried_context

    return carried_context()
