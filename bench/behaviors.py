"""What each behavior costs: how fast a worker drains tasks that declare it, as a share of tasks that declare none.

    python -m bench.behaviors [--runs 5000] [--rounds 3] [--url sqlite:///...]

The kinds take turns within a round, and each is compared with the plain tasks of its own round. The comparison is by
processor time, all threads of the process included, since other programs on the machine do not add to it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Annotated

from rich.console import Console
from rich.table import Table

from dovetail import ConcurrencyLimit, Depends, Docket, Progress, RateLimit, Retry, Shared, Timeout, Worker

MINUTE = timedelta(minutes=1)
MANY = 1_000_000


def answer() -> int:
    return 42


async def plain(number: int) -> None: ...
async def retry(number: int, retry: Retry = Retry(attempts=3)) -> None: ...
async def timeout(number: int, timeout: Timeout = Timeout(MINUTE)) -> None: ...
async def dependency(number: int, value: int = Depends(answer)) -> None: ...
async def shared(number: int, value: int = Shared(answer)) -> None: ...
async def progress(number: int, progress: Progress = Progress()) -> None: ...
async def limit(number: int, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=MANY)) -> None: ...
async def limit_per_value(number: Annotated[int, ConcurrencyLimit(1)]) -> None: ...
async def rate(number: int, rate: RateLimit = RateLimit(MANY, per=MINUTE)) -> None: ...


KINDS: dict[str, tuple[Callable[..., Awaitable[None]], float | None]] = {
    "none": (plain, None),
    "Retry": (retry, 0.15),
    "Timeout": (timeout, 0.15),
    "Depends": (dependency, 0.15),
    "Shared": (shared, 0.15),
    "Progress, unused": (progress, 0.15),
    "ConcurrencyLimit of a task": (limit, 0.30),
    "ConcurrencyLimit of each value": (limit_per_value, 0.30),
    "RateLimit": (rate, 0.30),
}
"""By name: the task, and how much slower it may be."""


@dataclass(frozen=True, slots=True)
class Drain:
    rate: float  # runs a second
    cost: float  # microseconds of processor time a run


async def drain(url: str, task: Callable[..., Awaitable[None]], runs: int) -> Drain:
    async with Docket(name=f"bench-{task.__name__}", url=url, execution_ttl=timedelta()) as docket:
        call = docket.call(task)
        await docket.add_many([call(number) for number in range(runs)])
        gc.collect()
        async with Worker(docket, concurrency=100) as worker:
            began, worked = time.perf_counter(), time.process_time()
            await worker.run_until_finished()
            return Drain(runs / (time.perf_counter() - began), (time.process_time() - worked) / runs * 1e6)


def measure(url: str | None, runs: int, rounds: int) -> dict[str, list[Drain]]:
    drains: dict[str, list[Drain]] = {name: [] for name in KINDS}
    for _ in range(rounds):
        for name, (task, _allowed) in KINDS.items():
            with tempfile.TemporaryDirectory() as folder:
                drains[name].append(asyncio.run(drain(url or f"sqlite:///{Path(folder) / 'bench.db'}", task, runs)))
    return drains


def show(drains: dict[str, list[Drain]]) -> None:
    table = Table("behavior", "runs/s", "µs of CPU a run", "slower by", "at most")
    for name, (_, allowed) in KINDS.items():
        shares = [base.cost / mine.cost for mine, base in zip(drains[name], drains["none"], strict=True)]
        slower = 1 - median(shares)
        rate, cost = median(each.rate for each in drains[name]), median(each.cost for each in drains[name])
        goal = "" if allowed is None else f"{allowed:.0%}"
        verdict = "" if allowed is None else "  met" if slower < allowed else "  not met"
        table.add_row(name, f"{rate:,.0f}", f"{cost:.0f}", f"{slower:.0%}", goal + verdict)
    Console().print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--url", help="a store of its own; by default a new SQLite file for every drain")
    options = parser.parse_args()
    show(measure(options.url, options.runs, options.rounds))
