"""claim: with `ageing`, what has been due for long counts as of a higher priority."""

from __future__ import annotations

from datetime import timedelta

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.model import Claim, Hold, HoldKind, Limit, State
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import (
    LEASE,
    MINUTE,
    MOMENT,
    SECOND,
    Another,
    a_run,
    complete,
    keys,
    place,
    state_of,
    take_once,
)


async def take_aged(
    engine: Engine, want: int = 10, *, queues: tuple[str, ...] = (), ageing: timedelta = MINUTE
) -> list[Claim]:
    return (await engine.claim("worker", want, queues=queues, lease=LEASE, ageing=ageing)).claims


class Ageing(Fixtures):
    async def test_fresh_runs_come_in_the_order_of_their_priorities(self, engine: Engine) -> None:
        await place(engine, *(a_run(f"{n}", priority=n) for n in (0, -3, 7, 2)), a_run("later", priority=2))
        assert keys(await take_aged(engine)) == ["7", "2", "later", "0", "-3"]

    async def test_the_ends_of_the_scale_are_in_order_too(self, engine: Engine) -> None:
        ends = (-(2**31), 2**31 - 1, 0)
        await place(engine, *(a_run(f"{n}", priority=n) for n in ends), *(a_run(f"{n}'", priority=n) for n in ends))
        assert keys(await take_once(engine, 3)) == ["2147483647", "2147483647'", "0"]
        assert keys(await take_aged(engine, 3)) == ["0'", "-2147483648", "-2147483648'"]

    async def test_a_priority_counts_as_one_more_for_each_time_it_has_been_due(
        self, engine: Engine, clock: VirtualClock
    ) -> None:
        await place(engine, a_run("low", priority=0))
        clock.jump(2 * MINUTE - MOMENT)
        await place(engine, a_run("two", priority=2), a_run("one", priority=1))
        assert keys(await take_aged(engine, 1)) == ["two"]
        await place(engine, a_run("two more", priority=2))
        clock.jump(MOMENT)
        assert keys(await take_aged(engine)) == ["low", "two more", "one"]

    async def test_a_low_priority_does_not_starve_under_a_stream_of_high_ones(
        self, engine: Engine, clock: VirtualClock
    ) -> None:
        """Two high ones come for each that can be started. It waits for those that became due less than five minutes
        after it, and for no other."""
        await place(engine, a_run("low", priority=0))
        started: list[str] = []
        for minute in range(11):
            await place(engine, *(a_run(f"{minute}.{n}", priority=5) for n in range(2)))
            claims = await take_aged(engine, 1)
            await complete(engine, *claims)
            started += keys(claims)
            clock.jump(MINUTE)
        assert started == [*(f"{minute}.{n}" for minute in range(5) for n in range(2)), "low"]

    async def test_without_it_nothing_ages(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, a_run("low", priority=0))
        clock.jump(1000 * MINUTE)
        await place(engine, a_run("high", priority=1))
        assert keys(await take_once(engine)) == ["high", "low"]

    async def test_it_counts_from_the_due_time(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, a_run("later", due=10 * MINUTE))
        clock.jump(10 * MINUTE)
        await place(engine, a_run("high", priority=1))
        assert keys(await take_aged(engine)) == ["high", "later"]

    async def test_runs_of_one_priority_keep_their_order(self, engine: Engine, clock: VirtualClock) -> None:
        """Of a group that has waited long there may be many: the one run of another still has its turn."""
        await place(engine, *(a_run(f"a{n}", group="a") for n in range(6)))
        clock.jump(3 * MINUTE)
        await place(engine, a_run("b0", group="b"))
        expected = ["a0", "b0", "a1", "a2", "a3", "a4", "a5"]
        assert keys(await take_aged(engine)) == expected

    async def test_levels_are_compared_by_their_first(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, *(a_run(f"a{n}", group="a") for n in range(3)))
        clock.jump(3 * MINUTE)
        await place(engine, a_run("b0", group="b"), a_run("high", priority=2))
        assert keys(await take_aged(engine)) == ["a0", "high", "b0", "a1", "a2"]

    async def test_it_goes_across_queues(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, a_run("old", queue="x"), a_run("other", queue="z"))
        clock.jump(3 * MINUTE)
        await place(engine, a_run("new", queue="y", priority=2), a_run("high", queue="x", priority=4))
        assert keys(await take_aged(engine, queues=("x", "y"))) == ["high", "old", "new"]
        assert keys(await take_aged(engine)) == ["other"]

    async def test_many_are_claimed_one_by_one_in_the_same_order(self, engine: Engine, clock: VirtualClock) -> None:
        for n in range(30):
            await place(engine, a_run(f"{n}", priority=n % 7))
            clock.jump(20 * SECOND)
        # Of minutes that were begun, only whole ones count.
        waited = {n: (30 - n) * 20 // 60 for n in range(30)}
        expected = sorted(range(30), key=lambda n: (-(n % 7) - waited[n], n))
        assert [keys(await take_aged(engine, 1))[0] for _ in range(15)] == [f"{n}" for n in expected[:15]]
        assert keys(await take_aged(engine, 100)) == [f"{n}" for n in expected[15:]]

    async def test_a_limit_gives_its_room_to_the_aged(self, engine: Engine, clock: VirtualClock) -> None:
        limit = Limit("one", 1)
        await place(engine, a_run("old", limits=(limit,)))
        clock.jump(2 * MINUTE)
        await place(engine, a_run("high", priority=1, limits=(limit,)), a_run("free", priority=-1))
        claims = await take_aged(engine)
        assert keys(claims) == ["old", "free"]
        assert await state_of(engine, "high") is State.SCHEDULED
        await complete(engine, *claims)
        assert keys(await take_aged(engine)) == ["high"]

    async def test_paused_queues_give_nothing_however_old(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, a_run("old", queue="x"))
        await engine.hold([Hold(HoldKind.PAUSE, queue="x")])
        clock.jump(100 * MINUTE)
        await place(engine, a_run("new"))
        assert keys(await take_aged(engine)) == ["new"]

    async def test_two_workers_share_what_aged(self, engine: Engine, another: Another, clock: VirtualClock) -> None:
        await place(engine, *(a_run(f"{n}", priority=n % 3) for n in range(20)))
        clock.jump(MINUTE)
        other = await another()
        taken = keys(await take_aged(engine, 8)) + keys(await take_aged(other, 8)) + keys(await take_aged(engine, 8))
        assert sorted(taken, key=int) == [f"{n}" for n in range(20)]

    async def test_more_priorities_than_are_looked_at_are_served_all_the_same(self, engine: Engine) -> None:
        await place(engine, *(a_run(f"{n}", priority=n) for n in range(100)))
        first, rest = await take_aged(engine, 60), await take_aged(engine, 60)
        assert keys([*first, *rest]) == [f"{n}" for n in reversed(range(100))]
