"""Tasks: functions that can be called in the background, and what they declare."""

from typing import Any

from dovetail.tasks.collection import load_collection, load_member
from dovetail.tasks.drafting import Drafter
from dovetail.tasks.task import Task, TaskFunction, unregistered

__all__ = [
    "Drafter",
    "Task",
    "TaskFunction",
    "load_collection",
    "load_member",
    "unregistered",
]


def __getattr__(name: str) -> Any:
    # The standard tasks use executions, which are made of tasks: they are imported when first asked for.
    if name == "standard_tasks":
        from dovetail.tasks.standard import standard_tasks

        return standard_tasks
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
