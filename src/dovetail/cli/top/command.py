"""The command itself: live in a terminal, once elsewhere."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Annotated

import typer

from dovetail.cli.options import AsJson, DocketName, Url, duration
from dovetail.cli.output import console, print_json

SHORTEST, LONGEST = timedelta(milliseconds=100), timedelta(hours=1)


def top(
    url: Url = None,
    docket: DocketName = None,
    interval: Annotated[
        timedelta, typer.Option(parser=duration, metavar="DURATION", help="How long between two looks.")
    ] = timedelta(seconds=2),
    once: Annotated[bool, typer.Option("--once", help="Print what is there now, and end.")] = False,
    as_json: AsJson = False,
) -> None:
    """Watch queues, workers, runs and failures, live. Pause, retry and cancel with a key.

    Where standard output is no terminal, it is printed once.
    """
    from rich.console import Console

    from dovetail.cli.opening import on_docket
    from dovetail.cli.top.live import Top, look
    from dovetail.cli.top.model import view_of
    from dovetail.cli.top.screen import Surroundings, as_data, snapshot
    from dovetail.docket import Docket
    from dovetail.engine.registry import redacted

    if not SHORTEST <= interval <= LONGEST:
        raise typer.BadParameter("--interval must be from 100ms to 1h")

    async def show(opened: Docket) -> int:
        store = redacted(opened.url)
        if sys.stdout.isatty() and not once and not as_json:
            return await Top(opened, store, Console(highlight=False), interval.total_seconds()).run()
        view = view_of(await look(opened), None, opened.heartbeat_interval * opened.missed_heartbeats)
        around = Surroundings(opened.name, store)
        if as_json:
            print_json(as_data(view, around))
        else:
            console.print(snapshot(view, around))
        return 0

    try:
        code = on_docket(show, url, docket)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
    raise typer.Exit(code)
