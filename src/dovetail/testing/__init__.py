"""What tests of Dovetail, and of programs that use it, are made of.

The names are loaded when they are first used: every run of pytest loads the plugin, which is in this package.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail.clock import VirtualClock
    from dovetail.testing.assertions import (
        assert_no_tasks,
        assert_scheduled,
        assert_task_count,
        assert_task_not_scheduled,
        assert_task_scheduled,
    )
    from dovetail.testing.draining import drain
    from dovetail.testing.leaks import assert_nothing_left, leak_check

_HOMES = {
    "VirtualClock": "dovetail.clock",
    "assert_no_tasks": "dovetail.testing.assertions",
    "assert_nothing_left": "dovetail.testing.leaks",
    "assert_scheduled": "dovetail.testing.assertions",
    "assert_task_count": "dovetail.testing.assertions",
    "assert_task_not_scheduled": "dovetail.testing.assertions",
    "assert_task_scheduled": "dovetail.testing.assertions",
    "drain": "dovetail.testing.draining",
    "leak_check": "dovetail.testing.leaks",
}

__all__ = [
    "VirtualClock",
    "assert_no_tasks",
    "assert_nothing_left",
    "assert_scheduled",
    "assert_task_count",
    "assert_task_not_scheduled",
    "assert_task_scheduled",
    "drain",
    "leak_check",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value
