"""Leaving: the end of a worker process, which nothing that a task does may hold up."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Coroutine
from typing import Any

from dovetail.worker.logs import logger

PATIENCE = 2.0
"""Seconds that whatever is still there when the worker has ended has to end as well."""


def run_and_leave(work: Coroutine[Any, Any, None]) -> None:
    """Like `asyncio.run`. But a body that ignores its cancellation is left behind: its run was handed back, or its
    lease lapses, and a process that waits for it would never end."""
    runner = asyncio.Runner()
    try:
        runner.run(work)
    except BaseException:
        if not runner.run(_those_who_stay()):
            runner.close()
        raise
    left = runner.run(_those_who_stay())
    if left:
        logger.error("these ignore that they were cancelled, and are left behind: %s", ", ".join(left))
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    runner.close()


async def _those_who_stay() -> list[str]:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for each in others:
        each.cancel()
    _, left = await asyncio.wait(others, timeout=PATIENCE) if others else ((), ())
    return sorted(each.get_name() for each in left)
