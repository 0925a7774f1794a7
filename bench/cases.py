"""What is measured. A case takes one system through one workload, on stores of its own."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from statistics import median

from bench.crew import Crew, Post, crew
from bench.measure import Metric, Reading, percentile, rate
from bench.stores import Shelf
from bench.system import Backlog, Bulk, HasBacklog, System

NOW = timedelta()
FAR_FUTURE = timedelta(days=365)
BATCH = 1_000  # tasks per call of a bulk enqueue
FILL = 10_000  # the same, where nobody measures
WANT = 100  # runs per claim, in the backlog cases
WARM_UP = 50  # tasks
SETTLE = 100  # turns before one is measured: while a write-ahead log grows, it syncs more slowly

THROUGHPUT = "throughput"
ONE_WORKER = "an idle worker"
BACKLOG = f"the store alone: a claim of {WANT} runs beside a backlog, and their finish"


@dataclass(frozen=True, slots=True)
class Load:
    """How much of everything: the size of a run of the bench."""

    adds: int = 2_000  # one by one
    bulk: int = 50_000
    drain: float = 3.0  # seconds that a drain should last, at the pace a system says it has
    latencies: int = 200
    pause: float = 0.02  # seconds between two of them, on average
    calm: float = 1.0  # seconds for a worker to calm down before it counts as idle
    idle: float = 5.0  # seconds
    backlogs: tuple[int, ...] = (1_000, 100_000, 1_000_000)
    claims: int = 100  # per backlog

    def scaled(self, factor: float) -> Load:
        """The same, smaller or larger. Idle time is not scaled: below five seconds it says little."""
        return replace(
            self,
            adds=max(round(self.adds * factor), 100),
            bulk=max(round(self.bulk * factor), BATCH),
            drain=self.drain * factor,
            latencies=max(round(self.latencies * factor), 20),
            backlogs=tuple(max(round(size * factor), 1_000) for size in self.backlogs),
            claims=max(round(self.claims * factor), 10),
        )


@dataclass(frozen=True, slots=True)
class Trial:
    """One system, and what it is tried with."""

    engine: str
    name: str
    adapter: type[System]
    shelf: Shelf
    load: Load

    def system(self) -> System:
        """The system on an empty store."""
        return self.adapter(self.shelf.fresh())

    @contextmanager
    def staffed(self, tasks: int, *, processes: int, concurrency: int) -> Iterator[tuple[System, Crew]]:
        """The system on an empty store, and worker processes that stand ready there."""
        url = self.shelf.fresh()
        post = Post(self.engine, self.name, url)
        with crew(post, processes=processes, concurrency=concurrency, tasks=tasks) as workers:
            yield self.adapter(url), workers


@dataclass(frozen=True, slots=True)
class Case:
    """A workload by its name. `once`: it measures many times by itself, so one round says it all."""

    name: str
    measure: Callable[[Trial], Awaitable[list[Reading]]]
    once: bool = False


# Enqueue


async def enqueue_one_by_one(trial: Trial) -> list[Reading]:
    """Each add is awaited before the next: a commit per task."""
    async with trial.system() as system:
        for number in range(WARM_UP):
            await system.enqueue(number)
        began = time.perf_counter()
        for number in range(trial.load.adds):
            await system.enqueue(number)
        took = time.perf_counter() - began
    return [Reading(Metric("enqueue", "enqueue one by one", "/s", THROUGHPUT), trial.load.adds / took)]


async def enqueue_in_bulk(trial: Trial) -> list[Reading]:
    """A thousand tasks a call, the making of the calls included."""
    async with trial.system() as system:
        if not isinstance(system, Bulk):
            return []
        await system.enqueue_many(range(BATCH))
        began = time.perf_counter()
        for first in range(0, trial.load.bulk, BATCH):
            await system.enqueue_many(range(first, first + BATCH))
        took = time.perf_counter() - began
    return [Reading(Metric("bulk", f"enqueue {BATCH:,} a call", "/s", THROUGHPUT), trial.load.bulk / took)]


# Drain


def drain(processes: int, concurrency: int) -> Case:
    """Worker processes empty a queue that was filled before. Starts count, from the first to the last."""
    name = f"drain-{processes}x{concurrency}"
    title = f"drain {processes}x{concurrency}"
    starts = Metric(name, title, "/s", THROUGHPUT)
    cost = Metric(f"{name}-cpu", f"{title}: worker CPU per task", "µs", THROUGHPUT)
    memory = Metric(f"{name}-rss", f"{title}: worker memory after", "MiB", THROUGHPUT)
    commands = Metric(f"{name}-commands", f"{title}: server commands per task", "", THROUGHPUT)

    async def measure(trial: Trial) -> list[Reading]:
        tasks = max(round(trial.adapter.pace * trial.load.drain), 10 * concurrency)
        with trial.staffed(tasks, processes=processes, concurrency=concurrency) as (system, workers):
            await _fill(system, tasks)
            cpu_before, commands_before = workers.cpu(), trial.shelf.commands()
            workers.go()
            await workers.until_all_started()
            cpu, commands_after = workers.cpu() - cpu_before, trial.shelf.commands()
            readings = [
                Reading(starts, rate(workers.starts.stamps())),
                Reading(cost, cpu / tasks * 1e6),
                Reading(memory, workers.memory()),
            ]
            if commands_before is not None and commands_after is not None:
                readings.append(Reading(commands, (commands_after - commands_before) / tasks))
            return readings

    return Case(name, measure)


async def _fill(system: System, tasks: int) -> None:
    async with system:
        for first in range(0, tasks, FILL):
            await system.fill(range(first, min(first + FILL, tasks)))


# An idle worker


async def latency(trial: Trial) -> list[Reading]:
    """From the call of add, in this process, to the start of the task in an idle worker's process."""
    added: list[int] = []
    with trial.staffed(1 + trial.load.latencies, processes=1, concurrency=10) as (system, workers):
        async with system:
            await _warm(workers, system)
            for number in range(1, 1 + trial.load.latencies):
                # A pause of even length could fall in step with a worker that polls.
                await asyncio.sleep(random.uniform(0.5, 1.5) * trial.load.pause)
                added.append(time.monotonic_ns())
                await system.enqueue(number)
            await workers.until_all_started()
        started = workers.starts.stamps()[1:]
    waits = [(start - add) / 1e6 for add, start in zip(added, started, strict=True)]
    return [
        Reading(Metric(f"latency-p{percent}", f"add to start, p{percent}", "ms", ONE_WORKER), figure)
        for percent in (50, 99)
        for figure in [percentile(waits, percent)]
    ]


