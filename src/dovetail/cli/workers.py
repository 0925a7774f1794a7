"""The commands that show who works."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from dovetail.cli.opening import on_docket
from dovetail.cli.options import AsJson, DocketName, Url
from dovetail.cli.output import NOT_FOUND, print_json, print_table, refuse
from dovetail.cli.times import now, relative

if TYPE_CHECKING:
    from dovetail.docket import Docket
    from dovetail.model import WorkerInfo

workers = typer.Typer(help="Who works.", invoke_without_command=True)

SHOWN = 5
"""How many of a worker's tasks are named."""


@workers.callback()
def alone(context: typer.Context, as_json: AsJson = False, docket: DocketName = None, url: Url = None) -> None:
    """Who works; without a command, as ls."""
    if context.invoked_subcommand is None:
        ls(as_json, docket, url)


@workers.command("ls")
def ls(as_json: AsJson = False, docket: DocketName = None, url: Url = None) -> None:
    """List the workers heard of lately. What they take, how busy they are and which tasks they know."""

    async def work(docket: Docket) -> Sequence[WorkerInfo]:
        return await docket.workers()

    found = on_docket(work, url, docket)
    _tell(found, as_json, "no worker is running; start one with `dovetail worker`")


@workers.command("for-task")
def for_task(
    task: Annotated[str, typer.Argument(help="The task's name.")],
    as_json: AsJson = False,
    docket: DocketName = None,
    url: Url = None,
) -> None:
    """List the workers that know a task. Exit code 3 if there is none."""

    async def work(docket: Docket) -> Sequence[WorkerInfo]:
        return await docket.task_workers(task)

    found = on_docket(work, url, docket)
    if not found and not as_json:
        refuse(f"no worker that is running knows the task {task!r}; start one with --tasks module:member")
    _tell(found, as_json, "")
    if not found:
        raise typer.Exit(NOT_FOUND)


def _tell(found: Sequence[WorkerInfo], as_json: bool, nobody: str) -> None:
    if as_json:
        print_json(found)
    elif not found:
        typer.echo(nobody)
    else:
        print_table(
            ["NAME", "SEEN", "BUSY", "QUEUES", "TASKS"],
            [
                (
                    each.name, each.last_seen and relative(each.last_seen, now()), f"{each.running}/{each.concurrency}",
                    ", ".join(each.queues) or "all", _some(sorted(each.tasks)),
                )
                for each in found
            ],
        )  # fmt: skip


def _some(names: list[str]) -> str:
    more = f", {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
