"""What tasks share and cannot be made: no run loses an attempt by it, and the worker takes in less."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest
from uncalled_for import SharedContext

from dovetail import CurrentWorker, Depends, Docket, Retry, Shared, Worker
from dovetail.clock import VirtualClock
from dovetail.model import State
from dovetail.testing import drain
from dovetail.worker import setbacks
from dovetail.worker.brake import CALM, LONGEST, Brake
from tests.by_hand import ByHand, at_work, run_of
from tests.waiting import soon

MakeWorker = Callable[..., Worker]
MOMENT = timedelta(milliseconds=1)


class Pool:
    """Something shared that cannot be made the first few times."""

    def __init__(self, troubles: int) -> None:
        self.troubles = troubles
        self.tries = 0

    async def make(self) -> str:
        self.tries += 1
        if self.tries <= self.troubles:
            raise ConnectionRefusedError("no database")
        return "pool"


async def test_a_run_waits_for_what_it_shares_at_no_cost(still: Docket) -> None:
    pool = Pool(3)

    async def use(given: str = Shared(pool.make), retry: Retry = Retry(attempts=2)) -> str:
        return f"{given} in attempt {retry.attempt}"

    execution = await still.add(use)()
    await drain(still, future=True)
    assert await execution.get_result() == "pool in attempt 1"
    run = await run_of(still, id=execution.id)
    assert [each.failure.type for each in run.errors] == ["SharedUnavailable"] * 3
    assert "ConnectionRefusedError: no database" in run.errors[0].failure.message


async def test_it_may_be_shared_by_what_the_task_depends_on(still: Docket) -> None:
    pool = Pool(1)

    def session(given: str = Shared(pool.make)) -> str:
        return f"session of {given}"

    async def use(given: str = Depends(session)) -> str:
        return given

    execution = await still.add(use)()
    await drain(still, future=True)
    assert await execution.get_result() == "session of pool"


async def test_a_dependency_of_the_run_alone_costs_an_attempt(still: Docket, by_hand: ByHand) -> None:
    def session() -> str:
        raise ConnectionRefusedError

    async def use(given: str = Depends(session)) -> None: ...

    await still.add(use)()
    assert (await by_hand.step()).state is State.FAILED


async def test_what_can_never_be_made_fails_the_run_in_the_end(still: Docket) -> None:
    pool = Pool(1000)

    async def use(given: str = Shared(pool.make), retry: Retry = Retry(attempts=2)) -> None: ...

    execution = await still.add(use)()
    await drain(still, future=True)
    run = await run_of(still, id=execution.id)
    assert (run.state, run.attempt, pool.tries) == (State.FAILED, 2, 2 * setbacks.MOST)


async def test_why_tells_that_a_run_was_put_back(still: Docket, by_hand: ByHand) -> None:
    pool = Pool(1000)

    async def use(given: str = Shared(pool.make)) -> None: ...

    await still.add(use, key="k")()
    async with SharedContext():
        for _ in range(2):
            await by_hand.step()
    why = await still.why("k")
    assert "It was put back" in why.cause.text
    assert "no database" in why.cause.text


async def test_a_worker_that_cannot_do_the_work_leaves_it_to_the_others(
    docket: Docket, make_worker: MakeWorker
) -> None:
    tried: Counter[str] = Counter()

    async def make(worker: Worker = CurrentWorker()) -> str:
        tried[worker.name] += 1
        if worker.name == "broken":
            raise ConnectionRefusedError
        return "pool"

    async def use(given: str = Shared(make)) -> str:
        return given

    workers = [make_worker(name=name, concurrency=5) for name in ("broken", "sound")]
    executions = await docket.add_many(docket.call(use)() for _ in range(1000))
    async with at_work(*workers):
        for execution in executions:
            assert await soon(execution.get_result()) == "pool"
    assert 0 < tried["broken"] <= 100


def test_the_pauses_grow_to_a_bound_and_begin_anew_after_a_while(clock: VirtualClock) -> None:
    brake = Brake(clock)
    assert not brake.pause

    def pauses(count: int) -> list[float]:
        found: list[float] = []
        for _ in range(count):
            brake.press()
            found.append(brake.pause.total_seconds())
            brake.press()  # by what came along
            assert brake.pause.total_seconds() == pytest.approx(found[-1])
            clock.jump(brake.pause + MOMENT)
        return found

    first = pauses(8)
    assert first[0] <= 0.25 < first[2] < first[-1] <= LONGEST
    clock.jump(timedelta(seconds=CALM))
    assert pauses(1)[0] <= 0.25
