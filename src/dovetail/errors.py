"""Every error Dovetail raises. Each answers a question and carries a `code` that never changes.

*Can I try again?*         EngineUnavailable, EngineFull, OutcomeUnknown
*Did I do something wrong?* UsageError and all below it
*What became of my run?*   ExecutionFailed, ExecutionCancelled, ParentFailed, ResultExpired
"""

from __future__ import annotations

from typing import Any, ClassVar


class DovetailError(Exception):
    """Anything that goes wrong in Dovetail itself, never what a task raised."""

    code: ClassVar[str] = "dovetail"


# Can I try again?


class EngineUnavailable(DovetailError, ConnectionError):
    """The store cannot be reached, or is not open. Nothing was done; trying again later is safe."""

    code = "engine_unavailable"


class EngineFull(EngineUnavailable):
    """The store has no room for new runs. Running work can still finish."""

    code = "engine_full"


class NotOpen(EngineUnavailable, RuntimeError):
    """It is connected to no store: it was not opened, or has been closed."""

    code = "not_open"


class StoreDamaged(DovetailError):
    """Something in the store cannot be read: it was altered by hand, or the disk has failed."""

    code = "store_damaged"


class OutcomeUnknown(DovetailError):
    """The store may or may not have done what was asked. Repeating the same call is safe."""

    code = "outcome_unknown"


# Did I do something wrong?


class UsageError(DovetailError):
    """The call was wrong; the message says which argument, what was wrong and what to do."""

    code = "usage"


class InvalidArgument(UsageError, ValueError):
    """An argument has a value that cannot be."""

    code = "invalid_argument"


class InvalidType(UsageError, TypeError):
    """An argument is of a type that cannot be."""

    code = "invalid_type"


class AlreadyOpen(UsageError, AssertionError):
    """It is open already, and cannot be entered a second time before it is left."""

    code = "already_open"


class MissingExtra(UsageError, ImportError):
    """Something needs packages that are not installed; the message names the extra that brings them."""

    code = "missing_extra"


class InvalidURL(InvalidArgument):
    """The URL names no engine, or cannot be read."""

    code = "invalid_url"


class UnknownMember(InvalidArgument, AttributeError):
    """A module has no member of that name."""

    code = "unknown_member"


class UnknownTask(UsageError, KeyError):
    """No task is registered under that name."""

    code = "unknown_task"

    def __str__(self) -> str:
        # KeyError shows its argument in quotes, which would spoil the sentence.
        return str(self.args[0]) if self.args else ""


class DuplicateTask(UsageError, ValueError):
    """Two functions were given one name."""

    code = "duplicate_task"


class UnknownParent(UsageError, LookupError):
    """A run was to wait for another that does not exist."""

    code = "unknown_parent"


class UnknownRun(UsageError, LookupError):
    """There is no record of such a run."""

    code = "unknown_run"


class UnknownSchedule(UsageError, LookupError):
    """There is no schedule of that name."""

    code = "unknown_schedule"


class DuplicateSchedule(UsageError, ValueError):
    """There is a schedule of that name already, and it is a different one."""

    code = "duplicate_schedule"


class CannotRetry(UsageError):
    """A run cannot go again: it is not over, or another run holds its key."""

    code = "cannot_retry"


class CannotDiscard(UsageError):
    """The record of a run cannot be dropped: it is not over."""

    code = "cannot_discard"


class ConflictingBehaviors(UsageError, ValueError):
    """A task declares behaviors or dependencies that cannot go together."""

    code = "conflicting_behaviors"


class PayloadError(UsageError, ValueError):
    """An argument or a result cannot be stored as it is."""

    code = "payload"


class WrongArgument(PayloadError, TypeError):
    """An argument is missing, is one too many, or is not what the annotation of its parameter says."""

    code = "wrong_argument"


class PayloadTooLarge(PayloadError):
    """An argument or a result is larger than the limit."""

    code = "payload_too_large"


class SchemaOutdated(UsageError):
    """The store was made by another version of Dovetail, newer than this one understands."""

    code = "schema_outdated"


class NotADatabase(UsageError):
    """The file exists, and is something else."""

    code = "not_a_database"


class CannotCross(UsageError):
    """A task is to run in a process of its own, and something of it cannot be had there."""

    code = "cannot_cross"


class UndecodablePayload(DovetailError):
    """Bytes in the store cannot be read as a call or a result."""

    code = "undecodable_payload"


# What became of my run?


class ExecutionFailed(DovetailError):
    """The run failed. It can be caught as this, and as the built-in type that the task raised."""

    code = "execution_failed"
    run: Any = None  # what the store knows of the run
    failure: Any = None  # the error as text, with its traceback

    def __init__(self, message: str) -> None:
        # Not through the built-in type's own: some of those want other arguments.
        Exception.__init__(self, message)

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class ExecutionCancelled(DovetailError):
    """The run was cancelled before it could complete."""

    code = "execution_cancelled"


class ProcessDied(DovetailError):
    """The process in which the run was running died under it. The run goes again, until it has crashed too often."""

    code = "process_died"


class ParentFailed(DovetailError):
    """A run was to receive the result of another, and that has none."""

    code = "parent_failed"


class ResultExpired(DovetailError, TimeoutError):
    """The run is over, and its record is no longer kept: there is nothing to wait for."""

    code = "result_expired"
