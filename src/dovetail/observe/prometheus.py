"""The metrics of this process, for Prometheus to fetch."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from opentelemetry import metrics

from dovetail.errors import MissingExtra, UsageError
from dovetail.instrumentation import is_metering
from dovetail.observe.serving import EVERYWHERE, Page, serving

_is_exported = False
"""A process has one meter provider for good, and prometheus_client one registry."""
_fetches: int | None = None
"""How often the metrics were asked for; None while they are not served."""


@contextmanager
def metrics_server(
    host: str = EVERYWHERE,
    port: int | None = None,
) -> Generator[int | None]:
    """Shows every metric of this process, at `/metrics`, while the block runs; yields the port, which is chosen for
    you if it is 0. Without a port nothing is served. A meter provider that is set already is read as well."""
    if port is None:
        yield None
        return
    global _fetches
    _export()
    with serving(_page, host, port, "metrics") as served:
        _fetches = 0
        try:
            yield served
        finally:
            _fetches = None


def fetches() -> int | None:
    """How often the metrics were asked for; None while they are not served."""
    return _fetches


def _export() -> None:
    """Let what is recorded be seen by prometheus_client."""
    global _is_exported
    if _is_exported:
        return
    try:
        from opentelemetry.exporter.prometheus import PrometheusMetricReader
        from opentelemetry.sdk.metrics import MeterProvider
    except ImportError as error:
        raise MissingExtra(
            "the metrics endpoint needs OpenTelemetry's SDK and its exporter for Prometheus: pip install"
            " 'dovetail-tasks[metrics]'"
        ) from error
    if not is_metering():
        reader = PrometheusMetricReader(scope_info_enabled=False)
        metrics.set_meter_provider(MeterProvider(metric_readers=[reader]))
    elif add_reader := getattr(metrics.get_meter_provider(), "add_metric_reader", None):
        add_reader(PrometheusMetricReader(scope_info_enabled=False))
    else:
        raise UsageError(
            "this program has set a meter provider of its own that takes no further readers; give it a"
            " PrometheusMetricReader when it is made, and serve prometheus_client's registry yourself"
        )
    _is_exported = True


def _page(path: str, accept: str) -> Page:
    from prometheus_client import REGISTRY
    from prometheus_client.exposition import choose_encoder

    if path not in ("/", "/metrics"):
        return Page("the metrics are at /metrics\n", status=404)
    global _fetches
    if _fetches is not None:
        _fetches += 1  # before they are read: who counts something now knows that the next one to ask will see it
    encode, kind = choose_encoder(accept)
    return Page(encode(REGISTRY).decode(), kind)
