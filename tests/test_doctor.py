"""The doctor's checks of runs, queues and workers, each on a docket that really is in that state."""

from datetime import timedelta

import pytest

from dovetail import Docket
from dovetail.clock import VirtualClock
from dovetail.doctor import Seen, judge
from dovetail.model import (
    Failure,
    Finding,
    Glance,
    Limit,
    NewRun,
    Requeue,
    RunQuery,
    Settle,
    Severity,
    State,
    WorkerInfo,
    new_id,
)

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
_ALL = RunQuery()
LEASE = timedelta(seconds=10)


def a_run(key: str = "a", **fields: object) -> NewRun:
    return NewRun(new_id(), key, str(fields.pop("task", "greet")), **fields)  # type: ignore[arg-type]


async def beat(docket: Docket, name: str = "ann", **says: object) -> None:
    said = WorkerInfo(name, id=name, **{"tasks": frozenset({"greet"}), "concurrency": 5, **says})  # type: ignore[arg-type]
    await docket.engine.heartbeat(said, [], lease=LEASE)


async def found(docket: Docket, check: str) -> Finding | None:
    """What a check says, unless it has nothing to say."""
    return next((each for each in await docket.examine() if each.check == check), None)


async def severity(docket: Docket, check: str) -> Severity | None:
    finding = await found(docket, check)
    return None if finding is None else finding.severity


async def fail(docket: Docket, key: str) -> None:
    await docket.engine.schedule([a_run(key)])
    (claim,) = (await docket.engine.claim("ann", 1, lease=LEASE)).claims
    await docket.engine.finish([Settle(claim, State.FAILED, failure=Failure("ValueError", "boom"))])


async def test_an_idle_docket_with_a_worker_is_well(still: Docket) -> None:
    await beat(still)
    # The settings of a server for tests are not meant to be safe: they are looked at elsewhere.
    ours = [each for each in await still.examine() if not each.check.startswith(("sqlite.", "postgres.", "redis."))]
    assert {each.severity for each in ours} == {Severity.OK}


async def test_the_gravest_comes_first(still: Docket) -> None:
    await still.engine.schedule([a_run()])
    ranks = [each.severity.rank for each in await still.examine()]
    assert ranks == sorted(ranks, reverse=True)
    assert ranks[0] == Severity.PROBLEM.rank


async def test_work_without_workers(still: Docket) -> None:
    assert await severity(still, "workers") is Severity.NOTE
    await still.engine.schedule([a_run()])
    assert await severity(still, "workers") is Severity.PROBLEM
    await beat(still)
    assert await severity(still, "workers") is Severity.OK


async def test_a_worker_that_fell_silent_is_named_and_forgotten_by_a_repair(still: Docket, clock: VirtualClock) -> None:
    await beat(still, "bob")
    clock.jump(MINUTE)
    await beat(still, "ann")
    finding = await found(still, "workers.dead")
    assert finding is not None
    assert (finding.severity, "'bob'" in finding.found) == (Severity.WARNING, True)
    assert [(each.what, each.count) for each in await still.repair()] == [("dead workers forgotten", 1)]
    assert await found(still, "workers.dead") is None
    assert await still.repair() == []


async def test_a_worker_whose_clock_is_ahead(still: Docket, clock: VirtualClock) -> None:
    await beat(still, clock=clock.now() + MINUTE)
    assert await severity(still, "workers.clock") is Severity.WARNING


@pytest.mark.parametrize(("behind", "expected"), [(4, None), (7, Severity.WARNING)])
async def test_a_worker_whose_clock_is_behind(
    still: Docket, clock: VirtualClock, behind: int, expected: Severity | None
) -> None:
    await beat(still, clock=clock.now() - timedelta(seconds=behind), lease=LEASE)
    assert await severity(still, "workers.clock") is expected


