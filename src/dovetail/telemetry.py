"""What a docket tells OpenTelemetry of the calls that are scheduled on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from opentelemetry.trace import INVALID_SPAN, Span, SpanKind

from dovetail.execution import Disposition, Execution
from dovetail.failures import failure_of
from dovetail.instrumentation import (
    TASKS_ADDED,
    TASKS_CANCELLED,
    TASKS_ENLISTED,
    TASKS_REPLACED,
    TASKS_SCHEDULED,
    TASKS_STRICKEN,
    TaskLabels,
    is_metering,
)
from dovetail.observe.tracing import Attributes, is_tracing, mark_failed, messaging, spanning
from dovetail.tasks import TaskCall
from dovetail.tasks.declaring import name_of

FEW = 10
"""How many calls of a batch are counted one by one, as docket does; of more, the sums are."""
UNTRACED = nullcontext(INVALID_SPAN)
"""Stands for a span where nobody records any."""


class DocketTelemetry:
    """Counts what was scheduled, once it was, and puts spans around it. Without an SDK it does nothing."""

    def __init__(self, docket: str) -> None:
        self._labels = {"docket.name": docket}
        self._of_task = TaskLabels(self._labels)

    # Spans

    def scheduling(self, operation: str, call: TaskCall) -> AbstractContextManager[Span]:
        """A span around one call that is scheduled: the run's attempts are linked to it."""
        if not is_tracing():
            return UNTRACED
        return self.placing(operation, call.function_name or name_of(call.function), call.key, call.queue)

    def placing(self, operation: str, task: str, key: str, queue: str) -> AbstractContextManager[Span]:
        """The same for a run that is at hand already."""
        if not is_tracing():
            return UNTRACED
        attributes = {
            **self._of_task[task],
            "docket.key": key,
            "docket.attempt": 1,
            "code.function.name": task,
            **messaging(operation, "send", queue),
        }
        return _span(operation, attributes, SpanKind.PRODUCER)

    def scheduling_many(self, operation: str, calls: int) -> AbstractContextManager[Span]:
        """One span around all calls of a batch."""
        if not is_tracing():
            return UNTRACED
        attributes = {
            **self._labels,
            "docket.batch.count": calls,
            "messaging.batch.message_count": calls,
            **messaging(operation, "send"),
        }
        return _span(operation, attributes, SpanKind.PRODUCER)

    def doing(self, operation: str, **attributes: Any) -> AbstractContextManager[Span]:
        """A span around something else that is done to the docket."""
        if not is_tracing():
            return UNTRACED
        said = {f"docket.{name}": value for name, value in attributes.items() if value is not None}
        return _span(operation, {**self._labels, **said}, SpanKind.INTERNAL)

    # Counters

    def scheduled(self, execution: Execution[Any], *, replaces: bool, enlisted: bool) -> None:
        """A call was scheduled, by `add` or by `replace`."""
        self._count(execution.function_name, execution.disposition, 1, replaces=replaces, enlisted=enlisted)

    def _count(self, task: str, disposition: Disposition, count: int, *, replaces: bool, enlisted: bool) -> None:
        labels = self._of_task[task]
        if disposition is Disposition.STRUCK:
            TASKS_STRICKEN.add(count, {**labels, "docket.where": "docket"})
        elif enlisted:
            # Whether it counts is the caller's to decide, by a commit that we do not see.
            if disposition is Disposition.SCHEDULED:
                TASKS_ENLISTED.add(count, labels)
        elif replaces:
            TASKS_REPLACED.add(count, labels)
            TASKS_CANCELLED.add(count, labels)
            TASKS_SCHEDULED.add(count, labels)
        else:
            TASKS_ADDED.add(count, labels)
            if disposition is Disposition.SCHEDULED:
                TASKS_SCHEDULED.add(count, labels)

    def scheduled_many(self, executions: Sequence[Execution[Any]], *, replaces: bool, enlisted: bool) -> None:
        if len(executions) <= FEW:
            for execution in executions:
                self.scheduled(execution, replaces=replaces, enlisted=enlisted)
        elif is_metering():
            for (task, disposition), count in Counter((e.function_name, e.disposition) for e in executions).items():
                self._count(task, disposition, count, replaces=replaces, enlisted=enlisted)

    def put_down(self, execution: Execution[Any]) -> None:
        if execution.disposition is Disposition.SCHEDULED:
            TASKS_SCHEDULED.add(1, self._of_task[execution.function_name])

    def cancelled(self, count: int = 1) -> None:
        if count:
            TASKS_CANCELLED.add(count, self._labels)


def tell(span: Span, execution: Execution[Any]) -> None:
    """What became of a call, on its span."""
    if not span.is_recording():
        return
    span.set_attribute("docket.when", execution.when.isoformat())
    span.set_attribute("docket.disposition", execution.disposition.value)
    if execution.id is not None:
        span.set_attribute("messaging.message.id", execution.id)


@contextmanager
def _span(operation: str, attributes: Attributes, kind: SpanKind) -> Generator[Span]:
    with spanning(f"docket.{operation}", attributes, kind) as span:
        try:
            yield span
        except Exception as error:
            mark_failed(span, error, failure_of(error))
            raise
