"""Behaviors: rules that a task declares. Each is a small file of its own; the worker knows only their hooks."""

from dovetail.behaviors.admission import AdmissionBlocked, ConcurrencyBlocked, blocked
from dovetail.behaviors.base import Arguments, Attempt, Behavior, Outcome, Proceed
from dovetail.behaviors.concurrency import ConcurrencyLimit
from dovetail.behaviors.cooldown import Cooldown
from dovetail.behaviors.cron import Cron
from dovetail.behaviors.debounce import Debounce
from dovetail.behaviors.perpetual import Perpetual
from dovetail.behaviors.progress import Progress
from dovetail.behaviors.raising import Fail, Snooze
from dovetail.behaviors.ratelimit import RateLimit
from dovetail.behaviors.retry import ExponentialRetry, ForcedRetry, Retry
from dovetail.behaviors.roles import CompletionHandler, FailureHandler, Runtime, TaskOutcome
from dovetail.behaviors.timeout import Timeout

__all__ = [
    "AdmissionBlocked",
    "Arguments",
    "Attempt",
    "Behavior",
    "CompletionHandler",
    "ConcurrencyBlocked",
    "ConcurrencyLimit",
    "Cooldown",
    "Cron",
    "Debounce",
    "ExponentialRetry",
    "Fail",
    "FailureHandler",
    "ForcedRetry",
    "Outcome",
    "Perpetual",
    "Proceed",
    "Progress",
    "RateLimit",
    "Retry",
    "Runtime",
    "Snooze",
    "TaskOutcome",
    "Timeout",
    "blocked",
]
