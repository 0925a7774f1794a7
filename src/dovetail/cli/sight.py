"""The commands that show a docket as a whole: how much is where, who works, and what comes next."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dovetail.cli import times
from dovetail.cli.opening import on_docket
from dovetail.cli.options import NO_TASKS, AsJson, DocketName, Limit, Tasks, Url
from dovetail.cli.output import counting, many, print_json, print_table, shown
from dovetail.cli.runs import STATES, filled, happened, run_data, without_ticks
from dovetail.cli.times import both, local, relative

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dovetail.docket import Docket
    from dovetail.engine.paging import Find
    from dovetail.model import Run, RunQuery, WorkerInfo
    from dovetail.queues import Pause, QueueInfo
    from dovetail.strikelist import Strike

queues = typer.Typer(help="What is in which queue.", no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class Status:
    """A docket at one moment."""

    docket: str
    url: str
    at: datetime
    queues: Sequence[QueueInfo]
    workers: Sequence[WorkerInfo]
    strikes: Sequence[Strike]


def status(as_json: AsJson = False, docket: DocketName = None, url: Url = None) -> None:
    """Show how much is where, and who works. With paused queues, strikes, and since when work waits."""
    now = on_docket(_status, url, docket)
    if as_json:
        print_json(
            {
                "docket": now.docket, "url": now.url, "at": now.at,
                "queues": [_queue_data(each) for each in now.queues],
                "workers": now.workers, "strikes": len(now.strikes),
            }
        )  # fmt: skip
        return
    typer.echo(f"docket {now.docket!r} at {now.url}, {local(now.at)}")
    typer.echo(_crew(now.workers))
    if now.strikes:
        typer.echo(f"{many(len(now.strikes), 'strike')} in force; see `dovetail strikes ls`")
    typer.echo("")
    _print_queues(now.queues, now.at)


async def _status(docket: Docket) -> Status:
    from dovetail.engine.registry import redacted

    found = await docket.queues()
    return Status(
        docket.name, redacted(docket.url), times.now(), found, await docket.workers(), await docket.strikes()
    )  # fmt: skip


def _crew(workers: Sequence[WorkerInfo]) -> str:
    if not workers:
        return "no worker is running; start one with `dovetail worker`"
    running, room = sum(each.running for each in workers), sum(each.concurrency for each in workers)
    return f"{many(len(workers), 'worker')}, {running:,} of {room:,} slots taken; see `dovetail workers ls`"


@queues.command("ls")
def ls(as_json: AsJson = False, docket: DocketName = None, url: Url = None) -> None:
    """List the queues that hold runs or are paused. How many runs in which state, since when work waits."""
    now = on_docket(_status, url, docket)
    if as_json:
        print_json([_queue_data(each) for each in now.queues])
    else:
        _print_queues(now.queues, now.at)


def _queue_data(queue: QueueInfo) -> dict[str, Any]:
    return {
        "name": queue.name, "counts": queue.counts, "oldest_due": queue.oldest_due, "paused": queue.paused,
    }  # fmt: skip


def _print_queues(found: Sequence[QueueInfo], now: datetime) -> None:
    from dovetail.model import State

    if not found:
        typer.echo("nothing is queued, and nothing has ended lately")
        return
    print_table(
        ["QUEUE", *(state.upper() for state in STATES), "OLDEST"],
        [
            (
                f"{queue.name} (paused)" if queue.is_paused else queue.name,
                *(f"{queue.counts[State(state)]:,}" if queue.counts[State(state)] else None for state in STATES),
                queue.oldest_due and relative(queue.oldest_due, now),
            )
            for queue in found
        ],
    )  # fmt: skip
    for queue in found:
        if queue.paused is not None:
            typer.echo(shown(_pause_line(queue.name, queue.paused, now)))


def _pause_line(queue: str, paused: Pause, now: datetime) -> str:
    told = [f"{queue} is paused"]
    told += [f"by {paused.owner}"] if paused.owner else []
    told += [f"since {both(paused.since, now)}"] if paused.since else []
    told += [f"until {both(paused.until, now)}"] if paused.until else []
    return " ".join(told) + (f": {paused.reason}" if paused.reason else "")


# Snapshot


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What runs, and the first of what waits, at one moment."""

    at: datetime
    docket: str
    pending: int
    running: int
    workers: Sequence[WorkerInfo]
    runs: list[Run]
    stats: Sequence[TaskStats]


