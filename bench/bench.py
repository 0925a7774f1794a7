"""A run of the bench: cases, systems and rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from bench import stores
from bench.cases import Case, Load, Trial
from bench.measure import Results
from bench.system import System
from bench.systems import ENGINES, load


@dataclass(slots=True)
class Bench:
    """A run: all systems take turns within each round, so that the machine's moods meet them alike."""

    cases: Sequence[Case]
    systems: Sequence[str]
    rounds: int
    load: Load
    directory: Path
    console: Console
    failures: list[str] = field(default_factory=list)

    async def run(self, engine: str) -> Results:
        results = Results(engine)
        adapters = self._adapters(engine)
        for turn in range(self.rounds):
            for case in self.cases:
                if turn == 0 or not case.once:
                    for name in _rotated(list(adapters), turn):
                        await self._measure(results, turn, case, name, adapters[name])
        return results

    def _adapters(self, engine: str) -> dict[str, type[System]]:
        adapters: dict[str, type[System]] = {}
        for name in ENGINES[engine]:
            if name not in self.systems:
                continue
            try:
                adapters[name] = load(engine, name)
            except ImportError as error:
                self.failures.append(f"{name} cannot be imported, so it was left out: {error}")
        return adapters

    async def _measure(self, results: Results, turn: int, case: Case, name: str, adapter: type[System]) -> None:
        try:
            with (
                self.console.status(f"round {turn + 1} of {self.rounds}: {case.name}, {name}"),
                stores.shelf(results.engine, self.directory) as shelf,
            ):
                trial = Trial(results.engine, name, adapter, shelf, self.load)
                results.record(name, turn, await case.measure(trial))
        except Exception as error:
            # One system's trouble in one case must not cost the figures of all the others.
            self.failures.append(f"{case.name}, {name}, round {turn + 1}: {type(error).__name__}: {error}")


def _rotated(names: list[str], turn: int) -> list[str]:
    """Nobody goes first in every round."""
    start = turn % len(names) if names else 0
    return names[start:] + names[:start]
