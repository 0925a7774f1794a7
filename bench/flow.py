"""What flow costs: how fast a worker drains runs that use it, as a share of runs that do not; and how long chains take.

    python -m bench.flow [--engine sqlite|postgres|redis] [--runs 4000] [--rounds 3] [--limited 100000]

The kinds take turns within a round, and each is compared with the plain runs of its own round. A server does half the
work, so the comparison is by the clock on the wall; the processor time of the worker stands beside it, which minds
other work on the machine less.
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

from rich.console import Console
from rich.table import Table

from bench.stores import SHELVES, Shelf, shelf
from dovetail import ConcurrencyLimit, Docket, Execution, TaskCall, Worker, result_of

AT_MOST = 0.20
CHAIN = {"postgres": 100.0, "redis": 50.0}
"""Milliseconds that a chain of six may take with an idle worker."""
STEPS = 6
BATCH = 1_000


async def plain(number: int) -> int:
    return number


async def limited(number: int, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=10)) -> int:
    ends.append(time.perf_counter())
    return number


ends: list[float] = []

Fill = Callable[[Docket, int], Awaitable[None]]
"""Puts so many runs on a docket."""


async def alone(docket: Docket, runs: int) -> None:
    await _add(docket, [docket.call(plain)(number) for number in range(runs)])


async def grouped(docket: Docket, runs: int) -> None:
    await _add(docket, [docket.call(plain, group=f"tenant-{number % 50}")(number) for number in range(runs)])


async def ranked(docket: Docket, runs: int) -> None:
    await _add(docket, [docket.call(plain, priority=number % 10)(number) for number in range(runs)])


async def after(docket: Docket, runs: int) -> None:
    parents = await _add(docket, [docket.call(plain)(number) for number in range(runs // 2)])
    await _add(docket, [docket.call(plain, after=[parent])(0) for parent in parents])


async def with_results(docket: Docket, runs: int) -> None:
    parents = await _add(docket, [docket.call(plain)(number) for number in range(runs // 2)])
    await _add(docket, [docket.call(plain)(result_of(parent)) for parent in parents])


async def _add(docket: Docket, calls: list[TaskCall]) -> list[Execution[int]]:
    made: list[Execution[int]] = []
    for start in range(0, len(calls), BATCH):
        made += await docket.add_many(calls[start : start + BATCH])
    return made


KINDS: dict[str, Fill] = {
    "none": alone,
    "group=, 50 of them": grouped,
    "priority=, 10 of them": ranked,
    "after=, every second run": after,
    "a result as argument, every second run": with_results,
}


@dataclass(frozen=True, slots=True)
class Drain:
    rate: float  # runs a second
    cost: float  # microseconds of processor time a run, in the worker


async def drain(url: str, fill: Fill, runs: int) -> Drain:
    async with Docket(name="bench", url=url) as docket:
        await fill(docket, runs)
        gc.collect()
        async with Worker(docket, concurrency=100) as worker:
            began, worked = time.perf_counter(), time.process_time()
            await worker.run_until_finished()
            return Drain(runs / (time.perf_counter() - began), (time.process_time() - worked) / runs * 1e6)


async def chain(url: str, times: int) -> list[float]:
    """Milliseconds from adding a chain, one run after the other, to the result of its last."""
    async with Docket(name="bench", url=url) as docket, Worker(docket) as worker:
        docket.register(plain)
        working = asyncio.create_task(worker.run_forever())
        took: list[float] = []
        for number in range(times + 1):
            began = time.perf_counter()
            step = await docket.add(plain)(number)
            for _ in range(STEPS - 1):
                step = await docket.add(plain)(result_of(step))
            assert await step.get_result() == number
            took.append((time.perf_counter() - began) * 1000)
        working.cancel()
        await working
        return took[1:]  # the first one opens connections


async def parked(url: str, runs: int) -> tuple[float, float]:
    """Runs a second on one limit: of the first tenth that ends, and of the last."""
    ends.clear()
    async with Docket(name="bench", url=url, execution_ttl=timedelta()) as docket:
        await _add(docket, [docket.call(limited)(number) for number in range(runs)])
        async with Worker(docket, concurrency=100) as worker:
            await worker.run_until_finished()
    tenth = runs // 10
    return tenth / (ends[tenth] - ends[0]), tenth / (ends[-1] - ends[-1 - tenth])


def measure(stores: Shelf, runs: int, rounds: int) -> dict[str, list[Drain]]:
    drains: dict[str, list[Drain]] = {name: [] for name in KINDS}
    for _ in range(rounds):
        for name, fill in KINDS.items():
            drains[name].append(asyncio.run(drain(stores.fresh(), fill, runs)))
    return drains


def table_of(drains: dict[str, list[Drain]]) -> Table:
    table = Table("flow", "runs/s", "slower by", f"at most {AT_MOST:.0%}", "µs of CPU a run", "more by")
    for name, mine in drains.items():
        slower = 1 - median(each.rate / base.rate for each, base in zip(mine, drains["none"], strict=True))
        rate, cost = median(each.rate for each in mine), median(each.cost for each in mine)
        verdict = "" if name == "none" else "met" if slower < AT_MOST else "not met"
        more = median(each.cost / base.cost for each, base in zip(mine, drains["none"], strict=True)) - 1
        table.add_row(name, f"{rate:,.0f}", f"{slower:.0%}", verdict, f"{cost:.0f}", f"{more:.0%}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=sorted(SHELVES), default="sqlite")
    parser.add_argument("--runs", type=int, default=4_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--chains", type=int, default=20)
    parser.add_argument("--limited", type=int, default=100_000, help="runs on one limit of 10; 0 leaves it out")
    options = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory() as folder, shelf(options.engine, Path(folder)) as stores:
        console.print(table_of(measure(stores, options.runs, options.rounds)))
        took = median(asyncio.run(chain(stores.fresh(), options.chains)))
        asked = CHAIN.get(options.engine)
        verdict = "" if asked is None else f" (at most {asked:.0f} ms: {'met' if took <= asked else 'not met'})"
        console.print(f"a chain of {STEPS}, each with the result of the one before: {took:.1f} ms{verdict}")
        if options.limited:
            first, last = asyncio.run(parked(stores.fresh(), options.limited))
            console.print(
                f"{options.limited:,} runs on one limit of 10: {first:,.0f}/s in the first tenth, "
                f"{last:,.0f}/s in the last ({last / first:.2f} of it)"
            )


if __name__ == "__main__":
    main()
