"""What tests of Dovetail, and of programs that use it, are made of."""

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
