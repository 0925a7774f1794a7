"""The lines a worker logs for people: an arrow, a duration and the call."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from dovetail.behaviors import Outcome
from dovetail.execution import Execution
from dovetail.model import Claim, Requeue, Settle, Verdict
from dovetail.worker.logs import logger


class Lines:
    """Says what happens to each run. Nothing is even put together unless somebody reads it."""

    def __init__(self, labels: dict[str, Any]) -> None:
        self._labels = labels

    def started(self, execution: Execution[Any], claim: Claim, late: timedelta) -> None:
        if not logger.isEnabledFor(logging.INFO):
            return
        arrow = "↬" if claim.attempt > 1 else "↪"
        extra = {**self._extra(execution), "docket.queue": claim.queue, "punctuality": late.total_seconds()}
        logger.info("%s [%s] %s", arrow, format_duration(late.total_seconds()), execution.call_repr(), extra=extra)

    def ended(self, execution: Execution[Any], outcome: Outcome, verdict: Verdict) -> None:
        goes_again = isinstance(verdict, Requeue) or bool(verdict.then)
        if (outcome.error is not None and not goes_again) or not logger.isEnabledFor(logging.INFO):
            return  # a failure that is final has been told as one
        arrow = "↫" if goes_again else "↩"
        took = format_duration(outcome.took.total_seconds())
        extra = self._extra_at_end(execution, outcome, verdict.claim)
        logger.info("%s [%s] %s", arrow, took, execution.call_repr(), extra=extra)

    def failed(self, execution: Execution[Any], outcome: Outcome, claim: Claim) -> None:
        took = format_duration(outcome.took.total_seconds())
        extra = self._extra_at_end(execution, outcome, claim)
        logger.error("↩ [%s] %s failed", took, execution.call_repr(), exc_info=outcome.error, extra=extra)

    def stopped(self, execution: Execution[Any], verdict: Verdict) -> None:
        what = "cancelled" if isinstance(verdict, Settle) else "handed back"
        logger.info("✗ %s (%s)", execution.call_repr(), what, extra=self._extra(execution))

    def stricken(self, execution: Execution[Any]) -> None:
        logger.warning("🗙 %s (stricken)", execution.call_repr(), extra=self._extra(execution))

    def _extra(self, execution: Execution[Any]) -> dict[str, Any]:
        return {**self._labels, **execution.specific_labels()}

    def _extra_at_end(self, execution: Execution[Any], outcome: Outcome, claim: Claim) -> dict[str, Any]:
        return {**self._extra(execution), "docket.queue": claim.queue, "duration": outcome.took.total_seconds()}


def format_duration(seconds: float) -> str:
    """Six wide: milliseconds below 100 s, then seconds."""
    return f"{seconds * 1000:6.0f}ms" if seconds < 100 else f"{seconds:6.0f}s "
