"""The command that runs a worker process."""

from __future__ import annotations

import logging
import os
from datetime import timedelta
from typing import Annotated

import typer

from dovetail.cli.options import DocketName, Tasks, Url
from dovetail.cli.processes import (
    MaxAge,
    MaxMemory,
    MaxRuns,
    Processes,
    Reload,
    is_supervised,
    supervise,
)


def worker(
    tasks: Tasks = ["dovetail.tasks:standard_tasks"],  # noqa: B006 - typer reads it, nobody writes it
    docket: DocketName = None,
    url: Url = None,
    name: Annotated[str | None, typer.Option(help="The worker's name.", envvar="DOVETAIL_WORKER_NAME")] = None,
    concurrency: Annotated[
        int, typer.Option(help="How many runs at a time.", envvar="DOVETAIL_WORKER_CONCURRENCY", min=1)
    ] = 10,
    queue: Annotated[list[str] | None, typer.Option(help="A queue to take; all, if none is named.")] = None,
    lease: Annotated[float, typer.Option(help="Seconds until a silent worker's runs start elsewhere.")] = 10,
    grace: Annotated[float, typer.Option(help="Seconds that running work has to end when stopped.")] = 25,
    middleware: Annotated[
        str | None, typer.Option(help="A list of middleware, as module:member.", envvar="DOVETAIL_MIDDLEWARE")
    ] = None,
    until_finished: Annotated[bool, typer.Option(help="Stop once nothing is left to do.")] = False,
    once: Annotated[bool, typer.Option(help="Run what is due now, then stop.")] = False,
    processes: Processes = 1,
    max_runs: MaxRuns = None,
    max_age: MaxAge = None,
    max_memory: MaxMemory = None,
    reload: Reload = False,
    logging_level: Annotated[str, typer.Option(envvar="DOVETAIL_LOGGING_LEVEL")] = "INFO",
) -> None:
    """Run a worker until it is told to stop (SIGTERM or SIGINT; a second one hurries it)."""
    from dovetail.worker import Worker
    from dovetail.worker.leaving import run_and_leave

    logging.basicConfig(level=logging_level.upper(), format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    if is_supervised():
        name = name and f"{name}#{os.getpid()}"
    elif processes > 1 or reload:
        raise typer.Exit(supervise(url, processes, grace, tasks if reload else None))
    run_and_leave(
        Worker.run(
            docket, url, name, concurrency, timedelta(seconds=lease), until_finished=until_finished, tasks=tasks,
            queues=queue or (), shutdown_grace=timedelta(seconds=grace), once=once,
            middleware=middleware or (), max_runs=max_runs,
            max_age=None if max_age is None else timedelta(seconds=max_age), max_memory=max_memory,
        )
    )  # fmt: skip