async def idle(trial: Trial) -> list[Reading]:
    """What a worker costs that has nothing to do."""
    with trial.staffed(1, processes=1, concurrency=10) as (system, workers):
        async with system:
            await _warm(workers, system)
        await asyncio.sleep(trial.load.calm)
        cpu_before, began = workers.cpu(), time.perf_counter()
        await asyncio.sleep(trial.load.idle)
        share = (workers.cpu() - cpu_before) / (time.perf_counter() - began)
        return [
            Reading(Metric("idle-cpu", "CPU while idle", "% of a core", ONE_WORKER), share * 100),
            Reading(Metric("idle-rss", "memory while idle", "MiB", ONE_WORKER), workers.memory()),
        ]


async def _warm(workers: Crew, system: System) -> None:
    """Let the worker run one task, so that it is up and has done everything it does only once."""
    workers.go()
    await system.enqueue(0)
    await workers.until_started(0)


# The store under a backlog


def claim_beside(kind: str, delay: timedelta) -> Case:
    """Claims on stores with a thousand, a hundred thousand and a million runs: do they take longer?"""

    async def measure(trial: Trial) -> list[Reading]:
        async with AsyncExitStack() as stack:
            stores: dict[int, Backlog] = {}
            for size in trial.load.backlogs:
                system = trial.system()
                if not isinstance(system, HasBacklog):
                    return []
                stores[size] = await stack.enter_async_context(system.backlog())
                await _stock(stores[size], size, delay)
            # The stores take turns, so that a slow moment of the disk meets all of them.
            turns = [{size: await _turn(store) for size, store in stores.items()} for _ in range(trial.load.claims)]
        return [reading for size in stores for reading in _readings(kind, size, turns)]

    return Case(f"claim-{kind}", measure, once=True)


@dataclass(frozen=True, slots=True)
class Turn:
    """Seconds that a claim took, and the finish of what it brought."""

    claim: float
    finish: float


async def _turn(store: Backlog) -> Turn:
    await store.add(WANT, NOW)  # what is claimed is made up for, so the backlog stays
    began = time.perf_counter()
    claimed = await store.claim(WANT)
    between = time.perf_counter()
    await store.finish(claimed)
    ended = time.perf_counter()
    assert len(claimed) == WANT
    return Turn(between - began, ended - between)


async def _stock(store: Backlog, size: int, delay: timedelta) -> None:
    for first in range(0, size, FILL):
        await store.add(min(FILL, size - first), delay)
    for _ in range(SETTLE):
        await _turn(store)


def _readings(kind: str, size: int, turns: list[dict[int, Turn]]) -> list[Reading]:
    name, beside = f"claim-{kind}-{size}", f"beside {size:,} {kind}"
    smallest = min(turns[0])
    claim = median(turn[size].claim for turn in turns)
    growth = median(turn[size].claim / turn[smallest].claim for turn in turns)
    finish = median(turn[size].finish for turn in turns)
    return [
        Reading(Metric(name, f"claim {beside}", "ms", BACKLOG), claim * 1e3),
        Reading(Metric(f"{name}-growth", f"claim {beside} ÷ beside {smallest:,}", "", BACKLOG), growth),
        Reading(Metric(f"{name}-finish", f"finish {beside}", "ms", BACKLOG), finish * 1e3),
    ]


CASES = (
    Case("enqueue", enqueue_one_by_one),
    Case("bulk", enqueue_in_bulk),
    drain(1, 10),
    drain(1, 100),
    drain(2, 100),
    Case("latency", latency),
    Case("idle", idle),
    claim_beside("queued", NOW),
    claim_beside("scheduled", FAR_FUTURE),
)
