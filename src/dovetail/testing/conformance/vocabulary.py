"""The words the tests are written in: short ways to schedule, claim, finish and look."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any

from dovetail.clock import VirtualClock
from dovetail.engine import Countable, Engine
from dovetail.model import (
    Claim,
    Failure,
    Finished,
    NewRun,
    Placement,
    Pulse,
    Requeue,
    Retention,
    Revival,
    Run,
    RunQuery,
    Settle,
    State,
    Swept,
    WorkerInfo,
    new_id,
)

LEASE = timedelta(seconds=30)
MOMENT = timedelta(microseconds=1)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
BOOM = Failure("ValueError", "boom")
AT_ONCE = Retention.of(timedelta())
"""Retention of nothing: the record is dropped when the run ends."""

Another = Callable[[], Awaitable[Engine]]
"""Opens one more connection to the store under test."""


# Scheduling


def a_run(key: str = "a", **fields: Any) -> NewRun:
    """A call to schedule, of a task that does not matter."""
    return NewRun(new_id(), key, fields.pop("task", "task"), **fields)


async def place(engine: Engine, *runs: NewRun) -> list[Placement]:
    return await engine.schedule(runs)


# Claiming


async def take(
    engine: Engine,
    want: int = 10,
    *,
    worker: str = "worker",
    queues: Iterable[str] = (),
    lease: timedelta = LEASE,
) -> list[Claim]:
    """Claim as an obedient worker does: as long as something comes, or it is told not to wait."""
    claims: list[Claim] = []
    in_vain = 0
    while len(claims) < want:
        claimed = await engine.claim(worker, want - len(claims), queues=tuple(queues), lease=lease)
        claims += claimed.claims
        in_vain = 0 if claimed.claims else in_vain + 1
        if in_vain and (claimed.wait is None or claimed.wait > timedelta()):
            break
        assert in_vain < 1000, "told a thousand times that there is work now, and there was none"
    return claims


async def take_once(engine: Engine, want: int = 10, *, worker: str = "worker") -> list[Claim]:
    """What a single call brings."""
    return (await engine.claim(worker, want, lease=LEASE)).claims


async def take_one(engine: Engine, *, worker: str = "worker", lease: timedelta = LEASE) -> Claim:
    """The next run, which must be there."""
    (claim,) = await take(engine, 1, worker=worker, lease=lease)
    return claim


async def start(engine: Engine, *runs: NewRun, worker: str = "worker") -> list[Claim]:
    """Schedule these, and claim that many."""
    await place(engine, *runs)
    return await take(engine, len(runs), worker=worker)


async def start_one(engine: Engine, run: NewRun, *, worker: str = "worker") -> Claim:
    (claim,) = await start(engine, run, worker=worker)
    return claim


async def wait_of(engine: Engine) -> timedelta | None:
    """How long a worker that finds nothing is told to wait."""
    claimed = await engine.claim("worker", 1, lease=LEASE)
    assert not claimed.claims
    return claimed.wait


def keys(items: Iterable[Claim | Run]) -> list[str]:
    return [item.key for item in items]


# Finishing


def completed(claim: Claim, **more: Any) -> Settle:
    return Settle(claim, State.COMPLETED, **more)


def failed(claim: Claim, **more: Any) -> Settle:
    more.setdefault("failure", BOOM)
    return Settle(claim, State.FAILED, **more)


async def complete(engine: Engine, *claims: Claim, **more: Any) -> None:
    answers = await engine.finish([completed(claim, **more) for claim in claims])
    assert answers == [Finished.DONE] * len(claims)


async def fail(engine: Engine, *claims: Claim) -> None:
    answers = await engine.finish([failed(claim) for claim in claims])
    assert answers == [Finished.DONE] * len(claims)


async def requeue(engine: Engine, claim: Claim, **more: Any) -> None:
    """Put the run back, by default without cost."""
    more.setdefault("attempt", claim.attempt)
    answers = await engine.finish([Requeue(claim, **more)])
    assert answers == [Finished.DONE]


async def crash(engine: Engine, clock: VirtualClock, times: int = 1) -> None:
    """Claim the next run and let the lease lapse without a word, so many times."""
    for _ in range(times):
        await take_one(engine, worker="doomed")
        clock.jump(LEASE + SECOND)


async def complete_one_by_one(engine: Engine, *, want: int = 10) -> list[str]:
    """Work until there is nothing left to do now; the keys in the order in which they started."""
    order: list[str] = []
    while claims := await take(engine, want):
        order += keys(claims)
        await complete(engine, *claims)
    return order


async def revive(engine: Engine, *ids: str) -> list[bool]:
    return await engine.revive([Revival(id) for id in ids])


# Looking


async def all_runs(engine: Engine, **query: Any) -> list[Run]:
    """Every run that the query finds, page after page."""
    runs: list[Run] = []
    page = await engine.find(RunQuery(**query))
    runs += page
    while page.cursor is not None:
        page = await engine.find(RunQuery(**query, cursor=page.cursor))
        runs += page
    return runs


async def run_of(engine: Engine, id: str) -> Run | None:
    """The run of this id, if it is kept."""
    runs = (await engine.find(RunQuery(ids=(id,)))).items
    assert len(runs) <= 1
    return runs[0] if runs else None


async def newest(engine: Engine, key: str) -> Run:
    """The newest run of this key, which must be there."""
    (run,) = await engine.find(RunQuery(keys=(key,), latest=True))
    return run


async def state_of(engine: Engine, key: str) -> State | None:
    runs = (await engine.find(RunQuery(keys=(key,), latest=True))).items
    return runs[0].state if runs else None


async def states_of(engine: Engine, *keys: str) -> list[State | None]:
    return [await state_of(engine, key) for key in keys]


# Upkeep


async def beat(engine: Engine, *claims: Claim, worker: str = "worker", lease: timedelta = LEASE) -> Pulse:
    return await engine.heartbeat(WorkerInfo(worker, id=worker), claims, lease=lease)


async def sweep_all(engine: Engine, *, at_most: int = 1000) -> Swept:
    """Sweep until nothing is left to sweep; the sum of what was done."""
    runs = workers = holds = repaired = archived = 0
    more = True
    while more:
        swept = await engine.sweep(at_most=at_most)
        runs, workers = runs + swept.runs, workers + swept.workers
        holds, repaired = holds + swept.holds, repaired + swept.repaired
        archived += swept.archived
        more = swept.more
    return Swept(runs, workers, holds, repaired, archived)


async def assert_empty(engine: Engine) -> None:
    """Fail if the store holds anything of this docket."""
    assert (await engine.find(RunQuery())).items == []
    if isinstance(engine, Countable):
        assert await engine.residue() == {}


async def assert_leaves_nothing(engine: Engine, clock: VirtualClock) -> None:
    """Let a day pass, sweep, and fail if anything is left: all that was scheduled must be over."""
    clock.jump(timedelta(days=1))
    await sweep_all(engine)
    await assert_empty(engine)
