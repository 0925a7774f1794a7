"""Steering: changing what waits and runs, without touching a task's code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from dovetail import checks, deadletters, queues
from dovetail.deadletters import Failures
from dovetail.docket.scheduling import Scheduling
from dovetail.engine.clearing import steps
from dovetail.errors import (
    CannotDiscard,
    CannotRetry,
    InvalidArgument,
)
from dovetail.execution import Execution
from dovetail.model import (
    Page,
    Revival,
    RunQuery,
)
from dovetail.previewing import StrikePreview
from dovetail.queues import QueueInfo
from dovetail.schedules import QUEUE
from dovetail.strikelist import LiteralOperator, Operator, Strike
from dovetail.tasks import (
    TaskFunction,
)

CLEARED_AT_ONCE = 1000


class Steering(Scheduling):
    """Cancels, pauses, runs again, discards and forbids."""

    async def cancel(self, key: str) -> None:
        """Cancel what waits or runs under a key. A running task is asked to stop; one that is over is left alone."""
        with self._telemetry.doing("cancel", key=checks.text(key, "key")):
            await self.engine.cancel([key])
        self._telemetry.cancelled()

    async def clear(
        self,
        *,
        tasks: Iterable[TaskFunction | str] = (),
        queues: Iterable[str] = (),
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Cancel everything that waits, or all of these tasks and queues, and say how much that was. Running tasks go
        on, and schedules stay. `progress` is told from time to time how many were cancelled."""
        which = RunQuery(
            tasks=self._names_of(tasks), queues=tuple(checks.texts(queues, "queues")), without_queues=(QUEUE,),
            limit=CLEARED_AT_ONCE,
        )  # fmt: skip
        cleared = 0
        with self._telemetry.doing("clear"):
            async for step in steps(self.engine.clear, which):
                cleared += step.runs
                if progress is not None:
                    progress(cleared)
        self._telemetry.cancelled(cleared)
        return cleared

    # Queues

    async def pause(
        self, queue: str, reason: str | None = None, owner: str | None = None, until: datetime | None = None
    ) -> None:
        """Let nothing of a queue start, until it is resumed or the time has come. What runs goes on, and calls can be
        scheduled as before."""
        await queues.pause(self.engine, self._now(), queue, reason, owner, until)

    async def resume(self, queue: str) -> None:
        """Let a paused queue go on. One that is not paused goes on as it did."""
        await queues.resume(self.engine, queue)

    async def queues(self) -> list[QueueInfo]:
        """Every queue that holds runs or is paused: how many in which state, since when work waits, who paused it."""
        # Schedules wait in a queue of their own, which concerns nobody unless it was paused.
        return [each for each in await queues.queues(self.engine) if each.name != QUEUE or each.is_paused]

    # Dead letters

    async def failed(
        self,
        *,
        task: TaskFunction | str | None = None,
        queue: str | None = None,
        group: str | None = None,
        since: datetime | None = None,
        before: datetime | None = None,
        error: str | None = None,
        tags: Iterable[str] = (),
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Execution[Any]]:
        """The runs that failed and are kept, the newest first: of a task, a queue or a group, in a time, with a text in
        their error, with all these tags. The `cursor` of a page asks for the next one."""
        failures = self._failures(task, queue, group, since, before, error, tags)
        page = await deadletters.page_of(self.engine, failures, limit, cursor)
        return Page([self.execution_of(run) for run in page], page.cursor)

    async def retry(
        self,
        key: str | Execution[Any],
        *,
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> Execution[Any]:
        """Run again what is over, with a clean slate, and with it the dependents that its end had cancelled. With
        `args` or `kwargs` it has these arguments and no others."""
        run = await self._run_of(key)
        if not run.state.is_terminal:
            raise CannotRetry(f"the run {run.key!r} is {run.state}; only one that is over can be run again")
        payload = self._payload(run.task, args, kwargs)
        (revived,) = await self.engine.revive([Revival(run.id, payload)])
        if not revived:
            raise CannotRetry(f"the run {run.key!r} cannot be run again: another run holds its key")
        execution = self.execution_of(run if payload is None else run.but(payload=payload))
        await execution.sync()
        return execution

    async def retry_failed(
        self,
        *,
        task: TaskFunction | str | None = None,
        queue: str | None = None,
        group: str | None = None,
        since: datetime | None = None,
        before: datetime | None = None,
        error: str | None = None,
        tags: Iterable[str] = (),
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> int:
        """Run again all that failed and is meant, and say how many that were. One whose key another run holds is left
        as it is. New arguments, the same for all, need the task to be named."""
        failures = self._failures(task, queue, group, since, before, error, tags)
        if failures.task is None and not (args is None and kwargs is None):
            raise InvalidArgument("args and kwargs are the arguments of one task; say which with task=")
        payload = self._payload(failures.task or "", args, kwargs)
        return await deadletters.revive_all(self.engine, failures, payload)

    async def discard(self, key: str | Execution[Any]) -> None:
        """Drop the record of a run that is over, at once. Dependents that its end had cancelled stay as they are."""
        run = await self._run_of(key)
        if not run.state.is_terminal:
            raise CannotDiscard(
                f"the run {run.key!r} is {run.state}; only one that is over can be discarded: cancel it, or wait for it"
            )
        (gone,) = await self.engine.discard([run.id])
        if not gone:
            raise CannotDiscard(f"the run {run.key!r} was run again, or its record was dropped, in this moment")

    async def discard_failed(
        self,
        *,
        task: TaskFunction | str | None = None,
        queue: str | None = None,
        group: str | None = None,
        since: datetime | None = None,
        before: datetime | None = None,
        error: str | None = None,
        tags: Iterable[str] = (),
    ) -> int:
        """Drop the records of all that failed and is meant, and say how many that were."""
        failures = self._failures(task, queue, group, since, before, error, tags)
        return await deadletters.discard_all(self.engine, failures)

    def _failures(
        self,
        task: TaskFunction | str | None,
        queue: str | None,
        group: str | None,
        since: datetime | None,
        before: datetime | None,
        error: str | None,
        tags: Iterable[str],
    ) -> Failures:
        labels = tuple(checks.texts(tags, "tags"))
        return Failures(self._name_of(task), queue, group, since, before, error, labels)

    def _payload(self, name: str, args: Iterable[Any] | None, kwargs: Mapping[str, Any] | None) -> bytes | None:
        if args is None and kwargs is None:
            return None
        function, _, _ = self._task(name)
        return deadletters.payload_of(self.codec, name, function, args, kwargs)

    # Striking

    async def strike(
        self,
        function: TaskFunction | str | None = None,
        parameter: str | None = None,
        operator: Operator | LiteralOperator = "==",
        value: Any = None,
        *,
        reason: str | None = None,
        owner: str | None = None,
        until: datetime | None = None,
    ) -> None:
        """Forbid calls: all of a task, all with such an argument, or those of a task with such an argument.

        They are not scheduled, and what waits is cancelled when it would start. What runs goes on. A strike is in force
        until it is restored, or until its time is over.
        """
        with self._telemetry.doing("strike", **self._words(function, parameter, operator)):
            await self.strike_list.strike(function, parameter, operator, value, reason=reason, owner=owner, until=until)

    async def restore(
        self,
        function: TaskFunction | str | None = None,
        parameter: str | None = None,
        operator: Operator | LiteralOperator = "==",
        value: Any = None,
    ) -> None:
        """Allow again what a strike of the same words forbade. What it has cancelled does not come back."""
        with self._telemetry.doing("restore", **self._words(function, parameter, operator)):
            await self.strike_list.restore(function, parameter, operator, value)

    def _words(self, function: Any, parameter: Any, operator: Any) -> dict[str, str | None]:
        """What a span says of a strike: not the value, which may be anybody's name."""
        task = function if function is None or isinstance(function, str) else getattr(function, "__name__", None)
        return {"task": task, "parameter": parameter, "operator": str(operator) if parameter else None}

    async def strikes(self) -> list[Strike]:
        """The strikes that are in force."""
        return await self.strike_list.strikes()

    def preview_strike(
        self,
        function: TaskFunction | str | None = None,
        parameter: str | None = None,
        operator: Operator | LiteralOperator = "==",
        value: Any = None,
    ) -> StrikePreview:
        """What waits and would be kept from starting by such a strike. Nothing is stricken."""
        strike = self.strike_list.draft(function, parameter, operator, value)
        return StrikePreview(strike, self.engine.find, self.execution_of)

    async def wait_for_strikes_loaded(self) -> None:
        """Until the strikes laid so far are known here."""
        await self.strike_list.wait_for_strikes_loaded()
