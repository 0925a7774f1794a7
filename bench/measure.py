"""Readings, and what many rounds of them say: medians, and medians of each round's ratio."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles


@dataclass(frozen=True, slots=True)
class Metric:
    """Something a case measures. The name is unique in a run: `drain-1x100`, `latency-p50`."""

    name: str
    title: str
    unit: str
    group: str  # the table it stands in


@dataclass(frozen=True, slots=True)
class Reading:
    metric: Metric
    value: float


@dataclass(frozen=True, slots=True)
class Spread:
    """What a metric was over the rounds."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        known = sorted(values)
        return cls(median(known), known[0], known[-1])


@dataclass(slots=True)
class Results:
    """Every reading of a run on one engine, by metric, system and round."""

    engine: str
    metrics: dict[str, Metric] = field(default_factory=dict)
    _values: dict[tuple[str, str], dict[int, float]] = field(default_factory=lambda: defaultdict(dict))

    def record(self, system: str, turn: int, readings: Iterable[Reading]) -> None:
        for reading in readings:
            self.metrics[reading.metric.name] = reading.metric
            self._values[reading.metric.name, system][turn] = reading.value

    def values(self, metric: str, system: str) -> dict[int, float]:
        """The value of each round in which there was one."""
        return dict(self._values.get((metric, system), {}))

    def spread(self, metric: str, system: str) -> Spread | None:
        values = self.values(metric, system)
        return Spread.of(values.values()) if values else None

    def ratio(self, over: tuple[str, str], under: tuple[str, str]) -> Spread | None:
        """How one (metric, system) compares with another, round by round.

        A round's noise is in both halves of its ratio, and mostly cancels; in a ratio of medians it does not.
        """
        overs, unders = self.values(*over), self.values(*under)
        ratios = [overs[turn] / unders[turn] for turn in overs if unders.get(turn)]
        return Spread.of(ratios) if ratios else None


def rate(stamps: Sequence[int]) -> float:
    """Starts per second, from the first to the last, of stamps in nanoseconds."""
    return (len(stamps) - 1) / ((max(stamps) - min(stamps)) / 1e9)


def percentile(values: Sequence[float], percent: int) -> float:
    return quantiles(values, n=100, method="inclusive")[percent - 1]
