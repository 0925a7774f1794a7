"""The command that runs a worker process."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Annotated

import typer

from dovetail.cli.options import DocketName, Tasks, Url


def worker(
    tasks: Tasks = ["dovetail.tasks:standard_tasks"],  # noqa: B006 - typer reads it, nobody writes it
    docket: DocketName = None,
    url: Url = None,
    name: Annotated[str | None, typer.Option(help="The worker's name.", envvar="DOVETAIL_WORKER_NAME")] = None,
    concurrency: Annotated[
        int, typer.Option(help="How many runs at a time.", envvar="DOVETAIL_WORKER_CONCURRENCY", min=1)
    ] = 10,
    queue: Annotated[
        list[str] | None,
        typer.Option(help="A queue to take, as name, name=weight or name=weight:concurrency; all, if none is named."),
    ] = None,
    ageing: Annotated[
        float | None, typer.Option(help="Seconds that a run is due until its priority counts as one more.", min=0.001)
    ] = None,
    lease: Annotated[float, typer.Option(help="Seconds until a silent worker's runs start elsewhere.")] = 10,
    grace: Annotated[float, typer.Option(help="Seconds that running work has to end when stopped.")] = 25,
    middleware: Annotated[
        str | None, typer.Option(help="A list of middleware, as module:member.", envvar="DOVETAIL_MIDDLEWARE")
    ] = None,
    until_finished: Annotated[bool, typer.Option(help="Stop once nothing is left to do.")] = False,
    once: Annotated[bool, typer.Option(help="Run what is due now, then stop.")] = False,
    logging_level: Annotated[str, typer.Option(envvar="DOVETAIL_LOGGING_LEVEL")] = "INFO",
) -> None:
    """Run a worker until it is told to stop (SIGTERM or SIGINT; a second one hurries it)."""
    from dovetail.errors import InvalidArgument, InvalidType
    from dovetail.queues import Queue, taken
    from dovetail.worker import Worker

    try:
        queues = [Queue.parse(each) for each in queue or ()]
        taken(queues)
    except (InvalidArgument, InvalidType) as error:
        raise typer.BadParameter(str(error), param_hint="--queue") from None
    logging.basicConfig(level=logging_level.upper(), format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    asyncio.run(
        Worker.run(
            docket, url, name, concurrency, timedelta(seconds=lease), until_finished=until_finished, tasks=tasks,
            queues=queues, shutdown_grace=timedelta(seconds=grace), once=once,
            middleware=middleware or (), ageing=None if ageing is None else timedelta(seconds=ageing),
        )
    )  # fmt: skip
