"""Tasks: functions that can be called in the background, and what they declare."""

from typing import Any

from dovetail.tasks.call import TaskCall
from dovetail.tasks.collection import load_collection, load_member
from dovetail.tasks.drafting import Drafter
from dovetail.tasks.flow import PLAIN, AfterFailure, Flow, Options, Unique, UniqueOptions
from dovetail.tasks.signature import compact_signature, get_signature, positional_names
from dovetail.tasks.task import REMEMBERED, Task, TaskFunction, unregistered
from dovetail.tasks.uniqueness import ChosenArguments

__all__ = [
    "PLAIN",
    "REMEMBERED",
    "AfterFailure",
    "ChosenArguments",
    "Drafter",
    "Flow",
    "Options",
    "Task",
    "TaskCall",
    "TaskFunction",
    "Unique",
    "UniqueOptions",
    "compact_signature",
    "get_signature",
    "load_collection",
    "load_member",
    "positional_names",
    "unregistered",
]


def __getattr__(name: str) -> Any:
    # The standard tasks use executions, which are made of tasks: they are imported when first asked for.
    if name in ("standard_tasks", "trace", "fail", "sleep"):
        from dovetail.tasks import standard

        return getattr(standard, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
