"""The commands that change what is there: cancel, retry, clear, pause, resume."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dovetail.cli.one_by_one import Words, each_of
from dovetail.cli.opening import on_docket
from dovetail.cli.options import (
    NO_TASKS,
    AsJson,
    DocketName,
    For,
    Owner,
    Queues,
    Reason,
    TaskNames,
    Tasks,
    Until,
    Url,
    Yes,
    end_of,
)
from dovetail.cli.output import NOT_FOUND, accounted, confirm, hint, print_json, refuse, shown
from dovetail.cli.reading import arguments_in, fitted, known_task
from dovetail.cli.runs import run_of

if TYPE_CHECKING:
    from dovetail.docket import Docket
    from dovetail.model import Cancelled

Keys = Annotated[list[str], typer.Argument(help="The key of a run; several may be given.")]
QueueName = Annotated[str, typer.Argument(help="The queue's name.")]

DONE = ("cancelled", "stopping")
MEANING = {
    "cancelled": "cancelled",
    "stopping": "is running, and was asked to stop",
    "over": "had ended already",
    "unknown": "is unknown; see `dovetail ls`",
}


def cancel(keys: Keys, as_json: AsJson = False, docket: DocketName = None, url: Url = None) -> None:
    """Cancel what waits under a key, or ask it to stop if it runs. Exit code 3 if there was nothing to cancel."""

    async def work(docket: Docket) -> list[Cancelled]:
        return await docket.engine.cancel(keys)

    answers = dict(zip(keys, on_docket(work, url, docket), strict=True))
    if as_json:
        print_json(answers)
    for key, answer in answers.items() if not as_json else ():
        if answer in DONE:
            typer.echo(f"{shown(key)} {MEANING[answer]}")
        else:
            hint(f"the run {key!r} {MEANING[answer]}")
    if not all(answer in DONE for answer in answers.values()):
        raise typer.Exit(NOT_FOUND)


def retry(
    keys: Keys,
    args: Annotated[
        str | None, typer.Option("--args", help="Other arguments: a JSON object, or an array of positional ones.")
    ] = None,
    tasks: Tasks = NO_TASKS,
    as_json: AsJson = False,
    docket: DocketName = None,
    url: Url = None,
) -> None:
    """Run again what is over, at once and with a clean slate. Exit code 3 if one of them cannot go again."""
    given = None if args is None else arguments_in(args)

    async def again(docket: Docket, key: str) -> None:
        positional, named = (None, None)
        if given is not None:
            run = await run_of(docket, key)
            positional, named = fitted(await known_task(docket, run.task), *given)
        await docket.retry(key, args=positional, kwargs=named)

    each_of(keys, again, Words("retried", "{} goes again"), url, docket, tasks, as_json=as_json)


def clear(
    queue: Queues = None,
    task: TaskNames = None,
    yes: Yes = False,
    as_json: AsJson = False,
    docket: DocketName = None,
    url: Url = None,
) -> None:
    """Cancel everything that waits, or all of a queue or a task. What runs goes on, and schedules stay."""
    confirm(f"Cancel everything that waits{_among(queue, task)}", yes=yes, must=False)

    async def work(docket: Docket) -> tuple[str, int]:
        with accounted("cancelled") as tell:
            return docket.name, await docket.clear(tasks=task or (), queues=queue or (), progress=tell)

    name, cleared = on_docket(work, url, docket)
    if as_json:
        print_json({"docket": name, "cleared": cleared})
    else:
        typer.echo(f"Cleared {cleared} tasks from docket {name!r}")  # as docket says it, for scripts that read it


def _among(queues: list[str] | None, tasks: list[str] | None) -> str:
    where = f" in {', '.join(queues)}" if queues else ""
    return f"{where} of {', '.join(tasks)}" if tasks else where


def pause(
    queue: QueueName,
    reason: Reason = None,
    owner: Owner = None,
    until: Until = None,
    lasting: For = None,
    as_json: AsJson = False,
    docket: DocketName = None,
    url: Url = None,
) -> None:
    """Let nothing of a queue start. Until it is resumed or the time is over; what runs goes on."""
    end = end_of(until, lasting)

    async def work(docket: Docket) -> list[str]:
        known = [each.name for each in await docket.queues()]
        await docket.pause(queue, reason, owner, end)
        return known

    known = on_docket(work, url, docket, may_make=True)
    if as_json:
        print_json({"queue": queue, "reason": reason, "owner": owner, "until": end})
    else:
        told = "" if end is None else f" until {end.astimezone():%Y-%m-%d %H:%M:%S %Z}"
        typer.echo(f"{shown(queue)} is paused{told}")
    if queue not in known:
        hint(f"the queue {queue!r} holds no runs at present{_or_rather(queue, known)}")


def resume(queue: QueueName, as_json: AsJson = False, docket: DocketName = None, url: Url = None) -> None:
    """Let a paused queue go on. Exit code 3 if it was not paused."""

    async def work(docket: Docket) -> list[Any]:
        found = await docket.queues()
        await docket.resume(queue)
        return found

    found = on_docket(work, url, docket)
    paused = [each.name for each in found if each.is_paused]
    if as_json:
        print_json({"queue": queue, "resumed": queue in paused})
    if queue not in paused:
        known = ", ".join(map(repr, paused)) or "none is"
        refuse(f"the queue {queue!r} was not paused; paused: {known}")
    if not as_json:
        typer.echo(f"{shown(queue)} goes on")


def _or_rather(name: str, known: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known)
    return f"; did you mean {near[0]!r}?" if near else ""
