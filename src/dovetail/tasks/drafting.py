"""Drafting: a call becomes a run, as its task's behaviors plan it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from dovetail.codec import Codec
from dovetail.codec.references import MARK, references_in
from dovetail.model import Claim, Conflict, Due, NewRun, Retention, new_id, tag_headers, tags_of
from dovetail.tasks.declaring import PLAINLY, Declaration
from dovetail.tasks.extras import carried
from dovetail.tasks.task import Task

NOW = timedelta()

RECEIVED = 20
"""Runs whose results the claim of another brings along. One that refers to more of them reads them when it starts."""


class Drafter:
    """Makes runs of calls."""

    def __init__(self, codec: Codec) -> None:
        self.codec = codec

    def draft(
        self,
        task: Task,
        name: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        id: str | None = None,
        key: str | None = None,
        due: Due = NOW,
        conflict: Conflict = Conflict.KEEP,
        retention: Retention,
        queue: str = "default",
        priority: int = 0,
        group: str | None = None,
        after: tuple[str, ...] = (),
        after_failure: bool = False,
        tags: tuple[str, ...] | None = None,
        headers: Mapping[str, str] = {},
    ) -> NewRun:
        """The run of a call. Without a key it is called by its id. Whatever it refers to it also waits for."""
        run_id = id or new_id()
        payload = self.codec.dump_call(task.types, args, kwargs, name)
        wants_results = False
        if MARK in payload:
            referred = [each.name for each in references_in(*args, *kwargs.values())]
            after = tuple(dict.fromkeys((*after, *referred)))
            wants_results = bool(referred) and len(after) <= RECEIVED
        run = NewRun(
            run_id, key or run_id, name, payload, due, queue, priority, group, 1.0, after, after_failure,
            conflict=conflict, retention=retention, headers=headers, wants_results=wants_results,
        )  # fmt: skip
        if task.declaration is not PLAINLY or tags:
            run = _as_declared(run, task.declaration, tags)
        if task.planners:
            arguments = task.bind(args, kwargs)
            for behavior in task.planners:
                run = behavior.plan(run, arguments)
        return run

    def follow(
        self,
        claim: Claim,
        task: Task,
        due: Due,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        retention: Retention,
    ) -> NewRun:
        """The run that follows a claim under its key. One that is already pending there is left in peace."""
        return self.draft(
            task, claim.task, args, kwargs, key=claim.key, due=due, conflict=Conflict.KEEP_PENDING,
            retention=retention, queue=claim.queue, priority=claim.priority, group=claim.group,
            tags=tags_of(claim.headers) if claim.headers else None,
            headers=carried(claim.headers) if claim.headers else {},
        )  # fmt: skip


def _as_declared(run: NewRun, declaration: Declaration, tags: tuple[str, ...] | None) -> NewRun:
    headers = tag_headers(declaration.tags if tags is None else tags)
    return run.but(retention=declaration.retention or run.retention, headers={**run.headers, **headers})
