"""The entry point and the first commands: a worker process, and the version."""

from __future__ import annotations

import asyncio
import logging
import sys
from datetime import timedelta
from importlib.metadata import version as installed_version
from typing import Annotated

import typer

from dovetail.cli.migrate import migrate
from dovetail.errors import DovetailError

app = typer.Typer(help="Dovetail runs Python functions in the background.", no_args_is_help=True, add_completion=True)


@app.callback()
def commands() -> None:
    """Dovetail runs Python functions in the background, on the database you already have."""


@app.command()
def version() -> None:
    """Print the installed version."""
    typer.echo(installed_version("dovetail-tasks"))


@app.command()
def worker(
    tasks: Annotated[
        list[str], typer.Option(help="A collection of tasks, as module:member.", envvar="DOVETAIL_TASKS")
    ] = ["dovetail.tasks:standard_tasks"],  # noqa: B006 - typer reads it, nobody writes it
    docket: Annotated[str | None, typer.Option(help="The docket's name.", envvar="DOVETAIL_NAME")] = None,
    url: Annotated[str | None, typer.Option(help="Where the docket is kept.", envvar="DOVETAIL_URL")] = None,
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
    logging_level: Annotated[str, typer.Option(envvar="DOVETAIL_LOGGING_LEVEL")] = "INFO",
) -> None:
    """Run a worker until it is told to stop (SIGTERM or SIGINT; a second one hurries it)."""
    from dovetail.worker import Worker

    logging.basicConfig(level=logging_level.upper(), format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    sys.path.insert(0, "")  # a module in the current directory can be named
    asyncio.run(
        Worker.run(
            docket, url, name, concurrency, timedelta(seconds=lease), until_finished=until_finished, tasks=tasks,
            queues=queue or (), shutdown_grace=timedelta(seconds=grace), once=once,
            middleware=middleware or (),
        )
    )  # fmt: skip


app.command(name="migrate")(migrate)


def main() -> None:
    """Run a command. What the user can mend is one line, not a traceback."""
    try:
        app()
    except (DovetailError, ModuleNotFoundError) as error:
        typer.echo(f"dovetail: {error}", err=True)
        sys.exit(1)
