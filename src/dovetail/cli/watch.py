"""The command that follows a run until its end."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from datetime import timedelta
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated

import typer

from dovetail.cli.opening import on_docket
from dovetail.cli.options import AsJson, DocketName, Url, duration
from dovetail.cli.output import print_json, refuse, shown
from dovetail.cli.runs import Key, run_data, run_of

if TYPE_CHECKING:
    from dovetail.docket import Docket
    from dovetail.model import Event, Run

CODES = {"completed": 0, "failed": 5, "cancelled": 6}
"""The exit code for each way in which a run can end."""
MARKS = {"completed": "✓", "failed": "✗", "cancelled": "✗"}
BAR = 30
LOOK_AGAIN = 2.0
"""Seconds after which the run is read again, should an event have been lost."""


def watch(
    key: Key,
    timeout: Annotated[
        timedelta | None, typer.Option(parser=duration, metavar="DURATION", help="Give up after this; exit code 3.")
    ] = None,
    as_json: AsJson = False,
    docket: DocketName = None,
    url: Url = None,
) -> None:
    """Follow a run until it ends. Exit code 0 if it completed, 5 if it failed, 6 if it was cancelled."""

    import asyncio

    seconds = None if timeout is None else timeout.total_seconds()

    async def work(docket: Docket) -> Run:
        run = await run_of(docket, key)
        show = Line(docket.name, is_silent=as_json)
        try:
            async with asyncio.timeout(seconds), aclosing(_changes(docket, run)) as changes:
                async for run in changes:
                    show(run)
        except TimeoutError:
            show.end()
            refuse(f"the run {key!r} is still {run.state}")
        show.end()
        return run

    run = on_docket(work, url, docket)
    if as_json:
        print_json(run_data(run))
    raise typer.Exit(CODES[run.state])


async def _changes(docket: Docket, run: Run) -> AsyncGenerator[Run]:
    """The run as it is, and then after every change, until it is over."""
    from dovetail.model import EventKind, RunQuery, Topic

    topics = (Topic(EventKind.STATE, run.key), Topic(EventKind.PROGRESS, run.key))
    # Subscribe first, then read, then wait: an end in between is seen by the read.
    async with docket.engine.watch(*topics) as events:
        event: Event | None = None
        was_there = True
        while True:
            found = (await docket.engine.find(RunQuery(ids=(run.id,), limit=1))).items
            if found:
                run = found[0]
            elif event is not None and event.id == run.id and event.state is not None and event.state.is_terminal:
                run = run.but(state=event.state, error=event.error)  # the record is not kept, only the news
            elif event is None and not was_there:
                refuse(f"the run {run.key!r} is over, and its record is no longer kept")
            was_there = bool(found)
            yield run
            if run.state.is_terminal:
                return
            event = await _next(events)


async def _next(events: AsyncIterator[Event]) -> Event | None:
    import asyncio

    try:
        async with asyncio.timeout(LOOK_AGAIN):
            return await anext(events)
    except TimeoutError:
        return None


class Line:
    """Shows a run: on a terminal as one line that changes, elsewhere as a line for each change."""

    def __init__(self, docket: str, *, is_silent: bool) -> None:
        self._docket = docket
        self._is_silent = is_silent
        self._is_terminal = sys.stdout.isatty()
        self._last = ""

    def __call__(self, run: Run) -> None:
        line = self._of(run)
        if self._is_silent or line == self._last:
            return
        self._last = line
        if self._is_terminal:
            # A line that is wrapped could not be written over.
            typer.echo(f"\r{line[: get_terminal_size().columns - 1]}\x1b[K", nl=False)
        else:
            typer.echo(line)

    def end(self) -> None:
        """Leave the last line in full."""
        if self._is_terminal and self._last:
            typer.echo(f"\r{self._last}\x1b[K")

    def _of(self, run: Run) -> str:
        told = [f"{shown(run.key)} on {shown(self._docket)}:", MARKS.get(run.state, "…"), run.state.value]
        if run.state == "running":
            told += [f"Worker {shown(run.worker)}", *_bar(run)]
        if run.state in ("failed", "cancelled") and run.error:
            told.append(f"Error: {shown(run.error)}")
        return " ".join(told)


def _bar(run: Run) -> list[str]:
    """How far it says it is; nothing before it has said anything."""
    progress = run.progress
    if progress is None or progress.updated is None or progress.total < 1:
        return []
    full = min(BAR, BAR * progress.current // progress.total)
    told = ["█" * full + "░" * (BAR - full), f"{progress.current}/{progress.total}"]
    return [*told, shown(progress.message)] if progress.message else told
