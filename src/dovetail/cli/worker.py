"""The command that runs a worker process."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated

import typer

from dovetail.cli.options import DocketName, Tasks, Url
from dovetail.observe.formats import LogFormat, LogLevel


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
    healthcheck_port: Annotated[
        int | None,
        typer.Option(
            help="Answer for the worker's health on this port.",
            envvar="DOVETAIL_WORKER_HEALTHCHECK_PORT",
            min=0,
            max=65535,
        ),
    ] = None,
    healthcheck_patience: Annotated[
        float,
        typer.Option(
            help="Seconds that the claim loop may stand still.", envvar="DOVETAIL_WORKER_HEALTHCHECK_PATIENCE", min=1
        ),
    ] = 30,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            help="Show metrics to Prometheus on this port.", envvar="DOVETAIL_WORKER_METRICS_PORT", min=0, max=65535
        ),
    ] = None,
    enable_internal_instrumentation: Annotated[
        bool,
        typer.Option(
            help="Let traces show what the worker itself asks of the store.",
            envvar="DOVETAIL_WORKER_ENABLE_INTERNAL_INSTRUMENTATION",
        ),
    ] = False,
    logging_level: Annotated[
        LogLevel,
        typer.Option(help="What is logged, and above.", envvar="DOVETAIL_LOGGING_LEVEL", case_sensitive=False),
    ] = LogLevel.INFO,
    logging_format: Annotated[
        LogFormat | None,
        typer.Option(
            help="How it is logged; rich at a terminal, else plain.",
            envvar="DOVETAIL_LOGGING_FORMAT",
            case_sensitive=False,
        ),
    ] = None,
) -> None:
    """Run a worker until it is told to stop (SIGTERM or SIGINT; a second one hurries it)."""
    from dovetail.observe.logs import set_up_logging
    from dovetail.worker import Worker

    set_up_logging(logging_level, logging_format)
    asyncio.run(
        Worker.run(
            docket, url, name, concurrency, timedelta(seconds=lease), until_finished=until_finished, tasks=tasks,
            queues=queue or (), shutdown_grace=timedelta(seconds=grace), once=once,
            middleware=middleware or (), enable_internal_instrumentation=enable_internal_instrumentation,
            healthcheck_port=healthcheck_port, healthcheck_patience=timedelta(seconds=healthcheck_patience),
            metrics_port=metrics_port,
        )
    )  # fmt: skip
