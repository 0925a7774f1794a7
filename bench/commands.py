"""How long each command takes beside a backlog: a store is filled, and every command runs as a user would run it.

    python -m bench.commands [--engine sqlite] [--runs 100000] [--failed 1000] [--only clear] [--json FILE]

The time is that of the whole process, start included. The commands that change what is there come last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.table import Table

from bench.stores import SHELVES, shelf
from dovetail import Docket
from dovetail.model import Failure, NewRun, Retention, Settle, State, WorkerInfo, new_id
from dovetail.tasks import TaskCall

LASTING = Path("/var/tmp")  # /tmp is often memory, where syncing costs nothing
NAME = "backlog"
AT_ONCE = 5_000
LONG = timedelta(minutes=1)
QUEUES = ("default", "mail", "reports")
KEPT = Retention.of(timedelta(hours=1))


async def send(number: int, to: str = "", *, at: list[int] | None = None) -> None: ...
async def report(number: int) -> None: ...


tasks = [send, report]

LOOKS = (
    "status", "queues ls", "workers ls", "schedules ls", "strikes ls", "snapshot", "snapshot --stats", "top --once",
    "doctor", "ls", "ls --oldest-first", "ls --state queued", "ls --state failed", "ls --state running",
    "ls --state failed --oldest-first", "ls --queue mail", "ls --queue nowhere", "ls --task report",
    "ls --task nobody", "ls --group one", "ls --group nobody", "ls --worker nobody", "ls --key first", "ls --tag rare",
    "ls --tag nothing", "ls --error boom", "ls --error nothing", "ls --since 1s", "ls --before 1h", "failed ls",
    "failed ls --error nothing", "failed ls --task nobody", "show first", "show last", "why first", "why last",
    "graph first", "graph last", "strike --preview report", "strike --preview send number == 1",
    "check --tasks bench.commands:tasks",
)  # fmt: skip
DEEDS = (
    "failed retry --task report --yes", "failed discard --all --yes", "cancel first", "clear --queue mail --yes",
    "clear --yes",
)  # fmt: skip


async def fill(url: str, runs: int, failed: int) -> None:
    async with Docket(NAME, url=url) as docket:
        for start in range(0, failed, AT_ONCE):
            await _fail(docket, min(AT_ONCE, failed - start))
        docket.register_collection("bench.commands:tasks")
        await docket.add(send, key="first")(0)
        for start in range(0, runs, AT_ONCE):
            await docket.add_many([_call(docket, number) for number in range(start, min(start + AT_ONCE, runs))])
        await docket.add(send, key="last", tags=["rare"])(runs)


def _call(docket: Docket, number: int) -> TaskCall:
    if number % 3:
        return docket.call(send, queue=QUEUES[number % 3])(number, "somebody@example.com", at=[number])
    return docket.call(report, group=("one", "two")[number % 2])(number)


async def _fail(docket: Docket, count: int) -> None:
    """Runs that have failed, half of each task."""
    drafts = [NewRun(new_id(), "", ("send", "report")[n % 2], retention=KEPT) for n in range(count)]
    await docket.engine.schedule([draft.but(key=draft.id) for draft in drafts])
    left = count
    while left:
        claimed = await docket.engine.claim("bench", left, lease=LONG)
        failure = Failure("ValueError", "boom", "Traceback (most recent call last): ...")
        await docket.engine.finish([Settle(claim, State.FAILED, failure=failure) for claim in claimed.claims])
        left -= len(claimed.claims)
    await docket.engine.heartbeat(WorkerInfo("bench", id="bench", leaving=True), [], lease=LONG)


def took(command: str, url: str) -> float:
    environment = {**os.environ, "DOVETAIL_URL": url, "DOVETAIL_NAME": NAME}
    began = perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "dovetail", *command.split()], env=environment, capture_output=True, text=True
    )
    if done.returncode not in (0, 3):
        sys.exit(f"{command}: {done.stderr}")
    return perf_counter() - began


def measure(engine: str, commands: Sequence[str], runs: int, failed: int, directory: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir=directory) as folder, shelf(engine, Path(folder)) as stores:
        url = stores.fresh()
        began = perf_counter()
        asyncio.run(fill(url, runs, failed))
        return {"(to fill it)": perf_counter() - began} | {command: took(command, url) for command in commands}


def show(readings: dict[str, dict[str, float]]) -> None:
    table = Table("seconds", *readings)
    for command in next(iter(readings.values())):
        table.add_row(command, *(f"{reading[command]:.2f}" for reading in readings.values()))
    Console(width=None if sys.stdout.isatty() else 120).print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", action="append", choices=sorted(SHELVES))
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--failed", type=int, default=1_000)
    parser.add_argument("--only", action="append", default=[], help="the beginning of a command; may be repeated")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the readings")
    lasting = LASTING if LASTING.is_dir() else None
    parser.add_argument("--directory", type=Path, default=lasting, help="for the stores: on a real disk")
    options = parser.parse_args()
    chosen = [each for each in (*LOOKS, *DEEDS) if not options.only or each.startswith(tuple(options.only))]
    measured = {
        engine: measure(engine, chosen, options.runs, options.failed, options.directory)
        for engine in options.engine or sorted(SHELVES)
    }
    show(measured)
    if options.json:
        options.json.write_text(json.dumps(measured, indent=2))
