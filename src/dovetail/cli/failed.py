"""The commands for what failed: look at it, run it again, or drop it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dovetail.cli import control
from dovetail.cli.one_by_one import Words, each_of
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
    Tags,
    TaskName,
    Url,
    Yes,
)
from dovetail.cli.output import (
    WRONG_USAGE,
    accounted,
    confirm,
    hint,
    many,
    print_json,
    print_table,
    refuse,
)
from dovetail.cli.runs import filled, run_data, show
from dovetail.cli.times import now, relative

if TYPE_CHECKING:
    from dovetail.deadletters import Failures
    from dovetail.docket import Docket
    from dovetail.model import Page, Run

failed = typer.Typer(help="What failed: look at it, run it again, or drop it.", no_args_is_help=True)
failed.command("show")(show)


@failed.command("ls")
def ls(
    queue: Queue = None,
    task: TaskName = None,
    group: Group = None,
    since: Since = None,
    before: Before = None,
    error: ErrorText = None,
    tag: Tags = None,
    limit: Limit = 50,
    cursor: Annotated[str | None, typer.Option(help="Go on where an earlier list ended.")] = None,
    as_json: AsJson = False,
    docket: DocketName = None,
    url: Url = None,
) -> None:
    """List the runs that failed and are kept, the newest first. Times are when a run failed."""
    from dovetail.deadletters import Failures, page_of
    from dovetail.model import RunQuery

    meant = Failures(task, queue, group, since, before, error, tuple(tag or ()))

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


Keys = Annotated[list[str] | None, typer.Argument(help="The key of a run; several may be given.")]
Everything = Annotated[bool, typer.Option("--all", help="All that failed.")]


@failed.command("retry")
def retry(
    keys: Keys = None,
    everything: Everything = False,
    queue: Queue = None,
    task: TaskName = None,
    group: Group = None,
    since: Since = None,
    before: Before = None,
    error: ErrorText = None,
    tag: Tags = None,
    yes: Yes = False,
    as_json: AsJson = False,
    docket: DocketName = None,
    url: Url = None,
) -> None:
    """Run again what failed. These keys, all of a kind, or --all; one whose key another run holds is left as it is."""
    from dovetail.deadletters import Failures
    from dovetail.model import Revival

    meant = Failures(task, queue, group, since, before, error, tuple(tag or ()))
    _refuse_vague(keys, everything, meant)
    if keys:
        control.retry(keys, as_json=as_json, docket=docket, url=url)
        return
    confirm(f"Run again all that failed{_kind(meant)}", yes=yes)

    async def work(docket: Docket) -> int:
        return await _each_of(
            docket, meant, lambda ids: docket.engine.revive([Revival(each) for each in ids]), "put back to work"
        )

    again = on_docket(work, url, docket)
    if as_json:
        print_json({"retried": again})
    else:
        typer.echo(f"{many(again, 'run')} {'goes' if again == 1 else 'go'} again")


@failed.command("discard")
def discard(
    keys: Keys = None,
    everything: Everything = False,
    queue: Queue = None,
    task: TaskName = None,
    group: Group = None,
    since: Since = None,
    before: Before = None,
    error: ErrorText = None,
    tag: Tags = None,
    yes: Yes = False,
    as_json: AsJson = False,
    docket: DocketName = None,
    url: Url = None,
) -> None:
    """Drop the records of what failed. These keys, all of a kind, or --all; exit code 3 if a key cannot be dropped."""
    from dovetail.deadletters import Failures

    meant = Failures(task, queue, group, since, before, error, tuple(tag or ()))
    _refuse_vague(keys, everything, meant)
    if keys:
        _discard_keys(keys, as_json, docket, url)
        return
    confirm(f"Drop the records of all that failed{_kind(meant)}", yes=yes)

    async def work(docket: Docket) -> int:
        return await _each_of(docket, meant, docket.engine.discard, "discarded")

    gone = on_docket(work, url, docket)
    if as_json:
        print_json({"discarded": gone})
    else:
        typer.echo(f"{many(gone, 'record')} {'is' if gone == 1 else 'are'} gone")


def _discard_keys(keys: list[str], as_json: bool, docket: str | None, url: str | None) -> None:
    once = list(dict.fromkeys(keys))
    words = Words("discarded", "the record of {} is gone")
    each_of(once, lambda docket, key: docket.discard(key), words, url, docket, as_json=as_json)


def _refuse_vague(keys: list[str] | None, everything: bool, meant: Failures) -> None:
    from dovetail.deadletters import Failures

    is_filtered = meant != Failures()
    if not (keys or everything or is_filtered):
        refuse("say which: keys, a filter such as --task, or --all", WRONG_USAGE)
    if keys and (everything or is_filtered):
        refuse("keys say which runs are meant; leave --all and the filters out", WRONG_USAGE)


async def _each_of(
    docket: Docket, meant: Failures, deal: Callable[[Sequence[str]], Awaitable[list[bool]]], what: str
) -> int:
    """Deal with the ids of all that are meant, some at a time, and say with how many it was done."""
    from dovetail.deadletters import batches_of

    done = 0
    with accounted(what) as tell:
        async for runs in batches_of(docket.engine, meant):
            done += sum(await deal([run.id for run in runs]))
            tell(done)
    return done


def _kind(meant: Failures) -> str:
    """What the filters say, in words."""
    told: list[tuple[str, Any]] = [
        ("of the task", meant.task), ("in the queue", meant.queue), ("of the group", meant.group),
        ("since", meant.since), ("before", meant.before), ("with the error", meant.error),
        *(("with the tag", each) for each in meant.tags),
    ]  # fmt: skip
    return "".join(f" {words} {str(value)!r}" for words, value in told if value is not None)
