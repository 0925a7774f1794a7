"""Traces: whether anybody records them, and how their context travels with a run.

A run may start days after it was scheduled, and more than once. So an attempt begins a trace of its own, and its span
is linked with the one that scheduled the run. What is needed for that is carried in the run's headers, as W3C trace
context, and baggage with it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from opentelemetry import baggage, context, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind
from opentelemetry.util.types import AttributeValue

Attributes = Mapping[str, AttributeValue]

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


def carried_context() -> dict[str, str]:
    """The present trace context and baggage, as headers of a run that is scheduled now."""
    headers: dict[str, str] = {}
    if context.get_current():
        from opentelemetry import propagate  # to load the propagators takes a while

        propagate.inject(headers)
    return headers


def context_of(headers: Mapping[str, str] | None) -> Context:
    """What the headers of a run say of the context in which it was scheduled."""
    if not headers:
        return Context()
    from opentelemetry import propagate

    return propagate.extract(headers, Context())


def links_of(headers: Mapping[str, str] | None) -> list[Link]:
    """A link to the span that scheduled a run, if there was one."""
    origin = trace.get_current_span(context_of(headers)).get_span_context()
    return [Link(origin)] if origin.is_valid else []


@contextmanager
def attempt_span(name: str, attributes: Attributes, headers: Mapping[str, str]) -> Generator[Span]:
    """A span around an attempt: the first of a trace, linked to where the run was scheduled, with its baggage."""
    origin = context_of(headers)
    fresh = trace.set_span_in_context(trace.INVALID_SPAN)
    for key, value in baggage.get_all(origin).items():
        fresh = baggage.set_baggage(key, value, fresh)
    token = context.attach(fresh)
    try:
        # What the attempt ended in is said by whoever judges it: not every exception is a failure.
        with tracer.start_as_current_span(
            name, kind=SpanKind.CONSUMER, attributes=attributes, links=links_of(headers), record_exception=False,
            set_status_on_exception=False,
        ) as span:  # fmt: skip
            yield span
    finally:
        context.detach(token)


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
