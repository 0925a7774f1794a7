"""Behaviors: rules that a task declares. Each is a small file of its own; the worker knows only their hooks."""

from dovetail.behaviors.base import Arguments, Attempt, Behavior, Outcome, Proceed
from dovetail.behaviors.perpetual import Perpetual
from dovetail.behaviors.retry import ExponentialRetry, ForcedRetry, Retry
from dovetail.behaviors.timeout import Timeout

__all__ = [
    "Arguments",
    "Attempt",
    "Behavior",
    "ExponentialRetry",
    "ForcedRetry",
    "Outcome",
    "Perpetual",
    "Proceed",
    "Retry",
    "Timeout",
]
