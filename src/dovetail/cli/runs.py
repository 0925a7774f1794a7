"""The commands that show runs: many in a list, one in full, and what hangs on what."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dovetail.cli.opening import on_docket
from dovetail.cli.options import (
    NO_TASKS,
    AsJson,
    Before,
    DocketName,
    ErrorText,
    Group,
    Limit,
    Queues,
    Since,
    Tags,
    TaskNames,
    Tasks,
    Url,
    read,
)
from dovetail.cli.output import hint, print_fields, print_json, print_table, refuse, shown
from dovetail.cli.relatives import Relatives, relatives_of
from dovetail.cli.times import both, now, relative

if TYPE_CHECKING:
    from dovetail.docket import Docket
    from dovetail.engine import Engine
    from dovetail.engine.paging import Find
    from dovetail.graph import Graph
    from dovetail.model import Page, Run, RunQuery

STATES = ("scheduled", "queued", "waiting", "running", "completed", "failed", "cancelled")
Key = Annotated[str, typer.Argument(help="The run's key.")]


def _state(value: str) -> str:
    if value.lower() not in STATES:
        raise typer.BadParameter(f"{value!r} is no state; there are {', '.join(STATES)}")
    return value.lower()


States = Annotated[
    list[str] | None,
    typer.Option("--state", "-s", parser=read(_state), metavar="STATE", help="Only in this state; may be repeated."),
]


def ls(
    state: States = None,
    queue: Queues = None,
    task: TaskNames = None,
    group: Group = None,
    worker: Annotated[str | None, typer.Option(help="Only on this worker.")] = None,
    key: Annotated[list[str] | None, typer.Option("--key", "-k", help="Only of this key; may be repeated.")] = None,
    tag: Tags = None,
    error: ErrorText = None,
    since: Since = None,
    before: Before = None,
    oldest_first: Annotated[bool, typer.Option("--oldest-first", help="Begin with the oldest.")] = False,
    limit: Limit = 50,
    cursor: Annotated[str | None, typer.Option(help="Go on where an earlier list ended.")] = None,
    as_json: AsJson = False,
    docket: DocketName = None,
    url: Url = None,
) -> None:
    """List runs, the newest first. Everything that is asked for must hold; times are when a run was scheduled."""
    from dovetail.model import RunQuery, State

    query = RunQuery(
        states=tuple(State(each) for each in state or ()), queues=tuple(queue or ()), tasks=tuple(task or ()),
        groups=(group,) if group else (), keys=tuple(key or ()), tags=tuple(tag or ()), worker=worker,
        error_contains=error, created_after=since, created_before=before, newest_first=not oldest_first, limit=limit,
        cursor=cursor,
    )  # fmt: skip

    async def work(docket: Docket) -> Page[Run]:
        return await filled(docket.engine.find if _asks_for_ticks(query) else without_ticks(docket.engine), query)

    page = on_docket(work, url, docket)
    if as_json:
        print_json({"runs": [run_data(run) for run in page], "cursor": page.cursor})
    elif not page.items:
        typer.echo("nothing found")
    else:
        print_runs(page.items, now())
        if page.cursor is not None:
            hint(f"there are more; the next ones: --cursor {page.cursor}")


def _asks_for_ticks(query: RunQuery) -> bool:
    from dovetail.schedules.definition import QUEUE, TASK, is_key

    return QUEUE in query.queues or TASK in query.tasks or any(map(is_key, query.keys))


def without_ticks(engine: Engine) -> Find:
    """Finds all but what makes a schedule tick, which `schedules ls` lists."""
    from dovetail.model import Page
    from dovetail.schedules import is_tick

    async def find(query: RunQuery) -> Page[Run]:
        page = await engine.find(query)
        return Page([run for run in page if not is_tick(run)], page.cursor)

    return find


async def filled(find: Find, query: RunQuery) -> Page[Run]:
    """As many runs as are asked for, if there are as many: a store may look through some at a time."""
    from dovetail.model import Page

    found: list[Run] = []
    while True:
        page = await find(query)
        found += page
        if len(page) == query.limit or page.cursor is None:
            return Page(found, page.cursor)
        query = query.but(limit=query.limit - len(page), cursor=page.cursor)


def print_runs(runs: list[Run], at: datetime) -> None:
    """A row for each. The queue and the group are only shown where they tell something."""
    is_plain = all(run.queue == "default" for run in runs)
    print_table(
        ["KEY", "TASK", "STATE", "WHEN", "QUEUE", "WORKER", "ERROR"],
        [
            (
                run.key, run.task, run.state, relative(happened(run), at), None if is_plain else run.queue,
                run.worker if run.state == "running" else None,
                run.error if run.state in ("failed", "cancelled") else None,
            )
            for run in runs
        ],
    )  # fmt: skip


def happened(run: Run) -> datetime:
    """The moment that matters most of a run: when it ended, started, or is due."""
    return run.finished or (run.started if run.state == "running" else None) or run.due


def run_data(run: Run) -> dict[str, Any]:
    """What may be told of a run: neither its arguments nor its result."""
    from dovetail.model import tags_of

    names = (
        "id", "key", "task", "state", "queue", "priority", "group", "created", "due", "started", "finished", "worker",
        "attempt", "crashes", "stopping", "parked_on", "doomed_by", "error", "progress", "parents",
    )  # fmt: skip
    return {name: getattr(run, name) for name in names} | {"tags": tags_of(run.headers)}


def show(
    key: Key,
    arguments: Annotated[bool, typer.Option("--arguments", help="Show the arguments, too.")] = False,
    traceback: Annotated[bool, typer.Option("--traceback", help="Show the errors with their tracebacks.")] = False,
    tasks: Tasks = NO_TASKS,
    as_json: AsJson = False,
    docket: DocketName = None,
    url: Url = None,
) -> None:
    """Show the newest run of a key in full. State, times, attempts, errors and result; arguments if asked for."""

    async def work(docket: Docket) -> tuple[Relatives, dict[str, Any]]:
        run = await run_of(docket, key)
        return await relatives_of(docket.engine, run), _contents(docket, run, arguments)

    relatives, contents = on_docket(work, url, docket, tasks)
    run = relatives.run
    if as_json:
        errors = [
            {"attempt": each.attempt, "at": each.at, "worker": each.worker, "failure": each.failure}
            for each in run.errors
        ]
        print_json(run_data(run) | {"relatives": relatives.data, "errors": errors} | contents)
        return
    print_fields([*_fields(relatives, now()), *contents.items()])
    _print_errors(run, now(), traceback)


async def run_of(docket: Docket, key: str) -> Run:
    """The newest run of a key, or the end of the command."""
    from dovetail.model import RunQuery

    page = await docket.engine.find(RunQuery.newest_of(key))
    if not page.items:
        refuse(f"there is no record of a run {key!r} on the docket {docket.name!r}; see `dovetail ls`")
    return page.items[0]


def _contents(docket: Docket, run: Run, arguments: bool) -> dict[str, Any]:
    """The arguments, if they are asked for, and the result: what only its codec can read."""
    from dovetail.codec import CallTypes
    from dovetail.errors import DovetailError
    from dovetail.tasks import Task

    types = Task.of(docket.tasks[run.task]).types if run.task in docket.tasks else CallTypes.unknown()
    contents: dict[str, Any] = {}
    try:
        if arguments:
            args, kwargs = docket.codec.load_call(types, run.payload, run.task)
            contents["arguments"] = _plain({"args": args, "kwargs": kwargs})
        if run.result is not None and run.state == "completed":
            contents["result"] = _plain(docket.codec.load_result(types, run.result))
    except DovetailError as error:
        contents["unreadable"] = str(error)
    return contents


def _plain(value: Any) -> Any:
    """The value, if JSON can say it, else how it shows itself."""
    import msgspec

    try:
        return msgspec.to_builtins(value, enc_hook=repr)
    except (TypeError, ValueError):
        return repr(value)


def _fields(relatives: Relatives, at: datetime) -> list[tuple[str, object]]:
    from dovetail.model import tags_of

    run, progress = relatives.run, relatives.run.progress
    return [
        ("key", run.key),
        ("id", run.id if run.id != run.key else None),
        ("task", run.task),
        ("state", f"{run.state}, asked to stop" if run.stopping and run.state == "running" else run.state),
        ("queue", run.queue),
        ("priority", run.priority or None),
        ("group", run.group),
        ("tags", ", ".join(tags_of(run.headers))),
        ("scheduled", both(run.created, at)),
        ("due", both(run.due, at)),
        ("started", both(run.started, at)),
        ("finished", both(run.finished, at)),
        ("worker", run.worker),
        ("attempt", run.attempt),
        ("crashes", f"{run.crashes} of {run.crash_limit}" if run.crashes else None),
        ("progress", progress and f"{progress.current}/{progress.total} {progress.message or ''}".strip()),
        ("waits for room", run.parked_on),
        ("waits for" if run.state == "waiting" else "waited for", relatives.parents),
        ("cancelled by", relatives.doomed_by),
        ("error", run.error),
    ]


def _print_errors(run: Run, at: datetime, traceback: bool) -> None:
    if not run.errors:
        return
    typer.echo("\nerrors")
    for each in run.errors:
        on = f" on {shown(each.worker)}" if each.worker else ""
        typer.echo(f"  attempt {each.attempt}, {both(each.at, at)}{on}")
        typer.echo(f"    {shown(each.failure)}")
        for line in each.failure.traceback.splitlines() if traceback else ():
            typer.echo(f"    {shown(line)}")


def graph(
    key: Key,
    limit: Limit = 1000,
    as_json: AsJson = False,
    docket: DocketName = None,
    url: Url = None,
) -> None:
    """Show what hangs on what. The run of a key, all that it waits for, and all that hangs on those."""

    async def work(docket: Docket) -> Graph:
        await run_of(docket, key)
        return await docket.graph(key, at_most=limit)

    found = on_docket(work, url, docket)
    if as_json:
        print_json({"nodes": list(found.nodes.values()), "edges": found.edges, "is_whole": found.is_whole})
        return
    _print_tree(found)
    if not found.is_whole:
        hint(f"there is more than {limit}; raise --limit to see it")


def _print_tree(found: Graph) -> None:
    """Each run below those that it waits for. What hangs on one is shown where it comes first."""
    told: set[str] = set()
    left = [(node, 0) for node in reversed(found.roots)]
    while left:
        node, depth = left.pop()
        again = " (see above)" if node.id in told and node.children else ""
        doomed: str = (
            f", because of {found.nodes[node.doomed_by].key}"
            if node.doomed_by and node.doomed_by in found.nodes
            else ""
        )
        arrow = "  " * (depth - 1) + "└─ " if depth else ""
        typer.echo(f"{arrow}{shown(node.key)}  {shown(node.task)}  {node.state}{shown(doomed)}{again}")
        if not again:
            left += [(found.nodes[each], depth + 1) for each in reversed(node.children) if each in found.nodes]
        told.add(node.id)
