"""Where the user is: in which pane, and on which row of each. Rows are remembered by what they are, not by where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from dovetail.cli.top.model import QueueRow, RunRow, View, WorkerRow

Row = QueueRow | WorkerRow | RunRow


class Pane(StrEnum):
    QUEUES = "queues"
    WORKERS = "workers"
    RUNS = "running"
    FAILURES = "failures"


def rows_of(view: View, pane: Pane) -> Sequence[Row]:
    match pane:
        case Pane.QUEUES:
            return view.queues
        case Pane.WORKERS:
            return view.workers
        case Pane.RUNS:
            return view.runs
        case Pane.FAILURES:
            return view.failures


@dataclass(slots=True)
class Selection:
    pane: Pane = Pane.QUEUES
    chosen: dict[Pane, str] = field(default_factory=dict[Pane, str])

    def switch(self, step: int = 1) -> None:
        panes = list(Pane)
        self.pane = panes[(panes.index(self.pane) + step) % len(panes)]

    def place(self, view: View, pane: Pane) -> int:
        """The place of the row that is selected; the first, if what was selected is gone."""
        places = (n for n, row in enumerate(rows_of(view, pane)) if row.identity == self.chosen.get(pane))
        return next(places, 0)

    def move(self, view: View, step: int) -> None:
        rows = rows_of(view, self.pane)
        if rows:
            place = min(max(self.place(view, self.pane) + step, 0), len(rows) - 1)
            self.chosen[self.pane] = rows[place].identity

    def row(self, view: View, pane: Pane) -> Row | None:
        rows = rows_of(view, pane)
        return rows[self.place(view, pane)] if rows else None
