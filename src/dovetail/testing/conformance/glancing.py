"""glance and examine, where an engine can be looked at: a bounded look, and one from head to foot."""

from __future__ import annotations

from datetime import timedelta
from typing import cast

import pytest

from dovetail.clock import VirtualClock
from dovetail.engine import Engine, Examines
from dovetail.model import Glance, Limit, QueueGlance, Severity, State, WorkerInfo
from dovetail.testing.conformance.finding import failed_with, one_of_each_state
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import LEASE, MINUTE, SECOND, a_run, complete, place, start_one, take


class Glancing(Fixtures):
    @pytest.fixture
    def examined(self, engine: Engine) -> Examines:
        if not isinstance(engine, Examines):
            pytest.skip("this engine cannot be looked at")
        return cast("Examines", engine)

    async def test_an_empty_docket_shows_nothing(self, examined: Examines, clock: VirtualClock) -> None:
        assert await examined.glance() == Glance(clock.now(), [], 0, 0, 0, [], [], [])

    async def test_what_waits_and_runs_is_counted_by_queue(
        self, engine: Engine, examined: Examines, clock: VirtualClock
    ) -> None:
        await one_of_each_state(engine)
        await place(engine, a_run("other", queue="x\x00y"))
        glance = await examined.glance()
        now = clock.now()
        assert glance.queues == [QueueGlance("default", 1, 1, 1, now), QueueGlance("x\x00y", 1, oldest_due=now)]
        assert (glance.waiting, glance.parked, glance.kept, glance.queued) == (1, 0, 3, 2)

    async def test_since_when_the_first_is_due_is_seen(
        self, engine: Engine, examined: Examines, clock: VirtualClock
    ) -> None:
        due = clock.now() + MINUTE
        await place(engine, a_run("later", due=due))
        assert (await examined.glance()).queues == [QueueGlance("default", scheduled=1)]
        clock.jump(2 * MINUTE)
        assert (await examined.glance()).queues[0].oldest_due == due

    async def test_what_is_parked_is_counted_apart(self, engine: Engine, examined: Examines) -> None:
        await place(engine, *(a_run(f"{n}", limits=(Limit("slots", 1),)) for n in range(3)))
        await take(engine)
        glance = await examined.glance()
        assert (glance.parked, glance.waiting) == (2, 0)
        assert [(each.queued, each.scheduled, each.running) for each in glance.queues] == [(0, 0, 1)]

    async def test_running_runs_are_seen_in_the_order_of_their_leases(
        self, engine: Engine, examined: Examines, clock: VirtualClock
    ) -> None:
        await place(engine, a_run("a", task="one"), a_run("b", queue="x"))
        await take(engine, 1, queues=["x"], lease=2 * LEASE, worker="ann")
        await take(engine, 1, lease=LEASE, worker="bob")
        first, second = (await examined.glance()).running
        assert (first.key, first.task, first.worker, first.lease_until) == ("a", "one", "bob", clock.now() + LEASE)
        assert (second.key, second.queue, second.state, second.started) == ("b", "x", State.RUNNING, clock.now())

    async def test_the_newest_failures_are_seen_first(
        self, engine: Engine, examined: Examines, clock: VirtualClock
    ) -> None:
        for key in ("first", "second"):
            await failed_with(engine, key, f"boom {key}")
            clock.jump(SECOND)
        failures = (await examined.glance()).failures
        assert [failure.key for failure in failures] == ["second", "first"]
        assert (failures[0].error, failures[0].finished) == ("ValueError: boom second", clock.now() - SECOND)

    async def test_workers_are_seen_with_what_they_say(self, engine: Engine, examined: Examines) -> None:
        said = WorkerInfo("ann", id="1", ended={"default": 3}, failed=1, lease=LEASE, grace=timedelta(minutes=1))
        await engine.heartbeat(said, [], lease=LEASE)
        (worker,) = (await examined.glance()).workers
        assert worker.but(last_seen=None) == said

    async def test_nothing_is_wrong_with_runs_in_every_state(self, engine: Engine, examined: Examines) -> None:
        await one_of_each_state(engine)
        await start_one(engine, a_run("holder", limits=(Limit("slots", 1),), queue="limited"))
        await place(engine, a_run("parked", limits=(Limit("slots", 1),), queue="limited"))
        await take(engine, 1, queues=["limited"])
        found = {each.check: each.severity for each in await examined.examine()}
        assert (found["limits.stuck"], found["runs.orphaned"]) == (Severity.OK, Severity.OK)

    async def test_a_run_whose_turn_it_is_leaves_no_limit_with_room(self, engine: Engine, examined: Examines) -> None:
        await place(engine, *(a_run(f"{n}", limits=(Limit("slots", 1),)) for n in range(3)))
        (claim,) = await take(engine)
        await complete(engine, claim)
        found = {each.check: each.severity for each in await examined.examine()}
        assert found["limits.stuck"] is Severity.OK
