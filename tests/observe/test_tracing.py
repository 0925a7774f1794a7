"""Traces: attempts are linked, through the store, with the span that scheduled their run."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from dovetail import Cron, Docket, Perpetual, Retry, Worker, sync
from dovetail.clock import VirtualClock
from dovetail.observe.tracing import carried_context, is_tracing
from tests.by_hand import ByHand, at_work, finish, soon
from tests.conftest import MakeWorker
from tests.observe.conftest import Spans

tracer = trace.get_tracer(__name__)


async def work() -> None: ...


def linked_to(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def trace_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.trace_id


async def test_an_attempt_is_a_trace_of_its_own_linked_to_where_it_was_scheduled(
    docket: Docket, worker: Worker, spans: Spans
):
    with tracer.start_as_current_span("request"):
        await docket.add(work)()
    await finish(worker)
    request, added, attempt = spans.one("request"), spans.one("docket.add"), spans.one("work")
    assert added.parent is not None
    assert added.parent.span_id == id_of(request)
    assert linked_to(attempt) == [id_of(added)]
    assert attempt.parent is None
    assert trace_of(attempt) != trace_of(added)


async def test_a_run_that_is_due_later_keeps_its_link(docket: Docket, worker: Worker, spans: Spans):
    await docket.add(work, when=datetime.now(UTC) + timedelta(milliseconds=50))()
    await finish(worker)
    assert linked_to(spans.one("work")) == [id_of(spans.one("docket.add"))]


async def test_every_attempt_of_a_run_is_linked_to_the_one_that_scheduled_it(
    docket: Docket, worker: Worker, spans: Spans
):
    async def flaky(retry: Retry = Retry(attempts=3)) -> None:
        if retry.attempt < 3:
            raise ValueError(f"attempt {retry.attempt}")

    await docket.add(flaky)()
    await finish(worker)
    attempts = spans.named("flaky")
    origin = id_of(spans.one("docket.add"))
    assert [linked_to(attempt) for attempt in attempts] == [[origin]] * 3
    assert [attempt.attributes and attempt.attributes["docket.attempt"] for attempt in attempts] == [1, 2, 3]
    assert [attempt.status.status_code for attempt in attempts] == [
        StatusCode.ERROR, StatusCode.ERROR, StatusCode.OK
    ]  # fmt: skip
    assert attempts[0].status.description == "attempt 1"
    assert [event.name for event in attempts[0].events] == ["exception"]


async def test_the_next_run_of_a_perpetual_task_is_linked_to_the_attempt_before_it(
    docket: Docket, worker: Worker, spans: Spans
):
    async def tick(perpetual: Perpetual = Perpetual(every=timedelta(milliseconds=10))) -> None: ...

    await docket.add(tick, key="k")()
    await finish(worker, k=3)
    first, second, third = spans.named("tick")
    assert linked_to(first) == [id_of(spans.one("docket.add"))]
    assert linked_to(second) == [id_of(first)]
    assert linked_to(third) == [id_of(second)]


async def test_the_next_run_of_a_cron_task_is_linked_too(
    still: Docket, by_hand: ByHand, clock: VirtualClock, spans: Spans
):
    async def nightly(cron: Cron = Cron("0 3 * * *")) -> None: ...

    await still.add(nightly)()
    await by_hand.step()
    clock.jump(timedelta(days=1))
    await by_hand.step()
    first, second = spans.named("nightly")
    assert linked_to(second) == [id_of(first)]


async def test_a_batch_is_one_span_and_every_run_of_it_is_linked(docket: Docket, worker: Worker, spans: Spans):
    await docket.add_many([docket.call(work)() for _ in range(3)])
    await finish(worker)
    batch = spans.one("docket.add_many")
    assert batch.attributes is not None
    assert batch.attributes["docket.batch.count"] == 3
    assert batch.attributes["docket.batch.stricken"] == 0
    assert [linked_to(attempt) for attempt in spans.named("work")] == [[id_of(batch)]] * 3
    assert spans.named("docket.add") == []


async def test_baggage_goes_with_the_run(docket: Docket, worker: Worker, spans: Spans):
    seen: list[dict[str, Any]] = []

    async def look() -> None:
        seen.append(dict(baggage.get_all()))

    token = context.attach(baggage.set_baggage("tenant", "ann"))
    try:
        await docket.add(look)()
    finally:
        context.detach(token)
    await finish(worker)
    assert seen == [{"tenant": "ann"}]


async def test_baggage_goes_with_the_run_where_nobody_traces(docket: Docket, worker: Worker):
    assert not is_tracing()
    seen: list[dict[str, Any]] = []

    async def look() -> None:
        seen.append(dict(baggage.get_all()))

    token = context.attach(baggage.set_baggage("tenant", "ann"))
    try:
        await docket.add(look)()
    finally:
        context.detach(token)
    await finish(worker)
    assert seen == [{"tenant": "ann"}]


async def test_what_a_task_schedules_is_in_its_trace(docket: Docket, worker: Worker, spans: Spans):
    async def outer() -> None:
        await docket.add(work)()

    await docket.add(outer)()
    await finish(worker)
    outside, inner = (
        spans.one("outer"),
        next(
            span for span in spans.named("docket.add") if span.attributes and span.attributes["docket.task"] == "work"
        ),
    )
    assert inner.parent is not None
    assert inner.parent.span_id == id_of(outside)


async def test_a_span_says_which_run_it_is_in_both_vocabularies(docket: Docket, worker: Worker, spans: Spans):
    execution = await docket.add(work, key="k", queue="mail")()
    await finish(worker)
    added, attempt = spans.one("docket.add"), spans.one("work")
    assert added.kind is SpanKind.PRODUCER
    assert attempt.kind is SpanKind.CONSUMER
    both = {
        "docket.name": "tests", "docket.task": "work", "docket.key": "k", "docket.attempt": 1,
        "code.function.name": "work", "messaging.system": "dovetail", "messaging.destination.name": "mail",
        "messaging.message.id": execution.id,
    }  # fmt: skip
    for span in (added, attempt):
        assert span.attributes is not None
        assert both.items() <= dict(span.attributes).items()
    assert added.attributes is not None
    assert attempt.attributes is not None
    assert added.attributes["docket.disposition"] == "scheduled"
    assert added.attributes["messaging.operation.type"] == "send"
    assert attempt.attributes["messaging.operation.type"] == "process"
    assert attempt.attributes["docket.worker"] == "worker"


async def test_a_run_that_was_cancelled_is_no_error(docket: Docket, worker: Worker, spans: Spans):
    started = asyncio.Event()

    async def wait() -> None:
        started.set()
        await asyncio.Event().wait()

    async with at_work(worker):
        execution = await docket.add(wait, key="k")()
        await soon(started.wait())
        await docket.cancel("k")
        with pytest.raises(Exception, match="cancelled"):
            await execution.get_result(timeout=timedelta(seconds=10))
    assert spans.one("wait").status.status_code is StatusCode.OK
    assert spans.one("docket.cancel").attributes == {"docket.name": "tests", "docket.key": "k"}


async def test_other_calls_have_spans_by_docket_s_names(docket: Docket, spans: Spans):
    async def mail(customer: str) -> None: ...

    docket.register(mail)
    later = datetime.now(UTC) + timedelta(hours=1)
    execution = await docket.replace(work, later, "k")()
    await docket.replace_many([docket.call(work, when=later, key="k")()])
    await docket.schedule(execution)
    await docket.strike("mail", "customer", "==", "ann")
    await docket.restore("mail", "customer", "==", "ann")
    await docket.clear()
    assert spans.names == [
        "docket.replace", "docket.replace_many", "docket.schedule", "docket.strike", "docket.restore", "docket.clear",
    ]  # fmt: skip
    strike = spans.one("docket.strike").attributes
    assert strike == {
        "docket.name": "tests", "docket.task": "mail", "docket.parameter": "customer", "docket.operator": "==",
    }  # fmt: skip


async def test_scheduling_that_fails_is_an_error_and_schedules_nothing(docket: Docket, spans: Spans):
    async def takes(thing: Any) -> None: ...

    with pytest.raises(Exception, match="thing"):
        await docket.add(takes)(object())
    assert spans.one("docket.add").status.status_code is StatusCode.ERROR


async def test_a_sync_docket_is_traced_in_the_callers_trace(url: str, make_worker: MakeWorker, spans: Spans):
    def call() -> None:
        with sync.Docket("tests", url) as docket, tracer.start_as_current_span("request"):
            docket.add(work)()

    async with Docket("tests", url) as docket:
        await asyncio.to_thread(call)
        docket.register(work)
        await finish(make_worker(docket))
    added = spans.one("docket.add")
    assert added.parent is not None
    assert added.parent.span_id == id_of(spans.one("request"))
    assert linked_to(spans.one("work")) == [id_of(added)]


async def test_nothing_is_carried_where_nothing_is_traced(docket: Docket):
    assert carried_context() == {}
    execution = await docket.add(work)()
    await execution.sync()
    assert execution.run is not None
    assert execution.run.headers == {}
    assert execution.incoming_span_links() == []


async def test_tags_and_trace_context_travel_together(docket: Docket, spans: Spans):
    execution = await docket.add(work, key="k", tags=["urgent"])()
    found = await docket.get_execution("k")
    assert found is not None
    assert found.tags == ("urgent",)
    (link,) = found.incoming_span_links()
    assert link.context.span_id == id_of(spans.one("docket.add"))
    assert execution.tags == ("urgent",)


# What the worker itself asks of the store


class Eavesdropper:
    """An engine that notes for whom it works: whether instrumentations would leave the call alone."""

    def __init__(self, docket: Docket) -> None:
        self.heard: dict[str, set[bool]] = {}
        self._docket = docket
        for verb in ("claim", "finish", "schedule", "survey", "holds"):
            self._overhear(verb)

    def _overhear(self, verb: str) -> None:
        real = getattr(self._docket.engine, verb)

        async def overheard(*args: Any, **kwargs: Any) -> Any:
            self.heard.setdefault(verb, set()).add(bool(context.get_value("suppress_instrumentation")))
            return await real(*args, **kwargs)

        setattr(self._docket.engine, verb, overheard)


@pytest.mark.parametrize("enabled", [False, True])
async def test_what_a_worker_asks_of_the_store_is_hidden_unless_it_is_asked_for(
    url: str, make_worker: MakeWorker, enabled: bool
):
    async with Docket("tests", url, enable_internal_instrumentation=enabled) as here:

        async def schedules() -> None:
            await here.add(work)()

        await here.wait_for_strikes_loaded()
        heard = Eavesdropper(here).heard
        await here.add(schedules)()
        await finish(make_worker(here, enable_internal_instrumentation=enabled))
    assert heard["claim"] == heard["finish"] == heard["holds"] == {not enabled}
    assert heard["schedule"] == {False}, "what callers and tasks ask for is theirs to see"
