"""The results as people and programs read them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from bench.cases import Load
from bench.goals import GOALS
from bench.machine import Machine
from bench.measure import Results, Spread

RATIOS = (
    ("dovetail", "minimal"),
    ("dovetail", "huey"),
    ("dovetail", "pydocket"),
    ("dovetail", "dramatiq"),
    ("dovetail", "taskiq"),
    ("huey", "minimal"),
)
NOTHING = "-"
BUSY = 1.0  # load average
SLOW = 1.0  # milliseconds a sync


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table, before anyone decided how it is drawn."""

    title: str
    header: list[str]
    rows: list[list[str]]


@dataclass(frozen=True, slots=True)
class Report:
    """Everything a run found out."""

    machine: Machine
    load: Load
    rounds: int
    systems: list[str]
    results: list[Results]
    failures: list[str]

    def sheets(self) -> Iterable[Sheet]:
        for results in self.results:
            for group in dict.fromkeys(metric.group for metric in results.metrics.values()):
                yield self._figures(results, group)
            if goals := _goals(results):
                yield goals

    def _figures(self, results: Results, group: str) -> Sheet:
        metrics = [metric for metric in results.metrics.values() if metric.group == group]
        measured = [name for name in self.systems if any(results.values(each.name, name) for each in metrics)]
        pairs = [pair for pair in RATIOS if set(pair) <= set(measured)]
        header = ["", "unit", *measured, *(f"{over} ÷ {under}" for over, under in pairs)]
        rows = [
            [
                metric.title,
                metric.unit,
                *(_figure(results.spread(metric.name, system)) for system in measured),
                *(_ratio(results.ratio((metric.name, over), (metric.name, under))) for over, under in pairs),
            ]
            for metric in metrics
        ]
        return Sheet(f"{results.engine}: {group}", header, rows)

    def footing(self) -> str:
        """What the figures stand on."""
        rounds = "One round" if self.rounds == 1 else f"Medians of {self.rounds} rounds (least to most)"
        return f"{rounds}; a ratio is the median of each round's. {self.machine}.{self._caution()}"

    def _caution(self) -> str:
        busy = " It was busy with something else: do not trust these." if self.machine.busy > BUSY else ""
        slow = (
            " Its disk was slow, or throttled: rates and latencies are mostly that." if self.machine.sync > SLOW else ""
        )
        return busy + slow

    def show(self, console: Console) -> None:
        for sheet in self.sheets():
            console.print(_drawn(sheet))
        console.print(self.footing(), highlight=False)
        for failure in self.failures:
            console.print(f"failed: {failure}", style="red", markup=False, highlight=False)

    def markdown(self) -> str:
        parts = [_marked_down(sheet) for sheet in self.sheets()]
        failures = [f"Failed: {failure}" for failure in self.failures]
        return "\n\n".join([*parts, self.footing(), *failures]) + "\n"

    def json(self) -> str:
        readings = [
            {
                "engine": results.engine,
                "metric": name,
                "unit": metric.unit,
                "system": system,
                "rounds": values,
            }
            for results in self.results
            for name, metric in results.metrics.items()
            for system in self.systems
            if (values := list(results.values(name, system).values()))
        ]
        run = {"machine": asdict(self.machine), "load": asdict(self.load), "readings": readings}
        return json.dumps(run | {"failures": self.failures}, indent=2) + "\n"


def _goals(results: Results) -> Sheet | None:
    rows = [
        [goal.text, f"{value:.3g}", "yes" if goal.is_met_by(value) else "NO"]
        for goal in GOALS.get(results.engine, ())
        if (value := goal.measured(results)) is not None
    ]
    return Sheet(f"{results.engine}: goals", ["goal", "measured", "met"], rows) if rows else None


def _figure(spread: Spread | None) -> str:
    if spread is None:
        return NOTHING
    if spread.least == spread.most:
        return _number(spread.median)
    return f"{_number(spread.median)} ({_number(spread.least)} to {_number(spread.most)})"


def _ratio(spread: Spread | None) -> str:
    return f"{spread.median:,.2f}" if spread else NOTHING


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _drawn(sheet: Sheet) -> Table:
    table = Table(title=sheet.title, title_justify="left")
    for index, name in enumerate(sheet.header):
        table.add_column(name, justify="left" if index == 0 else "right", no_wrap=True)
    for row in sheet.rows:
        table.add_row(*row)
    return table


def _marked_down(sheet: Sheet) -> str:
    rules = ["---", *("---:" for _ in sheet.header[1:])]
    lines = [f"| {' | '.join(cells)} |" for cells in (sheet.header, rules, *sheet.rows)]
    return "\n".join([f"**{sheet.title}**", "", *lines])
