"""The command that runs a worker process."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from dovetail.cli.options import STANDARD_TASKS, DocketName, Tasks, Url, duration, patience
from dovetail.cli.processes import (
    MaxAge,
    MaxMemory,
    MaxRuns,
    Processes,
    Reload,
    is_supervised,
    own_port,
    refuse_ports,
    supervise,
)
from dovetail.observe.formats import LogFormat, LogLevel

OfRoost = Annotated[
    float | None, typer.Option(help="Of roost's; nothing is polled or claimed ahead here.", hidden=True)
]


def worker(
    tasks: Tasks = STANDARD_TASKS,
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
    queues: Annotated[str | None, typer.Option(help="Queues to take, separated by commas.")] = None,
    ageing: Annotated[
        timedelta | None,
        typer.Option(
            parser=patience, metavar="DURATION", help="How long a run is due until its priority counts as one more."
        ),
    ] = None,
    redelivery_timeout: Annotated[
        timedelta,
        typer.Option(
            "--lease",
            "--redelivery-timeout",
            parser=duration,
            metavar="DURATION",
            help="How long until a silent worker's runs start elsewhere.",
            envvar="DOVETAIL_WORKER_REDELIVERY_TIMEOUT",
        ),
    ] = timedelta(seconds=10),
    grace: Annotated[
        timedelta,
        typer.Option(parser=duration, metavar="DURATION", help="How long running work has to end when stopped."),
    ] = timedelta(seconds=25),
    reconnection_delay: Annotated[
        timedelta,
        typer.Option(
            parser=duration,
            metavar="DURATION",
            help="How long to wait before a lost store is tried again.",
            envvar="DOVETAIL_WORKER_RECONNECTION_DELAY",
        ),
    ] = timedelta(seconds=5),
    minimum_check_interval: Annotated[
        timedelta, typer.Option(parser=duration, metavar="DURATION", help="Of docket's; nothing is polled here.")
    ] = timedelta(milliseconds=100),
    scheduling_resolution: Annotated[
        timedelta, typer.Option(parser=duration, metavar="DURATION", help="Of docket's; nothing is polled here.")
    ] = timedelta(milliseconds=250),
    poll_interval: OfRoost = None,
    prefetch: OfRoost = None,
    message_batch: Annotated[
        int,
        typer.Option(min=1, help="How many runs are claimed in one call.", envvar="DOVETAIL_WORKER_MESSAGE_BATCH"),
    ] = 1000,
    schedule_automatic_tasks: Annotated[
        bool,
        typer.Option(
            "--schedule-automatic-tasks/--no-schedule-automatic-tasks",
            " /--no-cron",
            help="Schedule the perpetual tasks that start by themselves.",
            envvar="DOVETAIL_WORKER_SCHEDULE_AUTOMATIC_TASKS",
        ),
    ] = True,
    enable_internal_instrumentation: Annotated[
        bool,
        typer.Option(
            help="Let traces show what the worker itself asks of the store.",
            envvar="DOVETAIL_WORKER_ENABLE_INTERNAL_INSTRUMENTATION",
        ),
    ] = False,
    fallback_task: Annotated[
        str | None,
        typer.Option(help="What runs for a task that is not known, as module:member.", envvar="DOVETAIL_FALLBACK_TASK"),
    ] = None,
    dependencies: Annotated[
        str | None,
        typer.Option(help="Dependencies around every task, as module:member.", envvar="DOVETAIL_WORKER_DEPENDENCIES"),
    ] = None,
    middleware: Annotated[
        str | None, typer.Option(help="A list of middleware, as module:member.", envvar="DOVETAIL_MIDDLEWARE")
    ] = None,
    until_finished: Annotated[bool, typer.Option("--until-finished", help="Stop once nothing is left to do.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Run what is due now, then stop.")] = False,
    processes: Processes = 1,
    max_runs: MaxRuns = None,
    max_age: MaxAge = None,
    max_memory: MaxMemory = None,
    reload: Reload = False,
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
        timedelta,
        typer.Option(
            parser=patience,
            metavar="DURATION",
            help="How long the claim loop may stand still.",
            envvar="DOVETAIL_WORKER_HEALTHCHECK_PATIENCE",
        ),
    ] = timedelta(seconds=30),
    metrics_port: Annotated[
        int | None,
        typer.Option(
            help="Show metrics to Prometheus on this port.", envvar="DOVETAIL_WORKER_METRICS_PORT", min=0, max=65535
        ),
    ] = None,
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
    """Run a worker until it is told to stop. By SIGTERM or SIGINT; a second one hurries it."""
    import os

    from dovetail.errors import InvalidArgument, InvalidType
    from dovetail.observe.logs import set_up_logging
    from dovetail.queues import Queue, taken
    from dovetail.worker import Worker
    from dovetail.worker.leaving import run_and_leave

    try:
        chosen = [Queue.parse(each) for each in (*(queue or ()), *_names(queues))]
        taken(chosen)
    except (InvalidArgument, InvalidType) as error:
        raise typer.BadParameter(str(error), param_hint="--queue") from None
    set_up_logging(logging_level, logging_format)
    if is_supervised():
        name = name and f"{name}#{os.getpid()}"
        healthcheck_port, metrics_port = own_port(healthcheck_port), own_port(metrics_port)
    elif processes > 1 or reload:
        refuse_ports(processes, {"--healthcheck-port": healthcheck_port, "--metrics-port": metrics_port})
        raise typer.Exit(supervise(url, processes, grace, tasks if reload else None))
    run_and_leave(
        Worker.run(
            docket, url, name, concurrency, redelivery_timeout, reconnection_delay, minimum_check_interval,
            scheduling_resolution, schedule_automatic_tasks, enable_internal_instrumentation,
            until_finished=until_finished, tasks=tasks, fallback_task=fallback_task, message_batch=message_batch,
            dependencies=dependencies, queues=chosen, shutdown_grace=grace, once=once, middleware=middleware or (),
            ageing=ageing, max_runs=max_runs, max_age=max_age, max_memory=max_memory,
            healthcheck_port=healthcheck_port, healthcheck_patience=healthcheck_patience, metrics_port=metrics_port,
        )
    )  # fmt: skip


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]
