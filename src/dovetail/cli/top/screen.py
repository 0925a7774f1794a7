"""What a view looks like: a header, four panes that share the height, and a line that says which keys there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dovetail.cli.output import shown
from dovetail.cli.top.model import QueueRow, RunRow, View, WorkerRow
from dovetail.cli.top.selection import Pane, Row, Selection, rows_of

KEYS = "↑↓ select   tab pane   p pause   r retry   c cancel   ? help   q quit"
HELP = """\
↑ ↓ j k      select a row                 p   pause or resume the selected queue
tab f ← →    go to another pane           r   run the selected failure again
? escape     this page, and back          c   cancel the selected running run
q Ctrl-C     quit

in/s and out/s are runs that came and that workers have ended, per second, over
the last ten seconds or so. What workers have done they say with their
heartbeats. Waiting runs wait for others; parked ones for a limit. A glance is
bounded: of what runs and of what failed some are shown, and of what is over at
most 100,000 records are counted."""

COLUMNS: dict[Pane, tuple[tuple[str, int, bool], ...]] = {
    # name, share of the width that is left over (0: as wide as it must be), whether it is a number
    Pane.QUEUES: (
        ("queue", 3, False), ("queued", 0, True), ("later", 0, True), ("running", 0, True), ("oldest", 0, True),
        ("in/s", 0, True), ("out/s", 0, True), ("paused", 2, False),
    ),
    Pane.WORKERS: (
        ("worker", 3, False), ("host", 2, False), ("queues", 2, False), ("running", 0, True), ("seen", 0, True),
        ("up", 0, True),
    ),
    Pane.RUNS: (("key", 3, False), ("task", 2, False), ("queue", 1, False), ("worker", 2, False), ("for", 0, True)),
    Pane.FAILURES: (("key", 2, False), ("task", 2, False), ("ago", 0, True), ("error", 4, False)),
}  # fmt: skip
NAME = 10
"""What is left of the names of rows in a narrow terminal: they come before numbers, which are cut off at the right."""
FEW = 3
"""Rows that every pane is given before any is given more."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is shown beside the view: which docket, what was just done, what is wrong, what is asked."""

    docket: str
    store: str
    message: str = ""
    trouble: str = ""
    question: str = ""
    has_keys: bool = True
    shows_help: bool = False


def screen(view: View | None, selection: Selection, around: Surroundings, height: int) -> RenderableType:
    """Everything, in so many lines."""
    top = [_title(view, around), _totals(view)]
    foot = _foot(around)
    if around.shows_help:
        return Group(*top, Text(), Text(HELP), Text(), foot)
    if view is None:
        return Group(*top, Text(), foot)
    counts = [len(rows_of(view, pane)) for pane in Pane]
    room = allotted(counts, list(Pane).index(selection.pane), height - len(top) - 1)
    panes = [part for pane, rows in zip(Pane, room, strict=True) for part in _pane(view, pane, selection, rows)]
    return Group(*top, *panes, foot)


def snapshot(view: View, around: Surroundings) -> RenderableType:
    """Everything once, for paper and pipes."""
    parts: list[RenderableType] = [_title(view, around), _totals(view)]
    for pane in Pane:
        if rows := rows_of(view, pane):
            parts += [Text(), Text(f"{pane} ({len(rows)})"), _table(pane, rows)]
    return Group(*parts)


def allotted(counts: Sequence[int], focus: int, height: int) -> list[int]:
    """How many rows each pane has: a few for each, then what the selected one needs, then more for the others. Without
    room even for the titles, all but the selected pane are left out (-1)."""
    left = height - len(counts)
    if left < 0:
        return [0 if n == focus else -1 for n in range(len(counts))]
    rooms = [0] * len(counts)
    each = [focus, *(n for n in range(len(counts)) if n != focus)]
    for n in [*each * FEW, *[focus] * height, *each * height]:
        cost = 1 if rooms[n] else 2  # with the first row come the names of the columns
        if rooms[n] < counts[n] and cost <= left:
            rooms[n] += 1
            left -= cost
    return rooms


