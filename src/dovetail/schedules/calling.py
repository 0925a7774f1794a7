"""What a schedule calls: the call is drafted once, when the schedule is made, and placed as it is ever after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dovetail import checks
from dovetail.behaviors import Perpetual
from dovetail.codec import Codec
from dovetail.errors import InvalidArgument, UnknownTask
from dovetail.model import Conflict, Retention, tag_headers, tags_of
from dovetail.schedules.definition import Call
from dovetail.tasks import Drafter, Task, TaskFunction
from dovetail.tasks.flow import UNSET, Unset


def drafted(
    drafter: Drafter,
    task: Task,
    name: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    retention: Retention,
    queue: str | Unset,
    priority: int | Unset,
    group: str | None,
    tags: Iterable[str] | Unset,
) -> Call:
    """The call with what its task declares. What could not run is refused here, and not night after night."""
    _refuse_what_goes_by_itself(task, name)
    task.types.refuse_misfits(args, kwargs)
    run = drafter.draft(
        task, name, args, kwargs,
        conflict=Conflict.REPLACE,  # a run of its own, at its own time: nothing that would put it off
        retention=retention,
        queue=task.declaration.queue if isinstance(queue, Unset) else checks.queue(queue),
        priority=task.declaration.priority if isinstance(priority, Unset) else checks.whole(priority, "priority"),
        group=None if group is None else checks.text(group, "group"),
        tags=None if isinstance(tags, Unset) else tuple(checks.texts(tags, "tags")),
    )  # fmt: skip
    if run.after:
        raise InvalidArgument(
            f"the task {name!r} cannot be called with the result of another run by a schedule: that run is there once;"
            " pass its result"
        )
    return Call.of(run)


def redrafted(
    codec: Codec,
    drafter: Drafter,
    tasks: Mapping[str, TaskFunction],
    call: Call,
    args: Iterable[Any] | None,
    kwargs: Mapping[str, Any] | None,
    retention: Retention,
    queue: str | Unset,
    priority: int | Unset,
    group: str | Unset | None,
    tags: Iterable[str] | Unset,
) -> Call:
    """The call with what was given instead of what it had. Of a task that is not known here only the labels change."""
    queue = call.queue if isinstance(queue, Unset) else queue
    priority = call.priority if isinstance(priority, Unset) else priority
    group = call.group if isinstance(group, Unset) else group
    function = tasks.get(call.task)
    if function is not None:
        task = Task.of(function)
        if args is None and kwargs is None:
            positional, named = codec.load_call(task.types, call.payload, call.task)
        else:
            positional, named = checks.arguments(args, kwargs)
        kept = tags_of(call.headers) if tags is UNSET else tags
        return drafted(drafter, task, call.task, positional, named, retention, queue, priority, group, kept)
    if not (args is None and kwargs is None):
        raise UnknownTask(f"Task {call.task!r} is not registered here, and what it may be called with is not known")
    headers = call.headers if isinstance(tags, Unset) else tag_headers(tuple(checks.texts(tags, "tags")))
    return call.but(
        queue=checks.queue(queue),
        priority=checks.whole(priority, "priority"),
        group=None if group is None else checks.text(group, "group"),
        headers=dict(headers),
    )


def _refuse_what_goes_by_itself(task: Task, name: str) -> None:
    if any(isinstance(each, Perpetual) for each in task.all_behaviors):
        raise InvalidArgument(
            f"the task {name!r} goes again by itself: it declares Perpetual or Cron, and a schedule would start one"
            " chain more each time; take the behavior away, or the schedule"
        )
