"""Waiting for what nobody tells a test of: what other processes, threads and servers have done."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

PATIENCE = 60.0
"""Seconds after which something that should have happened at once has not happened, on the busiest of machines."""
GLANCE = 0.005
"""Seconds between two looks. Real ones: whoever looks without a pause keeps others from the interpreter."""


async def eventually(condition: Callable[[], Any | Awaitable[Any]], within: float = PATIENCE) -> Any:
    """What the condition says once it says something. Fails if that takes too long."""
    deadline = time.monotonic() + within
    while True:
        answer = condition()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return answer
        assert time.monotonic() < deadline, f"not within {within} s: {inspect.getsource(condition).strip()}"
        await asyncio.sleep(GLANCE)


async def soon(awaitable: Any) -> Any:
    """The answer, which has to come within a test's patience."""
    async with asyncio.timeout(PATIENCE):
        return await awaitable


def is_gone(pid: int) -> bool:
    """Whether a process has ended, be it that nobody has asked yet how."""
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it may go while its file is read
        return True
