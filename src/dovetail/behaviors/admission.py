"""Turning an attempt away before it begins."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from dovetail.behaviors.raising import raised

RETRY_DELAY = timedelta(milliseconds=100)


class AdmissionBlocked(Exception):
    """Raised by a dependency: the run is not to start now. It goes back, at no cost, to be tried again after
    `retry_delay`; without `reschedule` it is cancelled instead."""

    def __init__(
        self,
        execution: Any,
        reason: str = "admission control",
        *,
        handled: bool = False,
        reschedule: bool = True,
        retry_delay: timedelta | None = None,
    ) -> None:
        self.execution = execution
        self.reason = reason
        self.handled = handled
        self.reschedule = reschedule
        self.retry_delay = retry_delay
        super().__init__(f"{getattr(execution, 'key', execution)!r} was not admitted: {reason}")

    @property
    def goes_again_after(self) -> timedelta | None:
        """How long until it is tried again; None if it is not."""
        if self.handled or not self.reschedule:
            return None
        return RETRY_DELAY if self.retry_delay is None else self.retry_delay


class ConcurrencyBlocked(AdmissionBlocked):
    """There is no room under a limit on concurrency."""

    def __init__(self, execution: Any, concurrency_key: str, max_concurrent: int) -> None:
        self.concurrency_key = concurrency_key
        self.max_concurrent = max_concurrent
        super().__init__(execution, f"the limit of {max_concurrent} at once on {concurrency_key!r}")


def blocked(error: BaseException | None) -> AdmissionBlocked | None:
    """The refusal in an error, alone or among others."""
    return raised(AdmissionBlocked, error)
