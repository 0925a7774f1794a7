"""What to do with runs of tasks that a worker does not know."""

from __future__ import annotations

import logging
from typing import Any

from dovetail.execution import Execution
from dovetail.injection import CurrentExecution, TaskLogger


async def default_fallback_task(
    *args: Any,
    execution: Execution[Any] = CurrentExecution(),
    logger: logging.LoggerAdapter[logging.Logger] = TaskLogger(),
    **kwargs: Any,
) -> None:
    """Drop the run, with a warning. A worker does so only if it is given this as its `fallback_task`."""
    logger.warning(
        "Unknown task %r received - dropping the run %r. Register via CLI (--tasks your.module:tasks) or API"
        " (docket.register(func)).",
        execution.function_name, execution.key,
    )  # fmt: skip
