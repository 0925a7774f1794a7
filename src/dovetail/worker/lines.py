"""The lines a worker logs for people: an arrow, a duration and the call."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from dovetail.behaviors import Outcome
from dovetail.clock import Clock, from_microseconds
from dovetail.execution import Execution
from dovetail.model import Claim, Requeue, Settle, Verdict
from dovetail.worker.logs import logger


class Lines:
    """Says what happens to each run. Nothing is even put together unless somebody reads it."""

    def __init__(self, clock: Clock, labels: dict[str, Any]) -> None:
        self._clock = clock
        self._labels = labels

    def started(self, execution: Execution[Any], claim: Claim) -> None:
        if not logger.isEnabledFor(logging.INFO):
            return
        late = from_microseconds(self._clock.microseconds()) - claim.due
        arrow = "↬" if claim.attempt > 1 else "↪"
        logger.info("%s [%s] %s", arrow, format_duration(late), execution.call_repr(), extra=self._extra(execution))

    def ended(self, execution: Execution[Any], outcome: Outcome, verdict: Verdict) -> None:
        goes_again = isinstance(verdict, Requeue) or bool(verdict.then)
        if (outcome.error is not None and not goes_again) or not logger.isEnabledFor(logging.INFO):
            return  # a failure that is final has been told as one
        arrow = "↫" if goes_again else "↩"
        took = format_duration(outcome.took)
        logger.info("%s [%s] %s", arrow, took, execution.call_repr(), extra=self._extra(execution))

    def failed(self, execution: Execution[Any], outcome: Outcome) -> None:
        took = format_duration(outcome.took)
        logger.error(
            "↩ [%s] %s failed",
            took,
            execution.call_repr(),
            exc_info=outcome.error,
            extra=self._extra(execution),
        )

    def stopped(self, execution: Execution[Any], verdict: Verdict) -> None:
        what = "cancelled" if isinstance(verdict, Settle) else "handed back"
        logger.info("✗ %s (%s)", execution.call_repr(), what, extra=self._extra(execution))

    def stricken(self, execution: Execution[Any]) -> None:
        logger.warning("🗙 %s (stricken)", execution.call_repr(), extra=self._extra(execution))

    def _extra(self, execution: Execution[Any]) -> dict[str, Any]:
        return {**self._labels, **execution.specific_labels()}


def format_duration(duration: timedelta) -> str:
    """Six wide: milliseconds below 100 s, then seconds."""
    seconds = duration.total_seconds()
    return f"{seconds * 1000:6.0f}ms" if seconds < 100 else f"{seconds:6.0f}s "