# Parts


def _title(view: View | None, around: Surroundings) -> Text:
    at = "" if view is None else view.at.astimezone().strftime("%H:%M:%S")
    return _line(Text.assemble((shown(around.docket), "bold"), f"  {shown(around.store)}  ", (at, "dim")))


def _totals(view: View | None) -> Text:
    if view is None:
        return Text("looking …", style="dim")
    parts = [
        f"{view.queued:,} queued", f"{view.scheduled:,} later", f"{view.running:,} running",
        f"{view.waiting:,} waiting", f"{view.parked:,} parked", f"{view.kept:,} kept",
    ]  # fmt: skip
    if view.ended_per_second is not None:
        parts.append(f"{_rate(view.ended_per_second)}/s ended")
    if view.failed_per_second:
        parts.append(f"{_rate(view.failed_per_second)}/s failed")
    return _line(Text("  ".join(parts)))


def _foot(around: Surroundings) -> Text:
    if around.question:
        return _line(Text(shown(around.question), style="bold yellow"))
    if around.trouble:
        return _line(Text(shown(around.trouble), style="bold red"))
    if around.message:
        return _line(Text(shown(around.message), style="green"))
    return _line(Text(KEYS if around.has_keys else "Ctrl-C quits", style="dim"))


def _line(text: Text) -> Text:
    text.no_wrap = True
    text.overflow = "ellipsis"
    return text


def _pane(view: View, pane: Pane, selection: Selection, room: int) -> list[RenderableType]:
    if room < 0:
        return []
    rows = rows_of(view, pane)
    is_here = pane is selection.pane
    title = _line(Text(f"{pane} ({len(rows)})", style="bold reverse" if is_here else "bold"))
    if not room:
        return [title]
    chosen = selection.place(view, pane)
    first = min(max(chosen - room + 1, 0), len(rows) - room)
    return [title, _table(pane, rows[first : first + room], chosen - first if is_here else None)]


def _table(pane: Pane, rows: Sequence[Row], chosen: int | None = None) -> Table:
    table = Table(box=None, expand=True, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False)
    for place, (name, share, is_number) in enumerate(COLUMNS[pane]):
        table.add_column(
            name, ratio=share or None, justify="right" if is_number else "left", no_wrap=True, overflow="ellipsis",
            min_width=4 if place else NAME,
        )  # fmt: skip
    for n, row in enumerate(rows):
        style = "reverse" if n == chosen else None
        table.add_row(*(Text(shown(cell)) for cell in _cells(row)), style=style)
    return table


def _cells(row: Row) -> list[str]:
    if isinstance(row, QueueRow):
        paused = (row.why or "yes") if row.is_paused else ""
        return [
            row.name, f"{row.queued:,}", f"{row.scheduled:,}", f"{row.running:,}", _span(row.oldest),
            _rate(row.incoming), _rate(row.outgoing), paused,
        ]  # fmt: skip
    if isinstance(row, WorkerRow):
        seen = _span(row.seen) if row.is_alive else f"{_span(row.seen)} DEAD"
        queues = ", ".join(row.queues) or "all"
        return [row.name, row.host, queues, f"{row.running}/{row.concurrency}", seen, _span(row.up)]
    return _cells_of_run(row)


def _cells_of_run(row: RunRow) -> list[str]:
    if row.state.is_terminal:
        return [row.key, row.task, _span(row.age), row.error]
    return [row.key, row.task, row.queue, row.worker, _span(row.age)]


def _rate(rate: float | None) -> str:
    if rate is None:
        return "-"
    return f"{rate:,.0f}" if rate >= 10 or not rate else f"{rate:.1f}"


def _span(span: timedelta | None) -> str:
    """A duration in four characters or so."""
    if span is None:
        return "-"
    seconds = span.total_seconds()
    if seconds < 10:
        return f"{seconds:.1f}s"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def as_data(view: View, around: Surroundings) -> dict[str, Any]:
    """The view for programs."""
    return {"docket": around.docket, "store": around.store, **{name: getattr(view, name) for name in View.__slots__}}
