"""Options that several commands have, written once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypeVar

import typer

from dovetail.cli import times
from dovetail.errors import InvalidArgument

T = TypeVar("T")


def read(parse: Callable[[str], T]) -> Any:
    """A parser of an option's text whose complaint is the one the user sees."""

    def parser(value: Any) -> T:
        try:
            return parse(value)
        except InvalidArgument as error:
            raise typer.BadParameter(str(error)) from None

    parser.__name__ = parse.__name__  # what the help calls the value
    return parser


duration = read(times.duration)
patience = read(times.patience)
moment = read(times.moment)
ago = read(times.ago)

Url = Annotated[
    str | None,
    typer.Option("--url", "-u", "--dsn", help="Where the docket is kept.", envvar="DOVETAIL_URL", show_envvar=True),
]
DocketName = Annotated[
    str | None, typer.Option("--docket", "-d", help="The docket's name.", envvar="DOVETAIL_NAME", show_envvar=True)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print data for programs, as JSON.")]
Tasks = Annotated[
    list[str],
    typer.Option("--tasks", "--module", "-m", help="A collection of tasks, as module:member.", envvar="DOVETAIL_TASKS"),
]
NO_TASKS: list[str] = []
STANDARD_TASKS = ["dovetail.tasks:standard_tasks"]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="How many, at most.")]

# Filters

Queues = Annotated[list[str] | None, typer.Option("--queue", "-q", help="Only of this queue; may be repeated.")]
TaskNames = Annotated[list[str] | None, typer.Option("--task", "-t", help="Only of this task; may be repeated.")]
Queue = Annotated[str | None, typer.Option("--queue", "-q", help="Only of this queue.")]
TaskName = Annotated[str | None, typer.Option("--task", "-t", help="Only of this task.")]
Group = Annotated[str | None, typer.Option(help="Only of this group.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="Only with this tag; several must all be there.")]
ErrorText = Annotated[str | None, typer.Option("--error", help="Only with this text in the error.")]
Since = Annotated[
    datetime | None, typer.Option(parser=ago, metavar="TIME", help="Only since then: 2h (ago), or 2030-01-31T09:00.")
]
Before = Annotated[datetime | None, typer.Option(parser=ago, metavar="TIME", help="Only before then; as --since.")]

# Of strikes and pauses

Reason = Annotated[str | None, typer.Option(help="Why, for whoever asks later.")]
Owner = Annotated[str | None, typer.Option(help="Who did it.")]
Until = Annotated[datetime | None, typer.Option(parser=moment, metavar="TIME", help="When it ends by itself.")]
For = Annotated[
    timedelta | None,
    typer.Option("--for", parser=duration, metavar="DURATION", help="After how long it ends by itself."),
]


def end_of(until: datetime | None, lasting: timedelta | None) -> datetime | None:
    """When it ends: at a moment, after a time, or never."""
    if until is not None and lasting is not None:
        raise typer.BadParameter("--until and --for both say when it ends; give one of them")
    return until if lasting is None else after(lasting)


def after(delay: timedelta) -> datetime:
    """The moment so far from now."""
    try:
        return datetime.now(UTC) + delay
    except OverflowError:
        raise typer.BadParameter(f"{delay} from now is after the last year that there is") from None