async def test_a_store_that_was_emptied_is_told_of_for_a_day(still: Docket, clock: VirtualClock) -> None:
    when = clock.now()
    await beat(still, emptied=when)
    clock.jump(DAY - MINUTE)
    await beat(still, emptied=when)
    assert await severity(still, "store.emptied") is Severity.PROBLEM
    clock.jump(2 * MINUTE)
    await beat(still, emptied=when)
    assert await severity(still, "store.emptied") is None


async def test_a_lease_too_short_and_a_grace_too_long(still: Docket) -> None:
    await beat(still, lease=timedelta(seconds=3), grace=MINUTE)
    assert await severity(still, "workers.lease") is Severity.WARNING
    assert await severity(still, "workers.grace") is Severity.NOTE
    await beat(still, lease=LEASE, grace=timedelta(seconds=25))
    assert (await severity(still, "workers.lease"), await severity(still, "workers.grace")) == (None, None)


async def test_a_queue_that_no_worker_takes(still: Docket) -> None:
    await still.engine.schedule([a_run(queue="mail")])
    await beat(still, queues=("default",))
    finding = await found(still, "queues.unserved")
    assert finding is not None
    assert "'mail'" in finding.found
    await beat(still, "bob", queues=("mail",))
    assert await found(still, "queues.unserved") is None


async def test_a_task_that_no_worker_knows(still: Docket) -> None:
    await still.engine.schedule([a_run(task="vanished")])
    await beat(still)
    finding = await found(still, "tasks.unknown")
    assert finding is not None
    assert (finding.severity, "'vanished'" in finding.found) == (Severity.PROBLEM, True)
    await beat(still, "bob", tasks=frozenset({"vanished"}))
    assert await found(still, "tasks.unknown") is None


async def test_a_task_that_was_put_back_because_no_worker_knows_it(still: Docket) -> None:
    await still.engine.schedule([a_run(task="vanished")])
    await beat(still)
    (claim,) = (await still.engine.claim("ann", 1, lease=LEASE)).claims
    await still.engine.finish([Requeue(claim, claim.attempt, timedelta(minutes=1))])
    assert await severity(still, "tasks.unknown") is Severity.PROBLEM
    await beat(still, "bob", has_fallback=True)
    assert await found(still, "tasks.unknown") is None


async def test_schedules_are_known_and_taken_by_every_worker(still: Docket, clock: VirtualClock) -> None:
    await still.schedules.add("often", "trace", every=timedelta(minutes=1))("hello")
    clock.jump(2 * MINUTE)
    await beat(still, queues=("mail",))
    assert await found(still, "tasks.unknown") is None
    assert await found(still, "queues.unserved") is None


async def test_a_paused_queue_with_work_in_it(still: Docket) -> None:
    await still.pause("mail", "the provider is down")
    assert await found(still, "queues.paused") is None
    await still.engine.schedule([a_run(queue="mail")])
    finding = await found(still, "queues.paused")
    assert finding is not None
    assert "'mail' for 0 s (the provider is down)" in finding.found


async def test_pauses_and_strikes_that_were_forgotten(still: Docket, clock: VirtualClock) -> None:
    await still.pause("mail")
    await still.pause("news", until=clock.now() + 30 * DAY)
    await still.strike("greet")
    assert (await found(still, "queues.forgotten"), await found(still, "strikes.forgotten")) == (None, None)
    clock.jump(8 * DAY)
    paused, struck = await found(still, "queues.forgotten"), await found(still, "strikes.forgotten")
    assert paused is not None
    assert struck is not None
    assert "'mail'" in paused.found
    assert "news" not in paused.found
    assert "'greet'" in struck.found


async def test_a_run_whose_lease_lapsed_long_ago(still: Docket, clock: VirtualClock) -> None:
    await still.engine.schedule([a_run("lost")])
    await still.engine.claim("ann", 1, lease=LEASE)
    assert await severity(still, "runs.stuck") is Severity.OK
    clock.jump(2 * MINUTE)
    finding = await found(still, "runs.stuck")
    assert finding is not None
    assert (finding.severity, "'lost'" in finding.found) == (Severity.PROBLEM, True)


