"""Traces: attempts are linked, through the store, with the span that scheduled their run."""

from __future__ import annotations

import asyncio
import inspect
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.trace import SpanKind, StatusCode

from dovetail import Cron, Docket, Perpetual, Retry, StrikeList, UnknownParent, Worker, sync
from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.engine.tracing import VERBS
from dovetail.model import State
from dovetail.observe import tracing
from dovetail.observe.tracing import carried_context, context_of, is_tracing
from tests import abroad
from tests.by_hand import ByHand, at_work, finish
from tests.conftest import MakeWorker
from tests.observe.conftest import Measurements, Spans, cancel_one

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
    await cancel_one(docket, worker)
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
    added = spans.one("docket.add")
    assert added.status.status_code is StatusCode.ERROR
    assert added.attributes is not None
    assert added.attributes["error.type"] == "PayloadError"
    assert [event.name for event in added.events] == ["exception"]


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


# Schedules


async def tick(clock: VirtualClock, docket: Docket, times: int) -> None:
    """Let a schedule of every minute come so many times, and its runs run."""
    async with Worker(docket, name="worker") as worker:
        working = asyncio.create_task(worker.run_forever())
        await clock.advance(timedelta(minutes=times, seconds=30))
        worker.stop()
        await working


async def test_the_runs_of_a_schedule_are_linked_to_its_ticks_and_these_to_one_another(
    still: Docket, clock: VirtualClock, spans: Spans
):
    with tracer.start_as_current_span("deploy"):
        token = context.attach(baggage.set_baggage("user", "ann"))
        await still.schedules.add("often", work, every=timedelta(minutes=1))()
        context.detach(token)
    await tick(clock, still, 2)
    first, second = spans.named("docket.tick")
    assert linked_to(first) == [id_of(spans.one("deploy"))]
    assert linked_to(second) == [id_of(first)]
    assert [linked_to(attempt) for attempt in spans.named("work")] == [[id_of(first)], [id_of(second)]]
    assert first.parent is None
    assert first.kind is SpanKind.PRODUCER
    assert first.attributes is not None
    told = {"docket.key": "dovetail.schedule:often", "docket.worker": "worker", "messaging.destination.name": "default"}
    assert told.items() <= dict(first.attributes).items()


async def test_a_schedule_has_no_baggage_of_whoever_made_it(still: Docket, clock: VirtualClock, spans: Spans):
    seen: list[dict[str, Any]] = []

    async def look() -> None:
        seen.append(dict(baggage.get_all()))

    token = context.attach(baggage.set_baggage("user", "ann"))
    await still.schedules.add("often", look, every=timedelta(minutes=1))()
    context.detach(token)
    await tick(clock, still, 1)
    assert seen == [{}]


async def test_a_run_that_was_triggered_is_linked_to_that(
    docket: Docket, worker: Worker, spans: Spans, measured: Measurements
):
    await docket.schedules.add("rarely", work, every=timedelta(days=1))()
    with tracer.start_as_current_span("request"):
        execution = await docket.schedules.trigger("rarely")
    await finish(worker)
    triggered = spans.one("docket.trigger")
    assert triggered.parent is not None
    assert triggered.parent.span_id == id_of(spans.one("request"))
    assert triggered.attributes is not None
    assert triggered.attributes["messaging.message.id"] == execution.id
    assert linked_to(spans.one("work")) == [id_of(triggered)]
    assert measured.count("docket_tasks_scheduled", task="work") == 1


# Threads and processes


async def test_a_function_in_a_thread_is_within_its_attempt(docket: Docket, worker: Worker, spans: Spans):
    def compute() -> None:
        with tracer.start_as_current_span("inner"):
            pass

    await docket.add(compute)()
    await finish(worker)
    inner = spans.one("inner")
    assert inner.parent is not None
    assert inner.parent.span_id == id_of(spans.one("compute"))


async def test_a_task_in_a_process_of_its_own_is_within_its_attempt(docket: Docket, worker: Worker, spans: Spans):
    token = context.attach(baggage.set_baggage("user", "ann"))
    execution = await docket.add(abroad.carried)()
    context.detach(token)
    async with at_work(worker):
        carried = await execution.get_result(timeout=timedelta(seconds=40))
    attempt = spans.one("carried")
    within = trace.get_current_span(context_of(carried)).get_span_context()
    assert (within.trace_id, within.span_id) == (trace_of(attempt), id_of(attempt))
    assert baggage.get_all(context_of(carried)) == {"user": "ann"}


# Code of the user's


class Broken(SpanProcessor):
    """Raises whatever it is told."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        raise RuntimeError("on start")

    def on_end(self, span: Any) -> None:
        raise RuntimeError("on end")


class BrokenAtTheEnd(Broken):
    def on_start(self, span: Any, parent_context: Any = None) -> None: ...


@pytest.mark.parametrize("broken", [Broken(), BrokenAtTheEnd()], ids=["on start", "on end"])
async def test_a_processor_that_raises_costs_no_call_and_no_run(
    docket: Docket, worker: Worker, monkeypatch: pytest.MonkeyPatch, broken: SpanProcessor
):
    provider = TracerProvider()
    provider.add_span_processor(broken)
    monkeypatch.setattr(tracing, "tracer", provider.get_tracer("broken"))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    execution = await docket.add(work)()
    await finish(worker)
    await execution.sync()
    assert execution.state is State.COMPLETED


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


async def test_whoever_asks_for_it_sees_what_is_asked_of_the_store(url: str, make_worker: MakeWorker, spans: Spans):
    async with Docket("tests", url, heartbeat_interval=timedelta(milliseconds=50)) as here:
        await here.add(work)()
        assert spans.names == ["docket.add"], "nobody has asked for it yet"
        await finish(make_worker(here, enable_internal_instrumentation=True))
        await here.add(work, key="later")()
    assert {"store.claim", "store.finish", "store.heartbeat"} <= set(spans.names)
    claim = spans.named("store.claim")[0]
    assert (claim.parent, claim.kind) == (None, SpanKind.CLIENT)
    assert claim.attributes is not None
    assert claim.attributes["docket.name"] == "tests"
    assert claim.attributes["db.operation.name"] == "claim"
    assert claim.attributes["db.system.name"] in ("sqlite", "postgresql", "redis")
    scheduled, added = spans.named("store.schedule")[-1], spans.named("docket.add")[-1]
    assert scheduled.parent is not None
    assert scheduled.parent.span_id == id_of(added)


def test_all_that_can_be_asked_of_a_store_while_it_is_open_shows():
    asked = {name for name, verb in vars(Engine).items() if inspect.iscoroutinefunction(verb)}
    assert asked - {"__aenter__", "__aexit__", "migrate"} == set(VERBS)


async def test_what_the_store_refuses_shows_as_well(url: str, spans: Spans):
    async with Docket("tests", url, enable_internal_instrumentation=True) as here:
        with pytest.raises(UnknownParent):
            await here.add(work, after=["no such run"])()
    refused = spans.one("store.schedule")
    assert refused.status.status_code is StatusCode.ERROR
    assert refused.attributes is not None
    assert refused.attributes["error.type"] == "UnknownParent"


async def test_a_strike_list_of_its_own_can_be_watched_too(url: str, spans: Spans):
    async with StrikeList(url, name="tests", enable_internal_instrumentation=True) as strikes:
        await strikes.wait_for_strikes_loaded()
    assert "store.holds" in spans.names
