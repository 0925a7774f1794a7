"""A real SDK that records in memory, for as long as a test lasts.

A process can set its providers once and for all; the tests of other files are to run without any. So they are set once,
and put aside after each test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider, UpDownCounter, _Gauge
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from dovetail import Docket, Worker
from tests.by_hand import at_work
from tests.waiting import soon


@dataclass(frozen=True, slots=True)
class Spans:
    """The spans that have ended."""

    exporter: InMemorySpanExporter

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.exporter.get_finished_spans()]


@dataclass(slots=True)
class Measurements:
    """What was measured since the test began, by instrument."""

    reader: InMemoryMetricReader
    read: Any = None

    def of(self, instrument: str) -> list[tuple[Mapping[str, Any], Any]]:
        """Attributes and data point of each of its series."""
        self.read = self.read or self.reader.get_metrics_data()
        found = [
            metric
            for resource in (self.read.resource_metrics if self.read else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == instrument
        ]
        return [(dict(point.attributes), point) for metric in found for point in metric.data.data_points]

    def count(self, instrument: str, **attributes: str) -> float:
        """What a counter, or the number of a histogram's records, has grown by."""
        wanted = {f"docket.{name}": value for name, value in attributes.items()}
        points = [point for labels, point in self.of(instrument) if wanted.items() <= labels.items()]
        return sum(getattr(point, "value", None) or getattr(point, "count", 0) for point in points)


@cache
def tracing() -> tuple[TracerProvider, InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return provider, exporter


@cache
def metering() -> tuple[MeterProvider, InMemoryMetricReader]:
    kinds = (Counter, UpDownCounter, Histogram, _Gauge)  # else a gauge would tell what another test has set it to
    reader = InMemoryMetricReader(preferred_temporality=dict.fromkeys(kinds, AggregationTemporality.DELTA))
    provider = MeterProvider(metric_readers=[reader])
    metrics.set_meter_provider(provider)
    return provider, reader


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    provider, exporter = tracing()
    trace._TRACER_PROVIDER = None
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    exporter.clear()
    return Spans(exporter)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Measurements:
    provider, reader = metering()
    metrics._internal._METER_PROVIDER = None  # type: ignore[attr-defined]
    monkeypatch.setattr(metrics._internal, "_METER_PROVIDER", provider)  # type: ignore[attr-defined]
    reader.get_metrics_data()
    return Measurements(reader)


async def cancel_one(docket: Docket, worker: Worker) -> None:
    """Let a run of the task `wait`, whose key is k, be cancelled while it is at work."""
    started = asyncio.Event()

    async def wait() -> None:
        started.set()
        await asyncio.Event().wait()

    async with at_work(worker):
        execution = await docket.add(wait, key="k")()
        await soon(started.wait())
        await docket.cancel("k")
        with pytest.raises(Exception, match="cancelled"):
            await soon(execution.get_result())
