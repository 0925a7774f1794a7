"""Options of `dovetail worker` about processes: how many there are, and how long each of them lives."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import combinations
from typing import Annotated

import typer

from dovetail.cli.options import duration

Processes = Annotated[
    int,
    typer.Option(
        "--processes", "--workers", min=1, envvar="DOVETAIL_WORKER_PROCESSES",
        help="How many worker processes to keep running.",
    ),
]  # fmt: skip
MaxRuns = Annotated[
    int | None,
    typer.Option(help="Runs after which a process makes room for another.", envvar="DOVETAIL_WORKER_MAX_RUNS", min=1),
]
MaxAge = Annotated[
    timedelta | None,
    typer.Option(parser=duration, metavar="DURATION", help="How long until it does.", envvar="DOVETAIL_WORKER_MAX_AGE"),
]
MaxMemory = Annotated[
    int | None,
    typer.Option(help="MiB of memory with which it does.", envvar="DOVETAIL_WORKER_MAX_MEMORY", min=1),
]
Reload = Annotated[bool, typer.Option(help="Start anew when Python files change.", envvar="DOVETAIL_WORKER_RELOAD")]


def is_supervised() -> bool:
    """Whether this process was started by a supervisor."""
    from dovetail.worker.membership import LINE

    return LINE in os.environ


def own_port(port: int | None) -> int | None:
    """The port of a process that a supervisor has started: that of the command line is for its first place."""
    from dovetail.observe.serving import PLACE

    return port and port + int(os.environ.get(PLACE, "0"))


def refuse_ports(processes: int, given: Mapping[str, int | None]) -> None:
    """Each process has the port after that of the one before: these have to exist, and to be nobody else's."""
    from dovetail.observe.serving import refuse_taken

    ranges = {name: range(port, port + processes) for name, port in given.items() if port}
    for name, ports in ranges.items():
        if ports[-1] > 65535:
            raise typer.BadParameter(f"{processes} processes need as many ports from {ports[0]} on", param_hint=name)
    for (one, ports), (other, others) in combinations(ranges.items(), 2):
        if set(ports) & set(others):
            raise typer.BadParameter(
                f"{processes} processes need as many ports each, and those from {ports[0]} and {others[0]} on overlap",
                param_hint=f"{one}, {other}",
            )
    for ports in ranges.values():
        refuse_taken(ports)


def supervise(url: str | None, processes: int, grace: timedelta, watching: Sequence[str] | None) -> int:
    """Run the same command in so many processes; the exit code. With tasks to watch, anew at each change of files."""
    import asyncio

    from dovetail.errors import InvalidArgument
    from dovetail.worker.reloading import changes, watched
    from dovetail.worker.supervisor import Supervisor

    if processes > 1 and (url or "").startswith("memory:"):
        raise InvalidArgument(
            "--processes: a docket in memory is not shared by processes; give a --url of a file or server"
        )

    async def run() -> int:
        supervisor = Supervisor(
            [sys.executable, "-m", "dovetail", *sys.argv[1:]], processes, grace=grace,
            changes=None if watching is None else changes(watched(watching)),
        )  # fmt: skip
        return await supervisor.run()

    return asyncio.run(run())
