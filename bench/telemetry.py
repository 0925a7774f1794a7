"""What telemetry costs: how much a worker spends on a run with nothing recorded, with metrics, and with traces as well.

    python -m bench.telemetry [--runs 5000] [--rounds 5] [--url sqlite:///...]

Each kind drains in a process of its own, since a process cannot take back its providers. "taken out" is the code with
every moment of telemetry replaced by a function that does nothing. The kinds take turns within a round, each is
compared with "taken out" of its own round, and the comparison is by processor time, all threads included.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.behaviors import Drain, drain, plain


def take_out() -> None:
    from dovetail import telemetry
    from dovetail.docket import scheduling
    from dovetail.worker import surveyor
    from dovetail.worker import telemetry as worker_telemetry

    def nothing(*args: Any, **kwargs: Any) -> None:
        return None

    for moment in ("span", "started", "ended", "claimed", "finished", "answered", "loop_turned", "begin"):
        setattr(worker_telemetry.Telemetry, moment, nothing)
    for moment in ("scheduled", "scheduled_many"):
        setattr(telemetry.DocketTelemetry, moment, nothing)
    untraced = telemetry.UNTRACED
    telemetry.DocketTelemetry.scheduling = lambda *_: untraced  # type: ignore[method-assign]
    telemetry.DocketTelemetry.scheduling_many = lambda *_: untraced  # type: ignore[method-assign]
    scheduling.carried_context = dict
    scheduling.tell = nothing
    surveyor.is_metering = lambda: False


def measure_with_an_sdk() -> None:
    from opentelemetry import metrics
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    metrics.set_meter_provider(MeterProvider(metric_readers=[InMemoryMetricReader()]))


def trace_with_an_sdk() -> None:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    measure_with_an_sdk()
    trace.set_tracer_provider(TracerProvider())  # spans are made, and exported nowhere


KINDS = {
    "taken out": take_out,
    "nothing recorded": lambda: None,
    "metrics": measure_with_an_sdk,
    "metrics and traces": trace_with_an_sdk,
}


def drain_here(kind: str, url: str, runs: int) -> None:
    """What one process measures, for the one that started it."""
    KINDS[kind]()
    asyncio.run(drain(url, plain, runs // 5))  # to warm up
    measured = asyncio.run(drain(url, plain, runs))
    print(json.dumps([measured.rate, measured.cost]))


def drained(kind: str, url: str | None, runs: int) -> Drain:
    with tempfile.TemporaryDirectory() as folder:
        where = url or f"sqlite:///{Path(folder) / 'bench.db'}"
        program = [sys.executable, "-m", "bench.telemetry", "--kind", kind, "--runs", str(runs), "--url", where]
        rate, cost = json.loads(subprocess.run(program, capture_output=True, text=True, check=True).stdout)
        return Drain(rate, cost)


def show(drains: dict[str, list[Drain]]) -> None:
    table = Table("telemetry", "runs/s", "µs of CPU a run", "costs")
    for kind, mine in drains.items():
        base = drains["taken out"]
        more = median(each.cost / other.cost for each, other in zip(mine, base, strict=True)) - 1
        rate, cost = median(each.rate for each in mine), median(each.cost for each in mine)
        table.add_row(kind, f"{rate:,.0f}", f"{cost:.0f}", f"{more:+.1%}")
    Console().print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--url", help="a store of its own; by default a new SQLite file for every drain")
    parser.add_argument("--kind", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.kind:
        drain_here(options.kind, options.url, options.runs)
    else:
        order = list(KINDS)
        results: dict[str, list[Drain]] = {kind: [] for kind in order}
        for turn in range(options.rounds):
            for kind in order[turn % len(order) :] + order[: turn % len(order)]:  # nobody is always first
                results[kind].append(drained(kind, options.url, options.runs))
        show(results)
