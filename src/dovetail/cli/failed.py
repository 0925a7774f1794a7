"""The commands for what failed: look at it, and run it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dovetail.cli import control
from dovetail.cli.opening import on_docket
from dovetail.cli.options import (
    AsJson,
    Before,
    DocketName,
    ErrorText,
    Group,
    Limit,
    Queue,
    Since,
    TaskName,
    Url,
    Yes,
)
from dovetail.cli.output import WRONG_USAGE, confirm, counting, hint, many, print_json, print_table, refuse
from dovetail.cli.runs import filled, run_data, show
from dovetail.cli.times import now, relative

if TYPE_CHECKING:
    from dovetail.deadletters import Failures
    from dovetail.docket import Docket
    from dovetail.model import Page, Run

failed = typer.Typer(help="What failed: look at it, and run it again.", no_args_is_help=True)
failed.command("show")(show)


@failed.command("ls")
def ls(
    queue: Queue = None,
    task: TaskName = None,
    group: Group = None,
    since: Since = None,
    before: Before = None,
    error: ErrorText = None,
    limit: Limit = 50,
    cursor: Annotated[str | None, typer.Option(help="Go on where an earlier list ended.")] = None,
    as_json: AsJson = False,
    docket: DocketName = None,
    url: Url = None,
) -> None:
    """List the runs that failed and are kept, the newest first. Times are when a run failed."""
    from dovetail.deadletters import Failures, page_of
    from dovetail.model import RunQuery

    meant = Failures(task, queue, group, since, before, error)

    async def work(docket: Docket) -> Page[Run]:
        async def find(query: RunQuery) -> Page[Run]:
            return await page_of(docket.engine, meant, query.limit, query.cursor)

        return await filled(find, RunQuery(limit=limit, cursor=cursor))

    page = on_docket(work, url, docket)
    if as_json:
        print_json({"runs": [run_data(run) for run in page], "cursor": page.cursor})
    elif not page.items:
        typer.echo("nothing has failed" if meant == Failures() else "nothing of that kind has failed")
    else:
        print_table(
            ["KEY", "TASK", "FAILED", "TRIES", "ERROR"],
            [
                (run.key, run.task, run.finished and relative(run.finished, now()), run.attempt, run.error)
                for run in page
            ],
        )
        if page.cursor is not None:
            hint(f"there are more; the next ones: --cursor {page.cursor}")


@failed.command("retry")
def retry(
    keys: Annotated[list[str] | None, typer.Argument(help="The key of a run; several may be given.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that failed.")] = False,
    queue: Queue = None,
    task: TaskName = None,
    group: Group = None,
    since: Since = None,
    before: Before = None,
    error: ErrorText = None,
    yes: Yes = False,
    as_json: AsJson = False,
    docket: DocketName = None,
    url: Url = None,
) -> None:
    """Run again what failed: these keys, all of a kind, or --all. One whose key another run holds is left as it is."""
    from dovetail.deadletters import Failures

    meant = Failures(task, queue, group, since, before, error)
    _refuse_vague(keys, everything, meant)
    if keys:
        control.retry(keys, as_json=as_json, docket=docket, url=url)
        return
    confirm(f"Run again all that failed{_kind(meant)}", yes=yes)

    async def work(docket: Docket) -> int:
        return await _revive(docket, meant)

    again = on_docket(work, url, docket)
    if as_json:
        print_json({"retried": again})
    else:
        typer.echo(f"{many(again, 'run')} {'goes' if again == 1 else 'go'} again")


def _refuse_vague(keys: list[str] | None, everything: bool, meant: Failures) -> None:
    from dovetail.deadletters import Failures

    is_filtered = meant != Failures()
    if not (keys or everything or is_filtered):
        refuse("say which: keys, a filter such as --task, or --all", WRONG_USAGE)
    if keys and (everything or is_filtered):
        refuse("keys say which runs are meant; leave --all and the filters out", WRONG_USAGE)


async def _revive(docket: Docket, meant: Failures) -> int:
    from dovetail.deadletters import batches_of
    from dovetail.model import Revival

    again = 0
    with counting("looked at") as more:
        async for runs in batches_of(docket.engine, meant):
            again += sum(await docket.engine.revive([Revival(run.id) for run in runs]))
            more(len(runs))
    return again


def _kind(meant: Failures) -> str:
    """What the filters say, in words."""
    told: list[tuple[str, Any]] = [
        ("of the task", meant.task), ("in the queue", meant.queue), ("of the group", meant.group),
        ("since", meant.since), ("before", meant.before), ("with the error", meant.error),
    ]  # fmt: skip
    return "".join(f" {words} {str(value)!r}" for words, value in told if value is not None)
