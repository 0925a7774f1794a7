"""limits: so many starts per window."""

from __future__ import annotations

from datetime import timedelta

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.model import Limit, State
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.limits import limited
from dovetail.testing.conformance.vocabulary import (
    AT_ONCE,
    MINUTE,
    MOMENT,
    SECOND,
    a_run,
    complete,
    fail,
    keys,
    newest,
    place,
    requeue,
    start_one,
    state_of,
    states_of,
    take,
    take_one,
    wait_of,
)

WINDOW = timedelta(seconds=10)


def per_window(capacity: int, *, drop: bool = False) -> Limit:
    return Limit("rate", capacity, WINDOW, drop)


class Windows(Fixtures):
    async def test_no_more_than_the_capacity_start_in_a_window(self, engine: Engine) -> None:
        await place(engine, *limited(5, per_window(2)))
        assert keys(await take(engine)) == ["0", "1"]
        assert await take(engine) == []

    async def test_a_finish_does_not_open_the_window(self, engine: Engine) -> None:
        await place(engine, *limited(3, per_window(2)))
        await complete(engine, *await take(engine))
        assert await take(engine) == []

    async def test_a_window_opens_exactly_when_it_is_over(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, *limited(2, per_window(1)))
        await complete(engine, *await take(engine))
        clock.jump(WINDOW - MOMENT)
        assert await take(engine) == []
        clock.jump(MOMENT)
        assert keys(await take(engine)) == ["1"]

    async def test_the_wait_is_for_the_window_to_open(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, *limited(2, per_window(1)))
        await complete(engine, *await take(engine))
        clock.jump(3 * SECOND)
        assert await wait_of(engine) == WINDOW - 3 * SECOND

    async def test_a_run_refused_by_a_window_is_parked(self, engine: Engine) -> None:
        await place(engine, *limited(2, per_window(1)))
        await take(engine)
        run = await newest(engine, "1")
        assert (run.state, run.parked_on, run.attempt) == (State.SCHEDULED, "rate", 1)

    async def test_a_window_slides(self, engine: Engine, clock: VirtualClock) -> None:
        await complete(engine, await start_one(engine, a_run("early", limits=(per_window(2),))))
        clock.jump(6 * SECOND)
        await complete(engine, await start_one(engine, a_run("late", limits=(per_window(2),))))
        await place(engine, *limited(2, per_window(2)))
        clock.jump(4 * SECOND)
        assert keys(await take(engine)) == ["0"]
        clock.jump(6 * SECOND - MOMENT)
        assert await take(engine) == []
        clock.jump(MOMENT)
        assert keys(await take(engine)) == ["1"]

    async def test_each_opening_lets_the_next_start(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, *limited(4, per_window(1)))
        order: list[str] = []
        for _ in range(4):
            claims = await take(engine)
            order += keys(claims)
            await complete(engine, *claims)
            clock.jump(WINDOW)
        assert order == ["0", "1", "2", "3"]

    async def test_a_window_wakes_in_claim_order(self, engine: Engine, clock: VirtualClock) -> None:
        await start_one(engine, a_run("first", limits=(per_window(1),)))
        await place(engine, a_run("low", limits=(per_window(1),)), a_run("high", limits=(per_window(1),), priority=5))
        assert await take(engine) == []
        clock.jump(WINDOW)
        assert keys(await take(engine)) == ["high"]

    async def test_a_failed_run_counts(self, engine: Engine) -> None:
        await place(engine, *limited(2, per_window(1)))
        await fail(engine, *await take(engine))
        assert await take(engine) == []

    async def test_a_run_whose_record_was_dropped_counts(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, *limited(2, per_window(1), retention=AT_ONCE))
        await complete(engine, *await take(engine))
        assert await take(engine) == []
        clock.jump(WINDOW)
        assert keys(await take(engine)) == ["1"]

    async def test_a_retry_is_a_start_as_well(self, engine: Engine, clock: VirtualClock) -> None:
        claim = await start_one(engine, a_run(limits=(per_window(1),)))
        await requeue(engine, claim, attempt=2)
        assert await take(engine) == []
        clock.jump(WINDOW)
        assert (await take_one(engine)).attempt == 2

    async def test_each_retry_counts_even_within_one_moment(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run(limits=(per_window(2),)))
        await requeue(engine, claim, attempt=2)
        await requeue(engine, await take_one(engine), attempt=3)
        assert await take(engine) == []

    async def test_a_run_that_never_started_does_not_count(self, engine: Engine) -> None:
        await place(engine, *limited(1, per_window(1)))
        await engine.cancel(["0"])
        assert (await start_one(engine, a_run(limits=(per_window(1),)))).key == "a"

    async def test_a_refused_run_does_not_count(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, *limited(6, per_window(2)))
        await take(engine)
        clock.jump(WINDOW - SECOND)
        assert await take(engine) == []
        clock.jump(SECOND)
        assert keys(await take(engine)) == ["2", "3"]

    async def test_a_dropping_window_cancels_what_it_refuses(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, *limited(3, per_window(1, drop=True)))
        assert keys(await take(engine)) == ["0"]
        assert await states_of(engine, "1", "2") == [State.CANCELLED, State.CANCELLED]
        assert (await newest(engine, "1")).finished == clock.now()

    async def test_a_dropped_run_with_no_retention_is_gone(self, engine: Engine) -> None:
        await place(engine, *limited(2, per_window(1, drop=True), retention=AT_ONCE))
        await take(engine)
        assert await state_of(engine, "1") is None

    async def test_a_dropping_window_that_is_open_drops_nothing(self, engine: Engine, clock: VirtualClock) -> None:
        await complete(engine, await start_one(engine, a_run("a", limits=(per_window(1, drop=True),))))
        clock.jump(WINDOW)
        assert (await start_one(engine, a_run("b", limits=(per_window(1, drop=True),)))).key == "b"

    async def test_a_run_may_have_slots_and_a_window(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, *limited(4, Limit("slots", 2), per_window(3)))
        first = await take(engine)
        assert keys(first) == ["0", "1"]
        await complete(engine, *first)
        assert keys(await take(engine)) == ["2"]
        clock.jump(WINDOW)
        assert keys(await take(engine)) == ["3"]

    async def test_each_run_states_its_own_window(self, engine: Engine, clock: VirtualClock) -> None:
        wide, narrow = Limit("rate", 2, MINUTE), Limit("rate", 2, SECOND)
        await complete(engine, await start_one(engine, a_run("1", limits=(wide,))))
        clock.jump(2 * SECOND)
        await complete(engine, await start_one(engine, a_run("2", limits=(narrow,))))
        await place(engine, a_run("3", limits=(wide,)))
        assert await take(engine) == []

    async def test_windows_of_different_keys_do_not_meddle(self, engine: Engine) -> None:
        await place(engine, a_run("a", limits=(Limit("x", 1, MINUTE),)), a_run("b", limits=(Limit("y", 1, MINUTE),)))
        assert keys(await take(engine)) == ["a", "b"]
