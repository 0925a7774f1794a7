"""standing: what is before a run, and how full its limits are."""

from __future__ import annotations

from datetime import timedelta

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.model import Blockage, Limit, Standing, State, WorkerInfo, new_id
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import (
    LEASE,
    MINUTE,
    SECOND,
    a_run,
    complete,
    place,
    requeue,
    start_one,
    take,
    take_one,
)

ONE = Limit("slots", 1)
TWO_A_MINUTE = Limit("rate", 2, MINUTE)


async def standing_of(engine: Engine, run_id: str) -> Standing:
    """Where a run stands, which must be live."""
    standing = await engine.standing(run_id)
    assert standing is not None
    return standing


class Standings(Fixtures):
    async def test_a_run_that_does_not_exist_stands_nowhere(self, engine: Engine) -> None:
        assert await engine.standing(new_id()) is None
        assert await engine.standing("no id at all") is None

    async def test_nor_does_one_that_is_over(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        await complete(engine, claim)
        assert await engine.standing(claim.id) is None

    async def test_it_says_of_which_state_and_moment_it_speaks(self, engine: Engine, clock: VirtualClock) -> None:
        claim = await start_one(engine, a_run())
        clock.jump(SECOND)
        standing = await standing_of(engine, claim.id)
        assert (standing.at, standing.state, standing.epoch) == (clock.now(), State.RUNNING, claim.epoch)
        assert (standing.parked_on, standing.ahead, standing.limits) == (None, 0, ())

    async def test_those_before_it_in_claim_order_are_counted(self, engine: Engine, clock: VirtualClock) -> None:
        early = clock.now() - MINUTE
        asked = a_run("asked")
        await place(
            engine,
            *(a_run(f"urgent {n}", priority=5) for n in range(3)),
            *(a_run(f"early {n}", due=early) for n in range(2)),
            asked,
            a_run("late"),
            a_run("least", priority=-1, due=early),
            a_run("elsewhere", queue="other", priority=9),
        )
        assert (await standing_of(engine, asked.id)).ahead == 5
        await take(engine, 2, queues=["default"])
        assert (await standing_of(engine, asked.id)).ahead == 3

    async def test_groups_that_come_first_are_counted(self, engine: Engine) -> None:
        many = [a_run(f"x{n}", group="x") for n in range(5)]
        other = a_run("y", group="y")
        await place(engine, *many, other)
        assert (await standing_of(engine, other.id)).ahead == 1
        assert (await standing_of(engine, many[4].id)).ahead == 5

    async def test_what_is_due_later_has_nothing_before_it(self, engine: Engine) -> None:
        asked = a_run("asked", due=MINUTE)
        await place(engine, a_run("now"), asked)
        standing = await standing_of(engine, asked.id)
        assert (standing.state, standing.ahead) == (State.SCHEDULED, 0)

    async def test_what_became_due_comes_after_what_was_due_before(self, engine: Engine, clock: VirtualClock) -> None:
        asked = a_run("asked", due=MINUTE)
        await place(engine, a_run("ready"), a_run("sooner", due=MINUTE / 2), asked, a_run("later", due=2 * MINUTE))
        await place(engine, a_run("elsewhere", due=SECOND, queue="other"))
        clock.jump(timedelta(hours=1))
        assert (await standing_of(engine, asked.id)).ahead == 2

    async def test_a_full_limit_names_those_who_hold_it(self, engine: Engine) -> None:
        holder = await start_one(engine, a_run("holder", limits=(ONE,)))
        asked = a_run("asked", limits=(ONE,))
        await place(engine, asked)
        assert await take(engine) == []
        standing = await standing_of(engine, asked.id)
        assert (standing.state, standing.parked_on) == (State.SCHEDULED, "slots")
        (use,) = standing.limits
        assert (use.limit, use.taken, use.holders, use.is_full) == (ONE, 1, (holder.id,), True)

    async def test_those_parked_before_it_are_counted(self, engine: Engine) -> None:
        await start_one(engine, a_run("holder", limits=(ONE,)))
        asked, before = a_run("asked", limits=(ONE,)), a_run("before", limits=(ONE,), priority=1)
        await place(engine, asked, before, a_run("after", limits=(ONE,), priority=-1))
        assert await take(engine) == []
        assert (await standing_of(engine, asked.id)).ahead == 1
        assert (await standing_of(engine, before.id)).ahead == 0

    async def test_a_limit_with_room_is_not_full(self, engine: Engine) -> None:
        asked = a_run("asked", limits=(ONE, TWO_A_MINUTE))
        await place(engine, asked)
        slots, rate = (await standing_of(engine, asked.id)).limits
        assert (slots.limit, slots.taken, slots.holders, slots.is_full) == (ONE, 0, (), False)
        assert (rate.limit, rate.taken, rate.opens, rate.is_full) == (TWO_A_MINUTE, 0, None, False)

    async def test_a_closed_window_says_when_it_opens(self, engine: Engine, clock: VirtualClock) -> None:
        first = clock.now()
        await start_one(engine, a_run("1", limits=(TWO_A_MINUTE,)))
        clock.jump(SECOND)
        await start_one(engine, a_run("2", limits=(TWO_A_MINUTE,)))
        asked = a_run("asked", limits=(TWO_A_MINUTE,))
        await place(engine, asked)
        assert await take(engine) == []
        standing = await standing_of(engine, asked.id)
        (use,) = standing.limits
        assert standing.parked_on == "rate"
        assert (use.taken, use.holders, use.opens, use.is_full) == (2, (), first + MINUTE, True)
        clock.jump(MINUTE - SECOND)
        assert not (await standing_of(engine, asked.id)).limits[0].is_full

    async def test_only_some_of_many_holders_are_named(self, engine: Engine) -> None:
        wide = Limit("wide", 30)
        await place(engine, *(a_run(f"{n}", limits=(wide,)) for n in range(30)))
        claims = await take(engine, 30)
        asked = a_run("asked", limits=(wide,))
        await place(engine, asked)
        (use,) = (await standing_of(engine, asked.id)).limits
        assert use.taken == 30
        assert len(use.holders) == 10
        assert set(use.holders) <= {claim.id for claim in claims}

    async def test_looking_changes_nothing(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run(limits=(ONE, TWO_A_MINUTE)))
        await requeue(engine, claim)
        before = await standing_of(engine, claim.id)
        assert await standing_of(engine, claim.id) == before
        assert (await take_one(engine)).id == claim.id

    async def test_it_lists_the_workers(self, engine: Engine, clock: VirtualClock) -> None:
        asked = a_run()
        await place(engine, asked)
        blocked = Blockage("jobs.py:7 in crunch", clock.now(), "crunch:1")
        ann = WorkerInfo("ann", id="1", tasks=frozenset({"task"}), queues=("mail",), concurrency=2, running=1)
        bob = WorkerInfo("bob", id="2", has_fallback=True, blocked=blocked)
        for worker in (ann, bob):
            await engine.heartbeat(worker, [], lease=LEASE)
        told = (await standing_of(engine, asked.id)).workers
        assert sorted(told, key=lambda worker: worker.id) == [
            ann.but(last_seen=clock.now()),
            bob.but(last_seen=clock.now()),
        ]

    async def test_texts_of_any_kind_are_told_as_they_were_given(self, engine: Engine) -> None:
        odd = Limit("a:b c\x00{é}%", 1)
        holder = await start_one(engine, a_run("holder", limits=(odd,), queue="ü x"))
        asked = a_run("asked", limits=(odd,), queue="ü x")
        await place(engine, asked)
        assert await take(engine) == []
        standing = await standing_of(engine, asked.id)
        (use,) = standing.limits
        assert (standing.parked_on, use.limit, use.holders) == (odd.key, odd, (holder.id,))
