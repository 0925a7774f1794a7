"""A call of a task that is not scheduled yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dovetail.codec.references import Reference, Refers
from dovetail.tasks.flow import PLAIN, Flow
from dovetail.tasks.task import TaskFunction


@dataclass(frozen=True, slots=True)
class TaskCall(Refers):
    """A call of a task, not scheduled yet: for `add_many` and `replace_many`."""

    function: TaskFunction
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    key: str
    when: datetime | None
    function_name: str | None = None
    queue: str = "default"
    priority: int = 0
    fresh: list[str] = field(default_factory=list[str], compare=False, repr=False)
    """The id of the first run that it becomes, and its key if none was given; sent again, it becomes another run."""
    flow: Flow = PLAIN

    @property
    def reference(self) -> Reference:
        """What stands for the run that it becomes where that is an argument of another."""
        # Whoever has a key may find it taken, and then stands for the run that holds it.
        return Reference(self.key if self.key in self.fresh else None, self.key)
