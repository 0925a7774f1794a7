"""The commands for schedules: calls that come again at set times."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from dovetail.cli.options import AsJson, DocketName, Tasks, Url
from dovetail.cli.output import console, print_json, refuse, shown

if TYPE_CHECKING:
    from dovetail.docket import Docket
    from dovetail.schedules import Schedule

T = TypeVar("T")

app = typer.Typer(help="Calls that come again at set times.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The name of the schedule.")]
Cron = Annotated[str | None, typer.Option(help="When, as a cron expression: '0 3 * * *'.")]
Every = Annotated[float | None, typer.Option(help="How often, in seconds.", min=1)]
Zone = Annotated[str | None, typer.Option("--tz", help="The time zone of the expression: Europe/Vienna.")]
OverlapRule = Annotated[str | None, typer.Option("--overlap", help="While a run is at it: queue, skip or allow.")]
MisfireRule = Annotated[str | None, typer.Option("--misfire", help="Times that were missed: once, all or skip.")]
Until = Annotated[datetime | None, typer.Option(help="The end, in UTC.", formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"])]
Queue = Annotated[str | None, typer.Option(help="The queue of its runs.")]
Priority = Annotated[int | None, typer.Option(help="The priority of its runs; higher goes first.")]
Group = Annotated[str | None, typer.Option(help="The group of its runs.")]
Tag = Annotated[list[str] | None, typer.Option(help="A label of its runs; may be given more than once.")]
Args = Annotated[str | None, typer.Option(help="Positional arguments, as a JSON list.")]
Kwargs = Annotated[str | None, typer.Option(help="Named arguments, as a JSON object.")]


@app.command(name="ls")
def list_schedules(url: Url = None, docket: DocketName = None, as_json: AsJson = False) -> None:
    """List all schedules, by name."""
    schedules = _on(lambda docket: docket.schedules.list(), url, docket)
    if as_json:
        print_json([_data(schedule) for schedule in schedules])
    elif not schedules:
        console.print("there are no schedules")
    else:
        _print_table(schedules)


@app.command()
def show(name: Name, url: Url = None, docket: DocketName = None, as_json: AsJson = False) -> None:
    """Show all there is to know of a schedule."""
    found = _on(lambda docket: docket.schedules.get(name), url, docket)
    if found is None:
        refuse(f"there is no schedule {name!r}")
    _print(found, as_json=as_json)


@app.command()
def add(
    name: Name,
    task: Annotated[str, typer.Argument(help="The name of the task.")],
    cron: Cron = None,
    every: Every = None,
    tz: Zone = None,
    args: Args = None,
    kwargs: Kwargs = None,
    overlap: OverlapRule = None,
    misfire: MisfireRule = None,
    until: Until = None,
    queue: Queue = None,
    priority: Priority = None,
    group: Group = None,
    tag: Tag = None,
    replace: Annotated[bool, typer.Option("--replace", help="Alter a schedule of that name.")] = False,
    tasks: Tasks = ["dovetail.tasks:standard_tasks"],  # noqa: B006 - typer reads it, nobody writes it
    url: Url = None,
    docket: DocketName = None,
    as_json: AsJson = False,
) -> None:
    """Make a schedule of a task that one of the collections has."""
    positional, named = _arguments(args, kwargs)
    options = _given(
        cron=cron, every=_seconds(every), tz=tz, overlap=overlap, misfire=misfire, until=_in_utc(until), queue=queue,
        priority=priority, group=group, tags=tag,
    )  # fmt: skip

    async def make(docket: Docket) -> Schedule:
        fitting, by_name = await _fitting(docket, task, positional, named)
        return await docket.schedules.add(name, task, replace=replace, **options)(*fitting, **by_name)

    _print(_on(make, url, docket, tasks, may_make=True), as_json=as_json)


@app.command()
def change(
    name: Name,
    cron: Cron = None,
    every: Every = None,
    tz: Zone = None,
    args: Args = None,
    kwargs: Kwargs = None,
    overlap: OverlapRule = None,
    misfire: MisfireRule = None,
    until: Until = None,
    queue: Queue = None,
    priority: Priority = None,
    group: Group = None,
    tag: Tag = None,
    tasks: Tasks = ["dovetail.tasks:standard_tasks"],  # noqa: B006 - typer reads it, nobody writes it
    url: Url = None,
    docket: DocketName = None,
    as_json: AsJson = False,
) -> None:
    """Alter what is given, and nothing else. New arguments need a collection that has the task."""
    positional, named = _arguments(args, kwargs)
    options = _given(
        cron=cron, every=_seconds(every), tz=tz, overlap=overlap, misfire=misfire, until=_in_utc(until), queue=queue,
        priority=priority, group=group, tags=tag, args=positional, kwargs=named,
    )  # fmt: skip
    if not options:
        raise typer.BadParameter("say what is to change, such as --cron or --priority")

    async def alter(docket: Docket) -> Schedule:
        known = await docket.schedules.get(name) if "args" in options or "kwargs" in options else None
        if known is not None:
            options["args"], options["kwargs"] = await _fitting(docket, known.task, positional, named)
        return await docket.schedules.change(name, **options)

    _print(_on(alter, url, docket, tasks), as_json=as_json)


@app.command()
def pause(
    name: Name,
    reason: Annotated[str | None, typer.Option(help="Why, for those who look at it.")] = None,
    owner: Annotated[str | None, typer.Option(help="Who paused it.")] = None,
    url: Url = None,
    docket: DocketName = None,
    as_json: AsJson = False,
) -> None:
    """Let a schedule have no more times until it is resumed."""
    _print(_on(lambda docket: docket.schedules.pause(name, reason, owner), url, docket), as_json=as_json)


@app.command()
def resume(name: Name, url: Url = None, docket: DocketName = None, as_json: AsJson = False) -> None:
    """Let a paused schedule go on."""
    _print(_on(lambda docket: docket.schedules.resume(name), url, docket), as_json=as_json)


@app.command()
def trigger(name: Name, url: Url = None, docket: DocketName = None, as_json: AsJson = False) -> None:
    """Make a run now, besides its times."""
    execution = _on(lambda docket: docket.schedules.trigger(name), url, docket)
    if as_json:
        print_json({"key": execution.key, "id": execution.id, "disposition": execution.disposition})
    elif execution.disposition == "already_scheduled":
        refuse(f"a run of {name!r} is there already: {execution.key}")
    else:
        _say(execution.key)


@app.command()
def delete(name: Name, url: Url = None, docket: DocketName = None) -> None:
    """Take a schedule away. What has been started goes on."""
    _on(lambda docket: docket.schedules.delete(name), url, docket)
    _say(f"{name} is deleted")


# Asking


def _on(
    work: Callable[[Docket], Awaitable[T]],
    url: str | None,
    name: str | None,
    tasks: list[str] | None = None,
    *,
    may_make: bool = False,
) -> T:
    from dovetail.cli.opening import on_docket
    from dovetail.errors import UnknownSchedule

    try:
        return on_docket(work, url, name, tasks or (), may_make=may_make)
    except UnknownSchedule as error:
        refuse(str(error))


async def _fitting(
    docket: Docket, task: str, positional: list[Any] | None, named: dict[str, Any] | None
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments as the task's annotations want them."""
    from dovetail.cli.reading import fitted, known_task

    return fitted(await known_task(docket, task), positional or [], named or {})


