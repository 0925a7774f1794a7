"""Tasks that every docket knows: to try out a set-up, and to see it fail."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

from dovetail.behaviors import Retry
from dovetail.execution import Execution
from dovetail.injection import CurrentExecution, TaskLogger

_Logger = logging.LoggerAdapter[logging.Logger]


async def trace(message: str, logger: _Logger = TaskLogger(), execution: Execution[None] = CurrentExecution()) -> None:
    """Log a message."""
    late = datetime.now(UTC) - execution.when
    logger.info("%s: %r on the docket %r, %s after it was due", message, execution.key, execution.docket.name, late)


async def fail(message: str, execution: Execution[None] = CurrentExecution(), retry: Retry = Retry(attempts=2)) -> None:
    """Fail with a message, twice."""
    raise RuntimeError(f"{message} ({execution.key!r}, attempt {retry.attempt})")


async def sleep(seconds: float, logger: _Logger = TaskLogger()) -> None:
    """Take as long as it is told."""
    logger.info("Sleeping for %s seconds", seconds)
    await asyncio.sleep(seconds)


standard_tasks = [trace, fail, sleep]
