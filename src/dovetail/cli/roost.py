"""roost's names of commands that are called otherwise here. They do the same, and are not listed."""

from __future__ import annotations

from typing import Annotated

import typer

from dovetail.cli import control, failed, sight
from dovetail.cli.migrate import migrate
from dovetail.cli.options import AsJson, DocketName, Queue, Url
from dovetail.cli.output import WRONG_USAGE, refuse

queue = typer.Typer(help="Pause, resume and list queues.", no_args_is_help=True)
queue.command("pause", hidden=True)(control.pause)
queue.command("resume", hidden=True)(control.resume)
queue.command("list", hidden=True)(sight.ls)


def init(
    apply: Annotated[bool, typer.Option("--apply", help="Make the schema, instead of printing it.")] = False,
    url: Url = None,
) -> None:
    """Print the schema as SQL, or make it."""
    migrate(url=url, sql=not apply)


def requeue(
    discarded: Annotated[bool, typer.Option("--discarded", help="All that failed, which must be said.")] = False,
    queue: Queue = None,
    as_json: AsJson = False,
    docket: DocketName = None,
    url: Url = None,
) -> None:
    """Run again what failed, all of it or that of a queue."""
    if not discarded:
        refuse("say --discarded: all that failed goes again", WRONG_USAGE)
    failed.retry(everything=queue is None, queue=queue, yes=True, as_json=as_json, docket=docket, url=url)