def _arguments(args: str | None, kwargs: str | None) -> tuple[list[Any] | None, dict[str, Any] | None]:
    return (
        None if args is None else _parsed(args, "--args", list[Any]),
        None if kwargs is None else _parsed(kwargs, "--kwargs", dict[str, Any]),
    )


def _parsed(text: str, option: str, kind: type[T]) -> T:
    import msgspec

    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as error:
        raise typer.BadParameter(f"{option} {text}: {error}") from None


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _seconds(every: float | None) -> timedelta | None:
    return None if every is None else timedelta(seconds=every)


def _in_utc(moment: datetime | None) -> datetime | None:
    from datetime import UTC

    return None if moment is None else moment.replace(tzinfo=UTC)


# Telling


def _data(schedule: Schedule) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(schedule)


def _print(schedule: Schedule, *, as_json: bool) -> None:
    if as_json:
        print_json(_data(schedule))
        return
    for name, value in _lines(schedule):
        _say(f"{name:<10} {value}")


def _lines(schedule: Schedule) -> list[tuple[str, object]]:
    paused = schedule.paused
    told = [
        ("name", schedule.name),
        ("task", schedule.task),
        ("arguments", _called_with(schedule)),
        ("when", _when(schedule)),
        ("next", schedule.next_time or "never: it is paused"),
        ("last", schedule.last_time),
        ("last run", schedule.last_key),
        ("paused", None if paused is None else f"since {paused.since}"),
        ("reason", paused and paused.reason),
        ("owner", paused and paused.owner),
        ("until", schedule.until),
        ("overlap", schedule.overlap),
        ("misfire", schedule.misfire),
        ("queue", schedule.queue),
        ("priority", schedule.priority),
        ("group", schedule.group),
        ("tags", ", ".join(schedule.tags) or None),
    ]
    return [(name, value) for name, value in told if value is not None]


def _called_with(schedule: Schedule) -> str:
    if schedule.args is None or schedule.kwargs is None:
        return "(cannot be read here)"
    named = (f"{name}={value!r}" for name, value in schedule.kwargs.items())
    return f"({', '.join([*map(repr, schedule.args), *named])})"


def _when(schedule: Schedule) -> str:
    return f"every {schedule.every}" if schedule.cron is None else f"{schedule.cron} ({schedule.tz})"


def _print_table(schedules: list[Schedule]) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("name", "task", "when", "next"):
        table.add_column(heading)
    for each in schedules:
        coming = "paused" if each.next_time is None else f"{each.next_time:%Y-%m-%d %H:%M:%S%z}"
        table.add_row(*(escape(shown(text)) for text in (each.name, each.task, _when(each), coming)))
    console.print(table)


def _say(text: str) -> None:
    typer.echo(shown(text))
