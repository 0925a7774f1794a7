"""Dead letters: runs that failed, found again by what they have in common, and put back to work."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dovetail import checks
from dovetail.codec import Codec
from dovetail.codec.references import Reference, refers_in
from dovetail.engine import Engine
from dovetail.engine.paging import pages
from dovetail.errors import InvalidArgument
from dovetail.model import Page, Revival, Run, RunQuery, State
from dovetail.tasks import Task, TaskFunction

BATCH = 500


@dataclass(frozen=True, slots=True)
class Failures:
    """Which of the runs that failed: everything that is set must hold."""

    task: str | None = None
    queue: str | None = None
    group: str | None = None
    since: datetime | None = None
    before: datetime | None = None
    error: str | None = None
    tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("task", "queue", "group", "error"):
            if (value := getattr(self, name)) is not None:
                checks.text(value, name)
        for name in ("since", "before"):
            if (value := getattr(self, name)) is not None:
                checks.moment(value, name)
        if self.since is not None and self.before is not None and self.since >= self.before:
            raise InvalidArgument(f"since must be before before: nothing has failed from {self.since} to {self.before}")

    def query(self, limit: int, cursor: str | None, *, newest_first: bool) -> RunQuery:
        return RunQuery(
            states=(State.FAILED,),
            tasks=(self.task,) if self.task else (),
            queues=(self.queue,) if self.queue else (),
            groups=(self.group,) if self.group else (),
            tags=self.tags,
            created_before=self.before,  # what has failed before a time was there before it
            error_contains=self.error,
            newest_first=newest_first,
            limit=limit,
            cursor=cursor,
        )

    def include(self, run: Run) -> bool:
        """Whether a run failed when it should have: the store finds runs by when they were made."""
        at = run.finished
        return at is None or ((self.since is None or at >= self.since) and (self.before is None or at < self.before))


async def page_of(engine: Engine, failures: Failures, limit: int, cursor: str | None) -> Page[Run]:
    """A page of runs that failed, the newest first; never an empty one that is not the last."""
    checks.whole(limit, "limit", least=1)
    if cursor is not None:
        checks.text(cursor, "cursor")
    while True:
        page = await engine.find(failures.query(limit, cursor, newest_first=True))
        found = [run for run in page if failures.include(run)]
        if found or page.cursor is None:
            return Page(found, page.cursor)
        cursor = page.cursor


async def batches_of(engine: Engine, failures: Failures) -> AsyncIterator[list[Run]]:
    """All of them, the oldest first, some at a time."""
    async for page in pages(engine.find, failures.query(BATCH, None, newest_first=False)):
        yield [run for run in page if failures.include(run)]


async def revive_all(engine: Engine, failures: Failures, payload: bytes | None) -> int:
    """Put them back to work, and say how many went: one whose key is held by another run stays as it is."""
    revived = 0
    async for runs in batches_of(engine, failures):
        revived += sum(await engine.revive([Revival(run.id, payload) for run in runs]))
    return revived


async def discard_all(engine: Engine, failures: Failures) -> int:
    """Drop their records, and say how many went."""
    discarded = 0
    async for runs in batches_of(engine, failures):
        discarded += sum(await engine.discard([run.id for run in runs]))
    return discarded


def payload_of(
    codec: Codec, name: str, function: TaskFunction, args: Iterable[Any] | None, kwargs: Mapping[str, Any] | None
) -> bytes:
    """New arguments as they are stored."""
    positional, named = checks.arguments(args, kwargs)
    _refuse_executions([*positional, *named.values()])
    types = Task.of(function).types
    types.refuse_misfits(positional, named)
    return codec.dump_call(types, positional, named, name)


def _refuse_executions(values: list[Any]) -> None:
    """What a run waits for is settled when it is scheduled; it may go on referring to that, and to nothing new."""
    for each in refers_in(*values):
        if not isinstance(each, Reference):
            raise InvalidArgument(
                f"{each!r} cannot be a new argument: a run that goes again waits for no other runs than before; pass"
                " its result"
            )