@dataclass(slots=True)
class TaskStats:
    """How much of a task runs and waits, and from when to when what waits is due."""

    task: str
    running: int = 0
    queued: int = 0
    oldest: datetime | None = None
    latest: datetime | None = None

    @property
    def total(self) -> int:
        return self.running + self.queued

    def take_in(self, run: Run) -> None:
        if run.state == "running":
            self.running += 1
            return
        self.queued += 1
        self.oldest = min(self.oldest or run.due, run.due)
        self.latest = max(self.latest or run.due, run.due)


def snapshot(
    tasks: Tasks = NO_TASKS,
    stats: Annotated[bool, typer.Option("--stats", help="Count by task, too; reads all that waits.")] = False,
    limit: Limit = 50,
    as_json: AsJson = False,
    docket: DocketName = None,
    url: Url = None,
) -> None:
    """Show what runs and what comes next. With --stats also how much that is of which task."""

    async def work(docket: Docket) -> Snapshot:
        return await _snapshot(docket, limit, stats)

    now = on_docket(work, url, docket, tasks)
    if as_json:
        print_json(
            {
                "docket": now.docket, "at": now.at, "pending": now.pending, "running": now.running,
                "workers": now.workers, "runs": [run_data(run) for run in now.runs],
                **({"stats": now.stats} if stats else {}),
            }
        )  # fmt: skip
        return
    total = now.pending + now.running
    typer.echo(f"Docket: {now.docket}, {local(now.at)}")
    typer.echo(f"{len(now.workers)} workers, {now.running}/{total} running")
    if not total:
        typer.echo("nothing is queued")
        return
    _print_snapshot(now)
    if len(now.runs) < total:
        typer.echo(f"… and {total - len(now.runs):,} more; raise --limit, or see `dovetail ls`")
    if now.stats:
        _print_stats(now.stats, now.at)


async def _snapshot(docket: Docket, limit: int, stats: bool) -> Snapshot:
    from dovetail.docket import PENDING
    from dovetail.engine.paging import WHOLE
    from dovetail.model import RunQuery, State
    from dovetail.schedules import QUEUE

    find = without_ticks(docket.engine)
    survey = await docket.engine.survey()
    survey = survey.but(counts=[each for each in survey.counts if each.queue != QUEUE])
    runs = list(await filled(find, RunQuery(states=(State.RUNNING,), limit=limit)))
    if len(runs) < limit:
        runs += await filled(find, RunQuery(states=PENDING, limit=limit - len(runs)))
    everything = RunQuery(states=(State.RUNNING, *PENDING), limit=WHOLE)
    counted = await _count(find, everything) if stats else []
    workers = await docket.workers()
    return Snapshot(
        survey.at, docket.name, survey.count(*PENDING), survey.count(State.RUNNING), workers, runs, counted
    )  # fmt: skip


async def _count(find: Find, query: RunQuery) -> list[TaskStats]:
    """By task, the largest first."""
    from dovetail.engine.paging import pages

    found: dict[str, TaskStats] = {}
    with counting("runs read") as more:
        async for page in pages(find, query):
            for run in page:
                found.setdefault(run.task, TaskStats(run.task)).take_in(run)
            more(len(page))
    return sorted(found.values(), key=lambda each: (-each.total, each.task))


def _print_snapshot(now: Snapshot) -> None:
    typer.echo("")
    ordered = sorted(now.runs, key=lambda run: (run.state != "running", run.due))
    print_table(
        ["KEY", "FUNCTION", "WHEN", "WORKER", "STARTED"],
        [
            (
                run.key, run.task, relative(run.due, now.at), run.worker if run.state == "running" else None,
                relative(happened(run), now.at) if run.state == "running" else None,
            )
            for run in ordered
        ],
    )  # fmt: skip


def _print_stats(stats: Sequence[TaskStats], now: datetime) -> None:
    typer.echo("\nTask Count Statistics by Function")
    print_table(
        ["Function", "Total", "Running", "Queued", "Oldest Queued", "Latest Queued"],
        [
            (
                each.task, f"{each.total:,}", f"{each.running:,}", f"{each.queued:,}",
                relative(each.oldest, now) if each.oldest else "-", relative(each.latest, now) if each.latest else "-",
            )
            for each in stats
        ],
    )  # fmt: skip