async def test_work_that_is_late_while_a_worker_has_room(still: Docket, clock: VirtualClock) -> None:
    await still.engine.schedule([a_run()])
    clock.jump(2 * MINUTE)
    await beat(still, running=5)
    assert await found(still, "runs.late") is None
    await beat(still, running=4)
    assert await severity(still, "runs.late") is Severity.WARNING


async def test_a_backlog(still: Docket, clock: VirtualClock) -> None:
    await still.engine.schedule([a_run()])
    assert await severity(still, "backlog") is Severity.OK
    clock.jump(10 * MINUTE)
    finding = await found(still, "backlog")
    assert finding is not None
    assert (finding.severity, finding.found) == (Severity.NOTE, "1 run is due, the first for 10 minutes")


async def test_failures_few_and_many(still: Docket) -> None:
    assert await severity(still, "failures") is Severity.OK
    await fail(still, "one")
    assert await severity(still, "failures") is Severity.NOTE
    for n in range(9):
        await fail(still, f"{n}")
    finding = await found(still, "failures")
    assert finding is not None
    assert (finding.severity, "ValueError: boom" in finding.found) == (Severity.WARNING, True)


async def test_a_poisoned_run(still: Docket, clock: VirtualClock) -> None:
    await still.engine.schedule([a_run("killer", crash_limit=1)])
    await still.engine.claim("ann", 1, lease=LEASE)
    clock.jump(MINUTE)
    await still.engine.claim("bob", 1, lease=LEASE)
    finding = await found(still, "runs.poisoned")
    assert finding is not None
    assert "'killer'" in finding.found


async def test_a_repair_sweeps_until_nothing_is_left(still: Docket, clock: VirtualClock) -> None:
    runs = [a_run(f"{n}") for n in range(1500)]
    await still.engine.schedule(runs)
    while claims := (await still.engine.claim("ann", 500, lease=LEASE)).claims:
        await still.engine.finish([Settle(claim, State.COMPLETED) for claim in claims])
    await still.engine.schedule([a_run("alive"), a_run("waits", after=("alive",))])
    clock.jump(DAY)
    (removed,) = await still.repair()
    assert (removed.what, removed.count) == ("records past their retention removed", 1500)
    assert {run.key for run in await still.find_all(_ALL)} == {"alive", "waits"}


async def test_a_repair_beside_work_takes_no_run_away(still: Docket) -> None:
    one = (Limit("slots", 1),)
    await still.engine.schedule([a_run(f"{n}", limits=one) for n in range(3)])
    (claim,) = (await still.engine.claim("ann", 3, lease=LEASE)).claims
    await still.repair()
    assert (await still.engine.finish([Requeue(claim, 2)]))[0] == "done"
    await still.repair()
    assert len(await still.find_all(_ALL)) == 3


@pytest.mark.parametrize(
    ("ahead", "expected"),
    [
        (0.2, Severity.OK),
        (-2, Severity.WARNING),
        (3, Severity.WARNING),
        (60, Severity.PROBLEM),
        (-60, Severity.PROBLEM),
    ],
)
def test_a_clock_that_is_off(clock: VirtualClock, ahead: float, expected: Severity) -> None:
    seen = Seen(Glance(clock.now(), [], 0, 0, 0, [], [], []), [], timedelta(seconds=ahead), timedelta(), MINUTE)
    assert next(each.severity for each in judge(seen) if each.check == "clock") is expected


def test_a_slow_answer_is_no_skew(clock: VirtualClock) -> None:
    glance = Glance(clock.now(), [], 0, 0, 0, [], [], [])
    seen = Seen(glance, [], timedelta(seconds=3), timedelta(seconds=2.5), MINUTE)
    assert next(each.severity for each in judge(seen) if each.check == "clock") is Severity.OK
