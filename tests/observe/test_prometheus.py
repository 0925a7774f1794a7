"""The metrics endpoint, and the dashboard and the alerts that go by it."""

from __future__ import annotations

import asyncio
import builtins
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from opentelemetry import metrics
from prometheus_client.parser import text_string_to_metric_families

from dovetail import Docket, Worker
from dovetail.errors import MissingExtra, UsageError
from dovetail.instrumentation import metrics_server
from dovetail.observe import prometheus
from tests.by_hand import finish
from tests.docs.pages import ROOT
from tests.observe.conftest import Measurements
from tests.observe.fetching import fetch

Shown = Mapping[str, set[str]]
"""The names of all series that an endpoint shows, and their labels."""

NAME = re.compile(r"\b[a-z_]+\b(?!\s*\()")
MATCHERS = re.compile(r"\{([^}]*)\}")
GROUPING = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)")
WORDS = {"and", "by", "on", "unless", "or"}


@pytest.fixture(scope="module")
def shown() -> Shown:
    """What a real worker in a process of its own has shown."""
    program = [sys.executable, "-m", "tests.observe.scraped"]
    ran = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    series: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(ran.stdout):
        for sample in family.samples:
            series.setdefault(sample.name, set()).update(sample.labels)
    return series


def test_everything_of_docket_s_is_shown_under_its_name(shown: Shown):
    counters = (
        "added", "replaced", "scheduled", "cancelled", "started", "stricken", "completed", "failed", "succeeded",
        "retried", "perpetuated",
    )  # fmt: skip
    wanted = {f"docket_tasks_{name}_total" for name in counters}
    wanted |= {"docket_queue_depth", "docket_schedule_depth", "docket_tasks_running", "docket_strikes_in_effect"}
    wanted |= {"docket_task_duration_seconds_bucket", "docket_task_punctuality_seconds_bucket", "docket_cache_size"}
    wanted |= {"docket_redis_disruptions_total"}
    assert wanted - shown.keys() == set()
    assert shown["docket_tasks_started_total"] == {"docket_name", "docket_worker", "docket_task"}


# The files beside the code


def dashboard() -> Iterator[str]:
    board = json.loads((ROOT / "deploy/grafana/dovetail.json").read_text(encoding="utf-8"))
    for panel in board["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))


def variables() -> Iterator[str]:
    board = json.loads((ROOT / "deploy/grafana/dovetail.json").read_text(encoding="utf-8"))
    yield from (each["definition"] for each in board["templating"]["list"] if each["type"] == "query")


def alerts() -> list[str]:
    text = (ROOT / "deploy/prometheus/alerts.yml").read_text(encoding="utf-8")
    return re.findall(r"^\s+expr: (.+)$", text, re.MULTILINE)


EXPRESSIONS = [*dashboard(), *alerts()]


def names_in(expression: str) -> set[str]:
    bare = GROUPING.sub(" ", MATCHERS.sub(" ", expression))
    bare = re.sub(r"\[[^\]]*\]", " ", bare)
    return {name for name in NAME.findall(bare) if name not in WORDS}


def labels_in(expression: str) -> set[str]:
    matched = {name for inside in MATCHERS.findall(expression) for name in re.findall(r"(\w+)\s*(?:=|!)", inside)}
    grouped = {name for inside in GROUPING.findall(expression) for name in re.findall(r"\w+", inside)}
    return matched | grouped


def test_names_are_found_in_an_expression():
    expression = 'histogram_quantile(0.9, sum by (le, b) (rate(a_bucket{c=~"d"}[5m]))) > 1 and on (b) max(e) == 0'
    assert names_in(expression) == {"a_bucket", "e"}
    assert labels_in(expression) == {"le", "b", "c"}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_asks_for_what_is_there(shown: Shown, expression: str):
    names = names_in(expression)
    assert names
    assert names - shown.keys() == set()
    labels = set[str]().union(*(shown[name] for name in names))
    assert labels_in(expression) - labels == set()


@pytest.mark.parametrize("definition", list(variables()))
def test_a_variable_is_filled_from_what_is_there(shown: Shown, definition: str):
    found = re.fullmatch(r"label_values\((\w+), (\w+)\)", definition)
    assert found is not None
    assert found[2] in shown[found[1]]


def test_there_is_an_alert_for_everything_that_should_be_zero(shown: Shown):
    asked = set[str]().union(*map(names_in, alerts()))
    rare = ("crashes", "tasks_poisoned", "leases_lost", "outcomes_fenced")
    assert {f"dovetail_{name}_total" for name in rare} <= asked & shown.keys()
    assert len(alerts()) == (ROOT / "deploy/prometheus/alerts.yml").read_text(encoding="utf-8").count("- alert:")


# The endpoint


async def work() -> None: ...


async def test_a_provider_that_is_set_already_is_read_as_well(docket: Docket, worker: Worker, measured: Measurements):
    with metrics_server("127.0.0.1", 0) as port:
        await docket.add(work)()
        await finish(worker)
        plain, root, elsewhere = await asyncio.gather(
            fetch(port, "/metrics"), fetch(port, "/"), fetch(port, "/elsewhere")
        )
        modern = await fetch(port, "/metrics", "application/openmetrics-text; version=1.0.0")
    assert (plain.status, plain.kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert 'docket_tasks_added_total{docket_name="tests",docket_task="work"}' in plain.body
    assert "docket_tasks_added" in root.body
    assert elsewhere.status == 404
    assert modern.kind.startswith("application/openmetrics-text")
    assert modern.body.rstrip().endswith("# EOF")


async def test_it_is_counted_how_often_the_metrics_were_asked_for(measured: Measurements):
    assert prometheus.fetches() is None
    with metrics_server("127.0.0.1", 0) as port:
        assert prometheus.fetches() == 0
        await fetch(port, "/metrics")
        await fetch(port, "/elsewhere")
        assert prometheus.fetches() == 1
    assert prometheus.fetches() is None


def test_without_a_port_nothing_is_served_and_nothing_is_set(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(prometheus, "_export", lambda: pytest.fail("nobody asked for it"))
    with metrics_server() as port:
        assert port is None


def test_the_extra_is_named_where_the_sdk_is_missing(monkeypatch: pytest.MonkeyPatch):
    real = builtins.__import__

    def without_sdk(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter")):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(prometheus, "_is_exported", False)
    monkeypatch.setattr(builtins, "__import__", without_sdk)
    with pytest.raises(MissingExtra, match=r"dovetail-tasks\[metrics\]") as refused, metrics_server("127.0.0.1", 0):
        pass
    assert isinstance(refused.value, ImportError)


def test_a_provider_that_takes_no_readers_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(prometheus, "_is_exported", False)
    monkeypatch.setattr(metrics._internal, "_METER_PROVIDER", object())  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="PrometheusMetricReader"), metrics_server("127.0.0.1", 0):
        pass
