"""The commands that schedule calls."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dovetail.cli.opening import on_docket
from dovetail.cli.options import NO_TASKS, AsJson, DocketName, Tasks, Url, after, duration, moment
from dovetail.cli.output import print_json, refuse, shown
from dovetail.cli.reading import arguments_in, fitted, known_task, object_in

if TYPE_CHECKING:
    from dovetail.docket import Docket
    from dovetail.execution import Execution

STRUCK = "the call is stricken, and was not scheduled; see `dovetail strikes ls`"


def add(
    task: Annotated[str, typer.Argument(help="The task's name.")],
    args: Annotated[
        str, typer.Option("--args", "-a", help="The arguments: a JSON object, or an array of positional ones.")
    ] = "{}",
    delay: Annotated[
        timedelta | None,
        typer.Option("--in", parser=duration, metavar="DURATION", help="How long from now: 30s, 5m, 2h, 1d."),
    ] = None,
    at: Annotated[datetime | None, typer.Option("--at", parser=moment, metavar="TIME", help="When it is due.")] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", "--unique-key", help="What the run is called.")] = None,
    queue: Annotated[str | None, typer.Option("--queue", "-q", help="In which queue.")] = None,
    priority: Annotated[int | None, typer.Option("--priority", "-p", help="Higher goes first.")] = None,
    group: Annotated[str | None, typer.Option(help="Groups of a queue take turns.")] = None,
    wait_for: Annotated[
        list[str] | None, typer.Option("--after", metavar="KEY", help="The key of a run to wait for; may be repeated.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", help="A label; may be repeated.")] = None,
    attempts: Annotated[
        int | None, typer.Option("--attempts", "--max-attempts", min=1, help="How often it is tried, at most.")
    ] = None,
    timeout: Annotated[
        timedelta | None,
        typer.Option("--timeout", parser=duration, metavar="DURATION", help="How long an attempt may take."),
    ] = None,
    metadata: Annotated[str | None, typer.Option(help="What to note of it: a JSON object.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Take the place of what waits under the key.")] = False,
    tasks: Tasks = NO_TASKS,
    as_json: AsJson = False,
    docket: DocketName = None,
    url: Url = None,
) -> None:
    """Schedule a call of a task, and print its key. Exit code 3 if the key was taken or the call is stricken."""
    when = _when(delay, at)
    positional, named = arguments_in(args)
    if replace and key is None:
        raise typer.BadParameter("--replace needs the --key of what is to be replaced")
    chosen = {
        "queue": queue, "priority": priority, "group": group, "after": wait_for, "tags": tag, "attempts": attempts,
        "timeout": timeout, "metadata": None if metadata is None else object_in(metadata, "--metadata"),
    }  # fmt: skip
    options: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}

    async def work(docket: Docket) -> Execution[Any]:
        known = await known_task(docket, task)
        fitting, by_name = fitted(known, positional, named)
        if replace:
            assert key is not None  # noqa: S101 - refused above
            return await docket.replace(task, when or datetime.now(UTC), key, **options)(*fitting, **by_name)
        return await docket.add(task, when, key, **options)(*fitting, **by_name)

    _tell(on_docket(work, url, docket, tasks, may_make=True), as_json)


def _when(delay: timedelta | None, at: datetime | None) -> datetime | None:
    if delay is not None and at is not None:
        raise typer.BadParameter("--in and --at both say when it is due; give one of them")
    return at if delay is None else after(delay)


def _tell(execution: Execution[Any], as_json: bool) -> None:
    """What became of the call: its key alone, so that a script can go on with it."""
    if as_json:
        print_json(
            {
                "key": execution.key, "id": execution.id, "task": execution.function_name,
                "disposition": execution.disposition, "due": execution.when,
            }
        )  # fmt: skip
    if execution.disposition == "struck":
        refuse(STRUCK)
    if execution.disposition == "already_scheduled":
        refuse(f"the key {execution.key!r} is taken by a run that waits or runs; see `dovetail show`")
    if not as_json:
        typer.echo(shown(execution.key))


# Tasks to try a set-up with

Delay = Annotated[timedelta, typer.Option(parser=duration, metavar="DURATION", help="How long from now.")]


def trace(
    message: Annotated[str, typer.Argument(help="What to log.")] = "Howdy!",
    delay: Delay = timedelta(),
    as_json: AsJson = False,
    docket: DocketName = None,
    url: Url = None,
) -> None:
    """Add a task that logs a message."""
    _try_out("trace", message, delay, docket, url, as_json)


def fail(
    message: Annotated[str, typer.Argument(help="What to fail with.")] = "Howdy!",
    delay: Delay = timedelta(),
    as_json: AsJson = False,
    docket: DocketName = None,
    url: Url = None,
) -> None:
    """Add a task that fails with a message, and is tried twice."""
    _try_out("fail", message, delay, docket, url, as_json)


def sleep(
    seconds: Annotated[float, typer.Argument(min=0, help="How long to sleep.")] = 1.0,
    delay: Delay = timedelta(),
    as_json: AsJson = False,
    docket: DocketName = None,
    url: Url = None,
) -> None:
    """Add a task that sleeps for some seconds."""
    _try_out("sleep", seconds, delay, docket, url, as_json)


def _try_out(task: str, argument: object, delay: timedelta, docket: str | None, url: str | None, as_json: bool) -> None:
    async def work(docket: Docket) -> tuple[Execution[Any], str]:
        return await docket.add(task, after(delay) if delay else None)(argument), docket.name

    execution, name = on_docket(work, url, docket, may_make=True)
    if as_json or execution.disposition == "struck":
        _tell(execution, as_json)
    else:
        typer.echo(f"Added {task} task {execution.key!r} to the docket {name!r}")
