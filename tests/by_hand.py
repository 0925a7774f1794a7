"""A worker's work done by hand: one claim at a time, with nothing in the background and no time passing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from dovetail import Docket, Worker
from dovetail.clock import from_microseconds
from dovetail.model import Claim, Finished, Run, RunQuery, Settle, State, Verdict
from dovetail.worker.lines import Lines
from dovetail.worker.reporter import Reporter
from dovetail.worker.roster import Reason, Tenure
from dovetail.worker.runner import Runner
from tests.waiting import PATIENCE, soon

"""Seconds after which something that should have happened will not."""
LEASE = timedelta(seconds=30)


class ByHand:
    """Claims from a docket, runs what it claimed with the real runner, and writes the verdicts."""

    def __init__(self, docket: Docket, threads: Executor, fallback: Any = None) -> None:
        self.docket = docket
        lines = Lines(docket.labels())
        self.reporter = Reporter(docket.engine, docket.clock)
        self.runner = Runner(docket, docket.clock, threads, lines, "by hand", fallback, reporter=self.reporter)

    async def claim(self) -> Claim:
        """The one run that is due."""
        claimed = await self.docket.engine.claim("by hand", 1, lease=LEASE)
        assert claimed.claims, "nothing is due"
        return claimed.claims[0]

    async def claim_all(self, worker: str = "by hand") -> list[Claim]:
        """Every run that may start now."""
        return (await self.docket.engine.claim(worker, 100, lease=LEASE)).claims

    async def settle(self, claim: Claim, state: State = State.COMPLETED) -> None:
        """End a claim without having run it."""
        assert await self.docket.engine.finish([Settle(claim, state)]) == [Finished.DONE]

    async def attempt(self, *, stop_for: Reason | None = None, once: asyncio.Event | None = None) -> Verdict | None:
        """Claim and run; the verdict is not written. The body is stopped for a reason, once an event has happened."""
        tenure = Tenure(await self.claim(), self.docket.clock.monotonic() + LEASE.total_seconds())
        tenure.task = running = asyncio.create_task(self.runner.run(tenure))  # type: ignore[assignment]
        if stop_for is not None:
            assert once is not None
            await soon(once.wait())
            tenure.stop(stop_for)
        return await soon(running)

    async def step(self) -> Run:
        """Claim, run and write; what the store then knows of the run."""
        verdict = await self.attempt()
        assert verdict is not None
        assert await self.docket.engine.finish([verdict]) == [Finished.DONE]
        return await run_of(self.docket, id=verdict.claim.id)

    async def step_through(self) -> list[Run]:
        """One step after the other, until nothing is due."""
        done: list[Run] = []
        while self._is_due(await self.docket.find_all(RunQuery(states=(State.SCHEDULED, State.QUEUED)))):
            done.append(await self.step())
        return done

    def _is_due(self, runs: list[Run]) -> bool:
        now = from_microseconds(self.docket.clock.microseconds())
        return any(run.due <= now for run in runs)


async def run_of(docket: Docket, *, key: str | None = None, id: str | None = None) -> Run:
    """The newest run of a key, or the run of that id."""
    query = RunQuery(ids=(id,)) if id else RunQuery(keys=(key or "",), newest_first=True, limit=1)
    page = await docket.engine.find(query)
    assert page.items, f"there is no run {id or key!r}"
    return page.items[0]


async def runs_of(docket: Docket, key: str) -> list[Run]:
    return (await docket.engine.find(RunQuery(keys=(key,)))).items


async def finish(worker: Worker, **at_most: int) -> None:
    """Let a worker run until nothing is left. One that does not come to an end is stopped, and the test fails."""
    ending = worker.run_at_most(at_most) if at_most else worker.run_until_finished()
    working = asyncio.create_task(ending)
    done, _ = await asyncio.wait([working], timeout=PATIENCE)
    if not done:
        worker.stop()
        worker.stop()
        await working
        pytest.fail("the worker did not come to an end")
    await working


@asynccontextmanager
async def at_work(*workers: Worker) -> AsyncIterator[None]:
    """Workers that run in the background, and stop in good order."""
    running = [asyncio.create_task(worker.run_forever()) for worker in workers]
    try:
        yield
    finally:
        for worker, task in zip(workers, running, strict=True):
            worker.stop()
            done, _ = await asyncio.wait([task], timeout=PATIENCE)
            if not done:
                worker.stop()
            await task
