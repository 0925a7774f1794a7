"""survey: the docket at a glance."""

from __future__ import annotations

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.model import Limit, State, WorkerInfo
from dovetail.testing.conformance.finding import one_of_each_state
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import LEASE, MINUTE, a_run, place, start, take


class Surveying(Fixtures):
    async def test_an_empty_store_has_nothing_to_tell(self, engine: Engine, clock: VirtualClock) -> None:
        survey = await engine.survey()
        assert (survey.at, survey.workers) == (clock.now(), [])
        assert survey.count(*State) == 0

    async def test_every_state_is_counted(self, engine: Engine) -> None:
        await one_of_each_state(engine)
        survey = await engine.survey()
        assert {state: survey.count(state) for state in State} == dict.fromkeys(State, 1)

    async def test_a_parked_run_counts_as_scheduled(self, engine: Engine) -> None:
        one = (Limit("slots", 1),)
        await place(engine, *(a_run(f"{n}", limits=one) for n in range(4)))
        await take(engine)
        survey = await engine.survey()
        assert (survey.count(State.RUNNING), survey.count(State.SCHEDULED)) == (1, 3)

    async def test_what_is_due_counts_as_queued_though_nobody_has_looked_since(
        self, engine: Engine, clock: VirtualClock
    ) -> None:
        await place(engine, a_run("1", due=MINUTE), a_run("2", due=2 * MINUTE), a_run("3"))
        clock.jump(MINUTE)
        survey = await engine.survey()
        assert (survey.count(State.QUEUED), survey.count(State.SCHEDULED)) == (2, 1)

    async def test_each_queue_is_counted_for_itself(self, engine: Engine) -> None:
        await place(engine, *(a_run(f"x{n}", queue="x") for n in range(3)), a_run("y", queue="y"))
        await take(engine, 1, queues=["x"])
        counts = {(each.queue, each.state): each.count for each in (await engine.survey()).counts if each.count}
        assert counts == {("x", State.RUNNING): 1, ("x", State.QUEUED): 2, ("y", State.QUEUED): 1}

    async def test_the_oldest_due_time_is_told(self, engine: Engine, clock: VirtualClock) -> None:
        oldest = clock.now() - MINUTE
        await place(engine, a_run("1"), a_run("2", due=oldest), a_run("3", due=MINUTE))
        told = {each.state: each.oldest_due for each in (await engine.survey()).counts}
        assert told[State.QUEUED] == oldest
        assert told[State.SCHEDULED] == clock.now() + MINUTE

    async def test_workers_are_listed(self, engine: Engine, clock: VirtualClock) -> None:
        for name in ("ann", "bob"):
            await engine.heartbeat(WorkerInfo(name, id=name, running=2), [], lease=LEASE)
        workers = (await engine.survey()).workers
        assert sorted(worker.name for worker in workers) == ["ann", "bob"]
        assert {worker.last_seen for worker in workers} == {clock.now()}

    async def test_a_worker_that_never_beat_is_not_listed(self, engine: Engine) -> None:
        await start(engine, a_run(), worker="ann")
        assert (await engine.survey()).workers == []
