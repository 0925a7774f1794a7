"""What the steps of one run cost in Python alone, in microseconds: no store, no disk, one process."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table
from uncalled_for import Depends, resolved_dependencies

from dovetail import Docket
from dovetail.clock import SYSTEM_CLOCK
from dovetail.codec import CallTypes
from dovetail.model import Claim, Conflict, NewRun, Retention, Verdict, new_id
from dovetail.tasks import Task
from dovetail.worker.lines import Lines
from dovetail.worker.roster import Tenure
from dovetail.worker.runner import Runner

SAMPLES = 9
LASTING = 0.05  # seconds that a sample takes


@dataclass(frozen=True, slots=True)
class Step:
    title: str
    do: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class AsyncStep:
    title: str
    do: Callable[[], Awaitable[Any]]


def show(console: Console) -> None:
    table = Table(title="the steps of one run, in Python alone", title_justify="left")
    table.add_column("step")
    table.add_column("µs, least", justify="right")
    table.add_column("µs, median", justify="right")
    for step in STEPS:
        costs = asyncio.run(_costs(step))
        table.add_row(step.title, f"{min(costs):.2f}", f"{median(costs):.2f}")
    console.print(table)


async def _costs(step: Step | AsyncStep) -> list[float]:
    """Microseconds a time. The least is the step itself, what is above it is the machine."""
    repeat = _repeated(step)
    times = 1
    async with DOCKET:
        while (took := await repeat(times)) < LASTING:
            times = max(times * 2, round(times * LASTING / max(took, 1e-9)))
        return [await repeat(times) / times * 1e6 for _ in range(SAMPLES)]


def _repeated(step: Step | AsyncStep) -> Callable[[int], Awaitable[float]]:
    """Seconds of processor time that so many times of a step take."""
    do = step.do

    async def together(times: int) -> float:
        began = time.process_time()
        for _ in range(times):
            do()
        return time.process_time() - began

    async def in_turn(times: int) -> float:
        began = time.process_time()
        for _ in range(times):
            await do()
        return time.process_time() - began

    return in_turn if isinstance(step, AsyncStep) else together


# The steps


async def noop(number: int) -> None: ...


def answer() -> int:
    return 42


async def injected(number: int, value: int = Depends(answer)) -> None: ...


async def run_as_a_task() -> None:
    await asyncio.create_task(noop(1))


async def resolve_one_dependency() -> None:
    async with resolved_dependencies(injected, {"number": 1}) as values:
        await injected(1, **values)


def make_a_new_run() -> NewRun:
    return NewRun(id="1", key="1", task="noop", payload=b"[1]", due=timedelta())


DOCKET = Docket(name="micro", url="memory://micro")  # no step reaches its store
DOCKET.register(noop)
DOCKET.register(injected)
TYPES = CallTypes.of(noop)
CALL = DOCKET.codec.dump_call(TYPES, (1,), {})
RESULT = DOCKET.codec.dump_result(TYPES, None)
CALL_OF_NOOP = DOCKET.call(noop)


def draft() -> NewRun:
    return DOCKET.drafter.draft(
        Task.of(noop), "noop", (1,), {}, key=None, due=timedelta(), conflict=Conflict.KEEP, retention=Retention()
    )


def attempt_at(task: str) -> Callable[[], Awaitable[Verdict | None]]:
    """One attempt of a task, from a claim to a verdict."""
    runner = cache(lambda: Runner(DOCKET, SYSTEM_CLOCK, ThreadPoolExecutor(1), Lines({}), "bench"))  # once it is open
    due = datetime.now(UTC)
    tenure = Tenure(Claim(id="1", epoch=1, key="1", task=task, payload=CALL, attempt=1, due=due), deadline=0)
    return lambda: runner().run(tenure)


STEPS = (
    Step("json.dumps and json.loads of [1], to compare with", lambda: json.loads(json.dumps([1]))),
    AsyncStep("an asyncio task of a no-op, to compare with", run_as_a_task),
    Step("new_id()", new_id),
    Step("NewRun(...)", make_a_new_run),
    Step("the types of a task, looked up", lambda: CallTypes.of(noop)),
    Step("codec: dump a call of one int", lambda: DOCKET.codec.dump_call(TYPES, (1,), {})),
    Step("docket.call(task)(1)", lambda: CALL_OF_NOOP(1)),
    Step("the draft of a run, with id, dump and NewRun", draft),
    Step("codec: load the call", lambda: DOCKET.codec.load_call(TYPES, CALL)),
    Step("codec: dump the result None", lambda: DOCKET.codec.dump_result(TYPES, None)),
    Step("codec: load that", lambda: DOCKET.codec.load_result(TYPES, RESULT)),
    AsyncStep("uncalled-for: resolve one Depends, and call", resolve_one_dependency),
    AsyncStep("runner: an attempt, from claim to verdict", attempt_at("noop")),
    AsyncStep("runner: the same with one Depends", attempt_at("injected")),
)
