"""What a worker tells OpenTelemetry: a span for each attempt, and what it counts and measures.

Every moment has a method. What happens once a run costs a look at one variable if nobody listens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, TypeVar

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from dovetail.behaviors import Outcome
from dovetail.execution import Execution
from dovetail.instrumentation import (
    CACHE_SIZE,
    CANCELLATIONS_UNHEEDED,
    CLAIM_BATCH_SIZE,
    CRASHES,
    EVENT_LOOP_LAG,
    FINISH_BATCH_SIZE,
    LEASES_LOST,
    OLDEST_QUEUED_AGE,
    OUTCOMES_FENCED,
    QUEUE_DEPTH,
    REDIS_DISRUPTIONS,
    SCHEDULE_DEPTH,
    STORE_DURATION,
    STORE_EMPTIED,
    TASK_DURATION,
    TASK_PUNCTUALITY,
    TASKS_FAILED,
    TASKS_POISONED,
    TASKS_SCHEDULED,
    TASKS_STRICKEN,
    TASKS_SUPERSEDED,
    TaskLabels,
    is_metering,
    is_overheard,
)
from dovetail.model import Claim, Claimed, Finished, NewRun, Requeue, Settle, State, Survey, Verdict
from dovetail.observe.tracing import BAGGAGE, carried_context, is_tracing, mark_failed, messaging, own_trace
from dovetail.schedules.definition import QUEUE, is_tick
from dovetail.tasks import Task
from dovetail.worker.counts import Gathering
from dovetail.worker.roster import SUSPECT

MOST_QUEUES = 100
"""Queues whose oldest run is told of for itself: each is a time series for as long as the process lives."""
OTHERS = "(others)"
"""The name under which the others are told of."""


class Telemetry:
    """Spans and measurements of one worker."""

    def __init__(self, labels: Mapping[str, str] | None = None) -> None:
        self._labels = dict(labels or {})
        self._of_task = TaskLabels(self._labels)
        self._counts = Gathering(self._of_task)
        self._docket = {name: value for name, value in self._labels.items() if name == "docket.name"}
        self._claiming = {**self._labels, "dovetail.operation": "claim"}
        self._finishing = {**self._labels, "dovetail.operation": "finish"}
        self._waited: dict[str, float] = {}
        self._is_overheard = True

    def begin(self, tasks: Iterable[str] = ()) -> None:
        """Let what happens rarely be seen from the start, as not having happened: who asks how much a counter has grown
        would miss the first time."""
        self._is_overheard = is_overheard()
        rare = (CANCELLATIONS_UNHEEDED, CRASHES, LEASES_LOST, OUTCOMES_FENCED, REDIS_DISRUPTIONS, STORE_EMPTIED)
        for counter in rare:
            counter.add(0, self._labels)
        for task in tasks:
            TASKS_POISONED.add(0, self._of_task[task])

    def end(self) -> None:
        """The worker is about to end: nothing that was counted may be missing."""
        self._counts.end()

    # An attempt

    def span(self, execution: Execution[Any], claim: Claim) -> AbstractContextManager[Span] | None:
        """A span around the attempt; None if nobody records it and it has no baggage."""
        if not is_tracing() and BAGGAGE not in claim.headers:
            return None
        attributes = {
            **self._labels,
            **execution.specific_labels(),
            "code.function.name": claim.task,
            **messaging("run", "process", claim.queue),
            "messaging.message.id": claim.id,
            "messaging.client.id": self._labels.get("docket.worker", ""),
        }
        return own_trace(claim.task, attributes, claim.headers)

    def tick(self, claim: Claim, runs: Sequence[NewRun]) -> AbstractContextManager[Span] | None:
        """A span for the tick of a schedule that places runs, which are linked to it; None if nobody records it."""
        if not is_tracing() or not runs:
            return None
        attributes = {
            **self._labels,
            "docket.key": claim.key,
            "docket.batch.count": len(runs),
            **messaging("tick", "send", runs[0].queue),
            "messaging.batch.message_count": len(runs),
        }
        return own_trace("docket.tick", attributes, claim.headers, SpanKind.PRODUCER)

    def started(self, claim: Claim, late: timedelta) -> None:
        if not self._is_overheard:
            return
        counts = self._counts.of[claim.task]
        counts.started += 1
        if claim.redelivered:
            counts.redelivered += 1
        self._counts.added()
        TASK_PUNCTUALITY.record(late.total_seconds(), self._of_task[claim.task])

    def ended(self, claim: Claim, outcome: Outcome, verdict: Verdict | None) -> None:
        if is_tracing():
            _judge(trace.get_current_span(), outcome)
        if not self._is_overheard:
            return
        counts = self._counts.of[claim.task]
        counts.completed += 1
        if outcome.error is None:
            counts.succeeded += 1
        elif _has_failed(outcome):
            counts.failed += 1
        if isinstance(verdict, Settle) and verdict.then:
            counts.perpetuated += 1
        elif isinstance(verdict, Requeue) and verdict.attempt > claim.attempt:
            counts.retried += 1
        self._counts.added()
        TASK_DURATION.record(outcome.took.total_seconds(), self._of_task[claim.task])

    def unstarted(self, claim: Claim) -> None:
        """A run has failed without an attempt: it cannot be read, or does not go with this worker."""
        TASKS_FAILED.add(1, self._of_task[claim.task])

    def stricken(self, claim: Claim) -> None:
        TASKS_STRICKEN.add(1, {**self._of_task[claim.task], "docket.where": "worker"})

    # The worker's parts

    def claimed(self, claimed: Claimed, seconds: float) -> None:
        if not self._is_overheard:
            self._is_overheard = is_metering()  # it may have been set up meanwhile
            return
        STORE_DURATION.record(seconds, self._claiming)
        if claimed.claims:
            CLAIM_BATCH_SIZE.record(len(claimed.claims), self._labels)
        if claimed.lapsed:
            CRASHES.add(claimed.lapsed, self._labels)
        for task in claimed.poisoned:
            TASKS_FAILED.add(1, self._of_task[task])
            TASKS_POISONED.add(1, self._of_task[task])

    def finished(self, verdicts: Sequence[Verdict], answers: Sequence[Finished], seconds: float) -> None:
        if not self._is_overheard:
            return
        STORE_DURATION.record(seconds, self._finishing)
        FINISH_BATCH_SIZE.record(len(verdicts), self._labels)
        for verdict, answer in zip(verdicts, answers, strict=True):
            if answer is not Finished.DONE:
                self.answered(verdict.claim, answer)
            elif isinstance(verdict, Requeue):
                self._requeued(verdict)
            elif is_tick(verdict.claim):
                self._placed_by_schedule(verdict.then)

    def _requeued(self, verdict: Requeue) -> None:
        if not verdict.crashed:
            return
        CRASHES.add(1, self._labels)
        if verdict.claim.crashes >= SUSPECT:  # the store has made an end of it
            TASKS_POISONED.add(1, self._of_task[verdict.claim.task])

    def _placed_by_schedule(self, runs: Sequence[NewRun]) -> None:
        for run in runs:
            if not is_tick(run):
                TASKS_SCHEDULED.add(1, {**self._docket, "docket.task": run.task})

    def answered(self, claim: Claim, answer: Finished) -> None:
        if answer is Finished.FENCED:
            OUTCOMES_FENCED.add(1, self._labels)
        elif answer is Finished.YIELDED:
            TASKS_SUPERSEDED.add(1, {**self._of_task[claim.task], "docket.where": "retry"})

    def lease_lost(self) -> None:
        LEASES_LOST.add(1, self._labels)

    def unheeded(self) -> None:
        """A body was cancelled, and goes on."""
        CANCELLATIONS_UNHEEDED.add(1, self._labels)

    def disrupted(self) -> None:
        """The store could not be reached, or did not answer."""
        REDIS_DISRUPTIONS.add(1, self._labels)

    def store_emptied(self) -> None:
        """The store has lost all that it held."""
        STORE_EMPTIED.add(1, self._labels)

    def loop_turned(self, seconds: float) -> None:
        EVENT_LOOP_LAG.record(seconds, self._labels)

    def surveyed(self, survey: Survey) -> None:
        """The docket at a glance. Schedules wait in a queue of their own, and are no work."""
        survey = survey.but(counts=[each for each in survey.counts if each.queue != QUEUE])
        QUEUE_DEPTH.set(survey.count(State.QUEUED), self._docket)
        SCHEDULE_DEPTH.set(survey.count(State.SCHEDULED), self._docket)
        for queue, age in self._ages(survey).items():
            OLDEST_QUEUED_AGE.set(age, {**self._docket, "docket.queue": queue})
        CACHE_SIZE.set(Task.known(), {"cache": "signature"})

    def _ages(self, survey: Survey) -> Mapping[str, float]:
        """For how long the first of what is due has waited, by queue, in seconds. A queue that is empty by now says so,
        and those that are one too many are told of together: there may be one for each customer."""
        self._waited = dict.fromkeys(self._waited, 0.0)
        for queue, age in _waiting(survey).items():
            if queue in self._waited or len(self._waited) < MOST_QUEUES:
                self._waited[queue] = age
            else:
                self._waited[OTHERS] = max(self._waited.get(OTHERS, 0.0), age)
        return self._waited


V = TypeVar("V", Verdict, Verdict | None)


def carried_on(verdict: V) -> V:
    """The verdict, with the runs that follow linked to the span that brought them about."""
    if not isinstance(verdict, Settle) or not verdict.then or not (carried := carried_context()):
        return verdict
    return verdict.but(then=tuple(run.but(headers={**run.headers, **carried}) for run in verdict.then))


def _waiting(survey: Survey) -> dict[str, float]:
    ages: dict[str, float] = {}
    for each in survey.counts:
        if each.state in (State.QUEUED, State.SCHEDULED) and each.oldest_due is not None:
            age = (survey.at - each.oldest_due).total_seconds()
            ages[each.queue] = max(ages.get(each.queue, 0.0), age)
    return ages


def _has_failed(outcome: Outcome) -> bool:
    """Whether an attempt that raised has failed: one that was stopped, snoozed or turned away has no failure."""
    return outcome.error is not None and outcome.failure is not None


def _judge(span: Span, outcome: Outcome) -> None:
    failure = outcome.failure
    if outcome.error is None or failure is None:
        span.set_status(Status(StatusCode.OK))
        return
    mark_failed(span, outcome.error, failure)
