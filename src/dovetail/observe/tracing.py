"""Traces: whether anybody records them, and how their context travels with a run.

A run may start days after it was scheduled, and more than once. So an attempt begins a trace of its own, and its span
is linked with the one that scheduled the run. What is needed for that is carried in the run's headers, as W3C trace
context, and baggage with it.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress

from opentelemetry import baggage, context, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from dovetail.model import Failure

Attributes = Mapping[str, AttributeValue]

logger = logging.getLogger("dovetail.observe")
tracer = trace.get_tracer("dovetail")

SUPPRESSED = {"suppress_instrumentation", getattr(context, "_SUPPRESS_INSTRUMENTATION_KEY", "suppress_instrumentation")}
"""What instrumentations of drivers look for in the context before they begin a span: older ones, and newer."""
BAGGAGE = "baggage"
"""The header in which baggage travels."""


def is_tracing() -> bool:
    """Whether a tracer provider has been set. Asked for every run, so it must cost nothing.

    The public function looks into the environment each time. Where this attribute is missing, spans are begun in vain,
    which costs time and nothing else.
    """
    return getattr(trace, "_TRACER_PROVIDER", trace) is not None


def is_suppressed() -> bool:
    """Whether what is done at the moment is to show in nobody's traces."""
    return any(context.get_value(key) for key in SUPPRESSED)


def carried_context() -> dict[str, str]:
    """The present trace context and baggage, as headers of a run that is scheduled now."""
    headers: dict[str, str] = {}
    if context.get_current():
        from opentelemetry import propagate  # to load the propagators takes a while

        propagate.inject(headers)
    return headers


def carried_link() -> dict[str, str]:
    """The same without baggage: for what goes on for so long that its caller's circumstances are none of its own."""
    return {name: value for name, value in carried_context().items() if name != BAGGAGE}


def context_of(headers: Mapping[str, str] | None) -> Context:
    """What the headers of a run say of the context in which it was scheduled."""
    if not headers:
        return Context()
    from opentelemetry import propagate

    return propagate.extract(headers, Context())


def go_on_within(carried: Mapping[str, str]) -> None:
    """Let the rest of this asyncio task, and what it begins, be within a span of another process."""
    if carried:
        context.attach(context_of(carried))


def links_of(headers: Mapping[str, str] | None) -> list[Link]:
    """A link to the span that scheduled a run, if there was one."""
    return _link_to(context_of(headers))


def _link_to(origin: Context) -> list[Link]:
    span = trace.get_current_span(origin).get_span_context()
    return [Link(span)] if span.is_valid else []


@contextmanager
def own_trace(
    name: str, attributes: Attributes, headers: Mapping[str, str], kind: SpanKind = SpanKind.CONSUMER
) -> Generator[Span]:
    """A span around what is done for a run: the first of a trace, linked to where the run was scheduled, with its
    baggage. What it ended in is said by whoever judges it: not every exception is a failure."""
    origin = context_of(headers)
    fresh = trace.set_span_in_context(trace.INVALID_SPAN)
    for key, value in baggage.get_all(origin).items():
        fresh = baggage.set_baggage(key, value, fresh)
    with spanning(name, attributes, kind, fresh, _link_to(origin)) as span:
        yield span


@contextmanager
def spanning(
    name: str, attributes: Attributes, kind: SpanKind, within: Context | None = None, links: Sequence[Link] = ()
) -> Generator[Span]:
    """A span around the block. Code of the user's is told when it begins and when it ends, and may raise: then nothing
    is recorded, and nothing else is lost."""
    span = trace.INVALID_SPAN
    try:
        span = tracer.start_span(name, within, kind, attributes, links)
    except Exception:
        logger.exception("the span %r cannot be begun", name)
    token = context.attach(trace.set_span_in_context(span, within))
    try:
        yield span
    finally:
        context.detach(token)
        try:
            span.end()
        except Exception:
            logger.exception("the span %r cannot be ended", name)


def messaging(operation: str, kind: str, queue: str | None = None) -> dict[str, str]:
    """What a span is about, in the words of OpenTelemetry's conventions for messaging."""
    said = {"messaging.system": "dovetail", "messaging.operation.name": operation, "messaging.operation.type": kind}
    return said if queue is None else {**said, "messaging.destination.name": queue}


def mark_failed(span: Span, error: BaseException, failure: Failure) -> None:
    """Say on a span what went wrong within it."""
    span.set_attribute("error.type", failure.type)
    span.set_status(Status(StatusCode.ERROR, failure.message))
    with suppress(Exception):  # how an exception shows itself is its own affair
        span.record_exception(error)


@contextmanager
def in_background(*, traced: bool) -> Generator[None]:
    """Work that nobody asked for, and all tasks that are begun within: it belongs to no span, and unless it is to be
    traced, what instruments a driver leaves it alone."""
    here = trace.set_span_in_context(trace.INVALID_SPAN)
    if not traced:
        for key in SUPPRESSED:
            here = context.set_value(key, True, here)
    token = context.attach(here)
    try:
        yield
    finally:
        context.detach(token)
