"""The leak check."""

import asyncio
import threading
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from dovetail import Docket, Retention, Worker, task
from dovetail.clock import VirtualClock
from dovetail.model import Hold, HoldKind, Limit, NewRun, new_id
from dovetail.tasks import Task
from dovetail.testing import assert_nothing_left, drain, leak_check

HOUR = timedelta(hours=1)


async def nothing() -> None: ...


async def test_a_docket_that_is_done_passes(still: Docket) -> None:
    async with leak_check(still):
        await still.add(nothing)()
        await drain(still)


async def test_a_docket_on_the_hosts_clock_that_is_done_passes(docket: Docket) -> None:
    async with leak_check(docket):
        await docket.add(nothing)()
        await drain(docket)


async def test_what_is_kept_for_ever_is_no_leak(still: Docket) -> None:
    @task(retention=Retention(keep=5, archive=timedelta.max))
    async def eternal() -> None: ...

    async with leak_check(still):
        await still.add_many([still.call(eternal)() for _ in range(7)])
        await drain(still)
    assert await still.engine.residue() == {}  # type: ignore[attr-defined]


async def test_a_run_that_waits_is_found(still: Docket, clock: VirtualClock) -> None:
    with pytest.raises(AssertionError, match=r"1 runs are left on the docket 'tests':\n  - nothing key='k' scheduled"):
        async with leak_check(still):
            await still.add(nothing, key="k", when=clock.now() + HOUR)()


async def test_a_run_that_runs_is_found(still: Docket) -> None:
    await still.add(nothing, key="k")()
    await still.engine.claim("worker", 1, lease=HOUR)
    with pytest.raises(AssertionError, match="key='k' running"):
        await assert_nothing_left(still)


async def test_many_runs_are_not_all_listed(still: Docket) -> None:
    with pytest.raises(AssertionError, match=r"1100 runs are left(?s:.*)and 1080 more"):
        async with leak_check(still):
            await still.add_many([still.call(nothing)() for _ in range(1100)])


async def test_a_hold_is_found(still: Docket) -> None:
    with pytest.raises(AssertionError, match="it still holds: 1 x hold"):
        async with leak_check(still):
            await still.engine.hold([Hold(HoldKind.PAUSE, queue="default")])


async def test_a_slot_is_found(docket: Docket, monkeypatch: pytest.MonkeyPatch) -> None:
    # There is no way to leave one behind; so the store is made to say that there is.
    async def residue() -> dict[str, int]:
        return {"slot": 2, "run": 1}

    monkeypatch.setattr(docket.engine, "residue", residue)
    with pytest.raises(AssertionError, match=r"it still holds: 2 x slot$"):
        async with leak_check(docket):
            pass


async def test_what_limits_leave_goes_in_time(still: Docket) -> None:
    async with leak_check(still):
        limits = (Limit("l", 1), Limit("w", 1, window=HOUR))
        still.register(nothing)
        payload = still.codec.dump_call(Task.of(nothing).types, (), {})
        await still.engine.schedule([NewRun(new_id(), "k", "nothing", payload, limits=limits)])
        await drain(still)


async def test_a_docket_that_was_not_closed_is_found(url: str) -> None:
    async with AsyncExitStack() as stack:
        with pytest.raises(AssertionError, match=r"left behind: .*the thread dovetail-writer; close every docket"):
            async with leak_check():
                await stack.enter_async_context(Docket("tests", url))


async def test_a_worker_that_was_not_stopped_is_found(still: Docket) -> None:
    async with Worker(still) as worker:
        check = leak_check()
        await check.__aenter__()
        running = asyncio.create_task(worker.run_forever())
        await still.clock.settle()  # type: ignore[attr-defined]
        with pytest.raises(AssertionError, match="the asyncio task 'dovetail pulse'"):
            await check.__aexit__(None, None, None)
        worker.stop()
        await running


async def test_a_worker_at_work_is_no_leak_of_its_docket(still: Docket, clock: VirtualClock) -> None:
    async with Worker(still) as worker:
        running = asyncio.create_task(worker.run_forever())
        await still.add(nothing)()
        await clock.advance(HOUR)
        await assert_nothing_left(still)
        worker.stop()
        await running


async def test_whatever_was_closed_leaves_nothing(url: str) -> None:
    def plain() -> None: ...

    async with leak_check(), Docket("tests", url) as docket:
        await docket.add(plain)()
        await drain(docket)


async def test_an_error_inside_goes_before(still: Docket) -> None:
    await still.add(nothing)()
    with pytest.raises(LookupError):
        async with leak_check(still):
            raise LookupError


class Ending(threading.Thread):
    """A thread that ends once somebody waits for it."""

    def __init__(self) -> None:
        self.awaited = threading.Event()
        super().__init__(target=self.awaited.wait, name="dovetail-pulse")

    def join(self, timeout: float | None = None) -> None:
        self.awaited.set()
        super().join(timeout)


async def test_a_thread_that_is_about_to_end_is_waited_for() -> None:
    async with leak_check():
        Ending().start()
