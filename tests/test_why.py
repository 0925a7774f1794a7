"""Why a run is not running: every cause, on every store."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Annotated, Any

import pytest

from dovetail import ConcurrencyLimit, Cooldown, Docket, RateLimit, Retry, Why
from dovetail.clock import VirtualClock, from_microseconds
from dovetail.errors import InvalidArgument, InvalidType
from dovetail.model import Blockage, Failure, Requeue, Settle, State, WorkerInfo
from dovetail.model import ProgressReport as Report
from dovetail.why import CauseCode
from dovetail.worker import pulse
from tests.by_hand import LEASE, ByHand, at_work
from tests.conftest import MakeWorker
from tests.faults import behind_a_door
from tests.waiting import soon

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


async def note(what: str = "") -> str:
    return what


async def sync(customer_id: Annotated[int, ConcurrencyLimit(1)]) -> None: ...


async def call(tenant: Annotated[str, RateLimit(1, per=MINUTE)]) -> None: ...


async def refresh(cooldown: Cooldown = Cooldown(MINUTE)) -> None: ...


async def breaks(retry: Retry = Retry(attempts=3, delay=MINUTE)) -> None:
    raise ValueError("broken")


TASKS = frozenset({"note", "sync", "call", "refresh", "breaks", "fails"})


async def alive(docket: Docket, name: str = "ann", **said: Any) -> None:
    """A worker that says it is there; it knows every task of these tests, and has room."""
    said = {"tasks": TASKS, "concurrency": 10, **said}
    await docket.engine.heartbeat(WorkerInfo(name, id=name, **said), [], lease=LEASE)


def now(clock: VirtualClock) -> Any:
    return from_microseconds(clock.microseconds())


def says(why: Why, *texts: str) -> bool:
    return all(text in str(why) for text in texts)


# There is no such run, or it is over


async def test_a_key_that_nobody_knows(still: Docket) -> None:
    why = await still.why("nobody")
    assert (why.codes, why.state, why.is_known) == ((CauseCode.UNKNOWN,), None, False)
    assert says(why, "There is no record of a run 'nobody'")


async def test_what_is_no_key_is_refused(still: Docket) -> None:
    with pytest.raises(InvalidType):
        await still.why(7)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        await still.why("")


async def test_a_run_that_completed(still: Docket, by_hand: ByHand, clock: VirtualClock) -> None:
    execution = await still.add(note, key="done")()
    await by_hand.step()
    clock.jump(5 * SECOND)
    why = await still.why(execution)
    assert why.codes == (CauseCode.COMPLETED,)
    assert says(why, "It completed 5 s ago", "on attempt 1")
    assert why.cause.facts["finished"] == now(clock) - 5 * SECOND


async def test_a_run_that_failed_has_its_last_error(still: Docket, by_hand: ByHand) -> None:
    async def fails() -> None:
        raise ValueError("no such customer")

    await still.add(fails, key="k")()
    await by_hand.step()
    why = await still.why("k")
    assert why.codes == (CauseCode.FAILED,)
    assert says(why, "ValueError: no such customer")


async def test_a_run_that_was_cancelled(still: Docket) -> None:
    await still.add(note, key="k")()
    await still.cancel("k")
    why = await still.why("k")
    assert why.codes == (CauseCode.CANCELLED,)
    assert says(why, "It was cancelled less than 1 s ago")


async def test_a_run_that_its_parent_took_along(still: Docket, by_hand: ByHand) -> None:
    async def fails() -> None:
        raise ValueError("broken")

    parent = await still.add(fails, key="extract")()
    await still.add(note, key="load", after=[parent])()
    await by_hand.step()
    why = await still.why("load")
    assert why.codes == (CauseCode.CANCELLED_BY_PARENT,)
    assert says(why, "because 'extract', which it waited for, failed: ValueError: broken")
    assert why.cause.facts["parent"] == "extract"


async def test_a_run_that_a_strike_cancelled_says_so(still: Docket, by_hand: ByHand) -> None:
    await still.add(note, key="k")("x")
    await still.strike(note)
    await by_hand.step()
    why = await still.why("k")
    assert why.codes == (CauseCode.CANCELLED,)
    assert says(why, "Stricken: a strike forbade it")


async def test_a_run_that_a_limit_dropped(still: Docket, by_hand: ByHand) -> None:
    await still.add(refresh)()
    await still.add(refresh, key="second")()
    assert len(await by_hand.claim_all()) == 1
    why = await still.why("second")
    assert why.codes == (CauseCode.CANCELLED,)
    assert says(why, "there was no room under Cooldown of 'refresh', which cancels what it does not admit")


# Its time has not come


async def test_a_run_that_is_due_later(still: Docket, clock: VirtualClock) -> None:
    await alive(still)
    await still.add(note, key="k", when=now(clock) + 42 * SECOND)()
    why = await still.why("k")
    assert (why.codes, why.at) == ((CauseCode.SCHEDULED,), now(clock))
    assert says(why, "It is due in 42 s, at ")


async def test_a_run_that_waits_for_its_retry(still: Docket, by_hand: ByHand, clock: VirtualClock) -> None:
    await alive(still)
    await still.add(breaks, key="k")()
    await by_hand.step()
    clock.jump(SECOND)
    why = await still.why("k")
    assert why.codes == (CauseCode.RETRYING,)
    assert says(why, "Attempt 1 failed 1 s ago with ValueError: broken. Attempt 2 is due in 59 s")


# Holds


async def test_a_paused_queue(still: Docket, clock: VirtualClock) -> None:
    await alive(still)
    await still.add(note, key="k", queue="mail")()
    await still.pause("mail", reason="the provider is down", owner="ann", until=now(clock) + MINUTE)
    why = await still.why("k")
    assert why.codes == (CauseCode.PAUSED,)
    assert says(why, "'mail' is paused by ann", "until", "(the provider is down)")
    assert why.cause.facts["until"] == now(clock) + MINUTE


async def test_a_pause_of_another_queue_is_no_cause(still: Docket) -> None:
    await alive(still)
    await still.add(note, key="k")()
    await still.pause("mail")
    assert (await still.why("k")).codes == (CauseCode.READY,)


async def test_a_strike_is_told_with_its_rule(still: Docket) -> None:
    await alive(still)
    await still.add(note, key="k")("spam")
    await still.strike(note, "what", "==", "spam", reason="complaints", owner="bob")
    await still.strike(note, "what", "==", "ham")
    why = await still.why("k")
    assert why.codes == (CauseCode.STRUCK,)
    assert says(why, "of 'note' with what == 'spam'", "laid by bob", "(complaints)")
    facts = why.cause.facts
    assert (facts["task"], facts["parameter"], facts["operator"], facts["value"]) == ("note", "what", "==", "'spam'")


async def test_a_call_that_was_struck_when_it_was_made(still: Docket) -> None:
    await still.strike(note)
    execution = await still.add(note, key="k")()
    why = await still.why(execution)
    assert (why.codes, why.is_known) == ((CauseCode.STRUCK,), False)
    assert says(why, "It was not scheduled")
    assert (await still.why("k")).codes == (CauseCode.UNKNOWN,)


async def test_a_program_that_does_not_know_the_task_says_what_it_cannot_judge(still: Docket, url: str) -> None:
    await alive(still)
    await still.add(note, key="k")("spam")
    await still.strike(note, "what", "==", "spam")
    async with Docket("tests", url, clock=still.clock) as stranger:
        why = await stranger.why("k")
    assert CauseCode.MAY_BE_STRUCK in why.codes
    assert CauseCode.STRUCK not in why.codes


# Limits


async def test_a_full_limit_names_who_holds_it(still: Docket, by_hand: ByHand, clock: VirtualClock) -> None:
    await alive(still)
    await still.add(sync, key="first")(7)
    started = now(clock)
    assert len(await by_hand.claim_all("bob")) == 1
    await still.add(sync, key="second")(7)
    await still.add(sync, key="third")(7)
    assert await by_hand.claim_all() == []
    clock.jump(3 * SECOND)
    why = await still.why("third")
    assert why.codes == (CauseCode.LIMIT_FULL,)
    assert says(why, "customer_id=7 (ConcurrencyLimit of 'sync') is full: 1 at once", "held by 'first' on 'bob' since")
    assert says(why, "1 run waits for it before this one")
    assert why.cause.facts["holders"] == [{"key": "first", "worker": "bob", "since": started}]


async def test_a_limit_that_is_full_counts_before_it_was_tried(still: Docket, by_hand: ByHand) -> None:
    await alive(still)
    await still.add(sync)(7)
    await by_hand.claim_all()
    await still.add(sync, key="k")(7)
    assert (await still.why("k")).codes == (CauseCode.LIMIT_FULL,)


async def test_a_rate_that_is_used_up_says_when_it_opens(still: Docket, by_hand: ByHand, clock: VirtualClock) -> None:
    await alive(still)
    opens = now(clock) + MINUTE
    await still.add(call)("acme")
    await by_hand.claim_all()
    await still.add(call, key="k")("acme")
    assert await by_hand.claim_all() == []
    why = await still.why("k")
    assert why.codes == (CauseCode.WINDOW_CLOSED,)
    assert says(why, "tenant='acme' (RateLimit of 'call') is used up: 1 start per 1 min. It opens in 1 min, at")
    assert why.cause.facts["opens"] == opens


# Parents


async def test_a_run_that_waits_for_its_parents(still: Docket, by_hand: ByHand) -> None:
    await alive(still)
    done = await still.add(note, key="done", priority=1)()
    await by_hand.step()
    running = await still.add(note, key="running", priority=1)()
    await by_hand.claim()
    queued = await still.add(note, key="queued")()
    await still.add(note, key="k", after=[done, running, queued])()
    why = await still.why("k")
    assert why.codes == (CauseCode.WAITING_FOR_PARENTS,)
    assert says(why, "'running' (running)", "'queued' (queued)")
    assert set(why.cause.facts["unmet"]) == {"running", "queued"}


async def test_a_parent_that_failed_is_told(still: Docket, by_hand: ByHand) -> None:
    async def fails() -> None:
        raise ValueError("broken")

    await alive(still)
    failed = await still.add(fails, key="failed", priority=1)()
    queued = await still.add(note, key="queued")()
    await still.add(note, key="k", after=[failed, queued], after_failure="run")()
    await by_hand.step()
    why = await still.why("k")
    assert why.codes == (CauseCode.WAITING_FOR_PARENTS,)
    assert says(why, "Of those that are over, 'failed' failed (ValueError: broken)")


# Workers


async def test_no_worker_at_all(still: Docket, clock: VirtualClock) -> None:
    await still.add(note, key="k")()
    assert (await still.why("k")).codes == (CauseCode.NO_WORKER,)
    await alive(still)
    assert (await still.why("k")).codes == (CauseCode.READY,)
    clock.jump(MINUTE)
    why = await still.why("k")
    assert why.codes == (CauseCode.NO_WORKER,)
    assert says(why, "The last one was heard of 1 min ago")


async def test_no_worker_for_its_queue(still: Docket) -> None:
    await alive(still, queues=("bulk", "default"))
    await still.add(note, key="k", queue="mail")()
    why = await still.why("k")
    assert why.codes == (CauseCode.NO_WORKER_FOR_QUEUE,)
    assert says(why, "No live worker takes the queue 'mail'", "'bulk' and 'default'")


async def test_no_worker_for_its_task(still: Docket) -> None:
    await alive(still, tasks=frozenset({"other"}))
    await alive(still, "bob", queues=("bulk",))
    await still.add(note, key="k")()
    why = await still.why("k")
    assert why.codes == (CauseCode.NO_WORKER_FOR_TASK,)
    assert says(why, "No live worker of its queue knows the task 'note'", "do not take the queue: 'bob'")


async def test_a_run_that_was_put_back_for_want_of_its_task(still: Docket, by_hand: ByHand) -> None:
    await alive(still, tasks=frozenset({"other"}))
    await still.add(note, key="k")()
    claim = await by_hand.claim()
    await still.engine.finish([Requeue(claim, claim.attempt, 5 * SECOND)])
    assert (await still.why("k")).codes == (CauseCode.NO_WORKER_FOR_TASK, CauseCode.SCHEDULED)


async def test_a_worker_with_a_fallback_knows_every_task(still: Docket) -> None:
    await alive(still, tasks=frozenset(), has_fallback=True)
    await still.add(note, key="k")()
    assert (await still.why("k")).codes == (CauseCode.READY,)


async def test_workers_that_are_all_busy(still: Docket) -> None:
    await alive(still, concurrency=2, running=2)
    await alive(still, "bob", concurrency=3, running=3)
    await alive(still, "eve", queues=("mail",))
    for n in range(4):
        await still.add(note, key=f"{n}")()
    why = await still.why("3")
    assert why.codes == (CauseCode.WORKERS_BUSY,)
    assert says(why, "busy: 2 workers with 5 slots. About 3 runs of its queue are before it.")
    assert why.cause.facts["ahead"] == 3


async def test_a_run_that_is_about_to_start(still: Docket) -> None:
    await alive(still)
    await still.add(note, key="k")()
    why = await still.why("k")
    assert why.codes == (CauseCode.READY,)
    assert says(why, "Nothing is in its way")


# Running


async def test_a_run_that_is_running(still: Docket, by_hand: ByHand, clock: VirtualClock) -> None:
    await still.add(note, key="k")()
    claim = await by_hand.claim()
    clock.jump(3 * SECOND)
    await still.engine.report([Report("k", claim.id, claim.epoch, increment=3, total=10, message="half way")])
    await alive(still, "by hand")
    clock.jump(2 * SECOND)
    why = await still.why("k")
    assert why.codes == (CauseCode.RUNNING,)
    assert says(why, "It has been running for 5 s", "on worker 'by hand', attempt 1", "at 3 of 10 (half way)")
    assert says(why, "Its worker was heard of 2 s ago")
    assert why.cause.facts["lease_until"] == now(clock) - 5 * SECOND + LEASE


async def test_a_run_whose_worker_is_silent(still: Docket, by_hand: ByHand, clock: VirtualClock) -> None:
    await still.add(note, key="k")()
    await by_hand.claim()
    clock.jump(LEASE + 5 * SECOND)
    why = await still.why("k")
    assert why.codes == (CauseCode.LEASE_LAPSED, CauseCode.RUNNING)
    assert says(why, "'by hand' has not renewed its lease, which ended 5 s ago", "once there is a live worker")


async def test_a_run_that_was_asked_to_stop(still: Docket, by_hand: ByHand) -> None:
    await still.add(note, key="k")()
    await by_hand.claim()
    await still.cancel("k")
    assert (await still.why("k")).codes == (CauseCode.RUNNING, CauseCode.STOPPING)


async def test_a_loop_that_is_blocked(still: Docket, by_hand: ByHand, clock: VirtualClock) -> None:
    await still.add(note, key="k")()
    await by_hand.claim()
    await alive(still, "by hand", blocked=Blockage("jobs.py:7 in crunch", now(clock) - MINUTE, "other"))
    why = await still.why("k")
    assert why.codes == (CauseCode.RUNNING, CauseCode.LOOP_BLOCKED)
    assert says(why, "'by hand' has been blocked by the run 'other' for 1 min, at jobs.py:7 in crunch")


async def test_a_worker_tells_by_itself_that_its_loop_is_blocked(
    docket: Docket, make_worker: MakeWorker, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse, "BLOCKED_AFTER", 0.05)
    found: list[Why] = []

    async def look() -> None:
        async with Docket("tests", url) as other:
            while not found or CauseCode.LOOP_BLOCKED not in found[-1].codes:
                found.append(await other.why("culprit"))

    async def block() -> None:
        with ThreadPoolExecutor(1) as threads:
            threads.submit(lambda: asyncio.run(soon(look()))).result()

    async with at_work(make_worker()):
        execution = await docket.add(block, key="culprit")()
        await soon(execution.get_result())
    assert found[-1].codes == (CauseCode.RUNNING, CauseCode.LOOP_BLOCKED)
    assert says(found[-1], "blocked by the run 'culprit'", "test_why.py:", " in block")


async def test_a_run_whose_worker_vanished(still: Docket, by_hand: ByHand, clock: VirtualClock) -> None:
    await still.add(note, key="k")()
    for _ in range(3):
        await by_hand.claim_all()
        clock.jump(LEASE + SECOND)
    await alive(still)
    why = await still.why("k")
    assert why.codes == (CauseCode.LEASE_LAPSED, CauseCode.RUNNING, CauseCode.CRASHED)
    assert says(why, "vanished without a word twice", "happened 3 times, it fails as poisoned")
    assert await by_hand.claim_all() == []
    why = await still.why("k")
    assert why.codes == (CauseCode.POISONED,)
    assert says(why, "as poisoned", "3 times")


# Several at once, and races


async def test_all_causes_are_told_and_the_decisive_one_first(still: Docket, clock: VirtualClock) -> None:
    await still.add(note, key="k", queue="mail", when=now(clock) + MINUTE)("x")
    await still.pause("mail")
    await still.strike(note)
    assert (await still.why("k")).codes == (
        CauseCode.SCHEDULED,
        CauseCode.STRUCK,
        CauseCode.PAUSED,
        CauseCode.NO_WORKER,
    )


async def test_the_newest_run_of_a_key_is_meant_and_an_execution_means_its_own(still: Docket, by_hand: ByHand) -> None:
    await alive(still)
    first = await still.add(note, key="k")()
    await by_hand.step()
    second = await still.add(note, key="k")()
    assert (await still.why("k")).id == second.id
    assert (await still.why(first)).codes == (CauseCode.COMPLETED,)


async def test_a_run_is_found_by_its_id_too(still: Docket) -> None:
    execution = await still.add(note, key="k")()
    assert execution.id is not None
    assert (await still.why(execution.id)).key == "k"


async def test_a_run_that_starts_while_we_look_is_told_as_running(still: Docket, by_hand: ByHand) -> None:
    await alive(still)
    await still.add(note, key="k")()
    faults = behind_a_door(still)
    started: list[Any] = []

    async def start() -> None:
        if not started:
            started.append(await by_hand.claim())

    faults.before["standing"] = start
    why = await still.why("k")
    assert (why.codes, why.state) == ((CauseCode.RUNNING,), State.RUNNING)


async def test_a_run_that_ends_while_we_look_is_told_as_over(still: Docket, by_hand: ByHand) -> None:
    await still.add(note, key="k")()
    claim = await by_hand.claim()
    faults = behind_a_door(still)

    async def end() -> None:
        await still.engine.finish([Settle(claim, State.FAILED, failure=Failure("ValueError", "late"))])

    faults.before["standing"] = end
    assert (await still.why("k")).codes == (CauseCode.FAILED,)
