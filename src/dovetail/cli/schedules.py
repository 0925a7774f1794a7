"""The commands for schedules: calls that come again at set times."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from dovetail.cli import times
from dovetail.cli.options import STANDARD_TASKS, AsJson, DocketName, Tasks, Url, moment, read
from dovetail.cli.output import print_json, print_table, refuse, shown
from dovetail.cli.reading import arguments_in, fitted, known_task, object_in
from dovetail.errors import InvalidArgument

if TYPE_CHECKING:
    from dovetail.docket import Docket
    from dovetail.schedules import Schedule

T = TypeVar("T")


def _interval(value: str | timedelta) -> timedelta:
    chosen = times.duration(value)
    if chosen < timedelta(seconds=1):
        raise InvalidArgument(f"{value!r} is too short: every second is the most often")
    return chosen


app = typer.Typer(help="Calls that come again at set times.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The name of the schedule.")]
Cron = Annotated[str | None, typer.Option(help="When, as a cron expression: '0 3 * * *'.")]
Every = Annotated[
    timedelta | None,
    typer.Option(parser=read(_interval), metavar="DURATION", help="How often: 90 (seconds), 5m, 2h, 1d."),
]
Zone = Annotated[str | None, typer.Option("--tz", help="The time zone of the expression: Europe/Vienna.")]
OverlapRule = Annotated[str | None, typer.Option("--overlap", help="While a run is at it: queue, skip or allow.")]
MisfireRule = Annotated[str | None, typer.Option("--misfire", help="Times that were missed: once, all or skip.")]
Until = Annotated[datetime | None, typer.Option(parser=moment, metavar="TIME", help="When it ends by itself.")]
Queue = Annotated[str | None, typer.Option(help="The queue of its runs.")]
Priority = Annotated[int | None, typer.Option(help="The priority of its runs; higher goes first.")]
Group = Annotated[str | None, typer.Option(help="The group of its runs.")]
Tag = Annotated[list[str] | None, typer.Option(help="A label of its runs; may be given more than once.")]
Args = Annotated[str | None, typer.Option(help="The arguments: a JSON object, or an array of positional ones.")]
Kwargs = Annotated[str | None, typer.Option(help="Named arguments beside an array: a JSON object.")]


@app.command(name="ls")
def list_schedules(url: Url = None, docket: DocketName = None, as_json: AsJson = False) -> None:
    """List all schedules, by name."""
    schedules = _on(lambda docket: docket.schedules.list(), url, docket)
    if as_json:
        print_json([_data(schedule) for schedule in schedules])
    elif not schedules:
        typer.echo("there are no schedules")
    else:
        print_table(
            ["NAME", "TASK", "TIMES", "NEXT"],
            [(each.name, each.task, _when(each), _moment(each.next_time) or "paused") for each in schedules],
        )


@app.command()
def show(name: Name, url: Url = None, docket: DocketName = None, as_json: AsJson = False) -> None:
    """Show all there is to know of a schedule."""

    async def work(docket: Docket) -> Schedule:
        found = await docket.schedules.get(name)
        return found or refuse(f"there is no schedule {name!r} on the docket {docket.name!r}")

    found = _on(work, url, docket)
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
    tasks: Tasks = STANDARD_TASKS,
    url: Url = None,
    docket: DocketName = None,
    as_json: AsJson = False,
) -> None:
    """Make a schedule of a task that one of the collections has."""
    if (cron is None) == (every is None):
        raise typer.BadParameter("say when: with --cron or with --every, and one of them")
    positional, named = _arguments(args, kwargs)
    options = _given(
        cron=cron, every=every, tz=tz, overlap=overlap, misfire=misfire, until=until, queue=queue,
        priority=priority, group=group, tags=tag,
    )  # fmt: skip

    async def work(docket: Docket) -> Schedule:
        fitting, by_name = fitted(await known_task(docket, task), positional or [], named or {})
        return await docket.schedules.add(name, task, replace=replace, **options)(*fitting, **by_name)

    _print(_on(work, url, docket, tasks, may_make=True), as_json=as_json)


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
    tasks: Tasks = STANDARD_TASKS,
    url: Url = None,
    docket: DocketName = None,
    as_json: AsJson = False,
) -> None:
    """Alter what is given, and nothing else. New arguments need a collection that has the task."""
    positional, named = _arguments(args, kwargs)
    options = _given(
        cron=cron, every=every, tz=tz, overlap=overlap, misfire=misfire, until=until, queue=queue,
        priority=priority, group=group, tags=tag,
    )  # fmt: skip
    has_arguments = positional is not None or named is not None
    if not options and not has_arguments:
        raise typer.BadParameter("say what is to change, such as --cron or --priority")

    async def work(docket: Docket) -> Schedule:
        if has_arguments and (held := await docket.schedules.get(name)) is not None:
            known = await known_task(docket, held.task)
            options["args"], options["kwargs"] = fitted(known, positional or [], named or {})
        return await docket.schedules.change(name, **options)

    _print(_on(work, url, docket, tasks), as_json=as_json)


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
    if execution.disposition == "already_scheduled":
        refuse(f"a run of {name!r} is there already: {execution.key!r}")
    if not as_json:
        _say(execution.key)


@app.command()
def delete(name: Name, url: Url = None, docket: DocketName = None, as_json: AsJson = False) -> None:
    """Take a schedule away. What has been started goes on."""
    _on(lambda docket: docket.schedules.delete(name), url, docket)
    if as_json:
        print_json({"name": name, "deleted": True})
    else:
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


def _arguments(args: str | None, kwargs: str | None) -> tuple[list[Any] | None, dict[str, Any] | None]:
    """The positional and the named ones; None for those that nothing was said of."""
    positional, named = (None, None) if args is None else arguments_in(args)
    if kwargs is None:
        return positional, named
    if named:
        raise typer.BadParameter("--args names the arguments, and so does --kwargs; give one of them")
    return positional, object_in(kwargs, "--kwargs")


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


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
        ("next", _moment(schedule.next_time) or "never: it is paused"),
        ("last", _moment(schedule.last_time)),
        ("last run", schedule.last_key),
        ("paused", None if paused is None else f"since {_moment(paused.since)}"),
        ("reason", paused and paused.reason),
        ("owner", paused and paused.owner),
        ("until", _moment(schedule.until)),
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


def _moment(when: datetime | None) -> str | None:
    """A moment on the clocks of the schedule's own zone, and how far from now that is."""
    return None if when is None else f"{when:%Y-%m-%d %H:%M:%S %Z} ({times.relative(when, times.now())})"


def _say(text: str) -> None:
    typer.echo(shown(text))
