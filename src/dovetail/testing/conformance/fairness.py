"""claim: within a queue, groups take turns."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.model import NewRun
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import (
    HOUR,
    LEASE,
    MINUTE,
    SECOND,
    a_run,
    complete,
    complete_one_by_one,
    keys,
    place,
    start,
    take,
    take_once,
)


def of_group(group: str, count: int, **fields: object) -> list[NewRun]:
    """So many runs of a group, with the group's name as the first letter of each key."""
    return [a_run(f"{group}{n}", group=group, **fields) for n in range(count)]


def share(order: list[str], group: str) -> int:
    return sum(key.startswith(group) for key in order)


class Fairness(Fixtures):
    async def test_groups_take_turns(self, engine: Engine) -> None:
        await place(engine, *of_group("a", 4), *of_group("b", 4))
        assert keys(await take_once(engine)) == ["a0", "b0", "a1", "b1", "a2", "b2", "a3", "b3"]

    async def test_groups_take_turns_from_call_to_call(self, engine: Engine) -> None:
        await place(engine, *of_group("a", 3), *of_group("b", 3))
        assert await complete_one_by_one(engine, want=1) == ["a0", "b0", "a1", "b1", "a2", "b2"]

    async def test_three_groups_take_turns(self, engine: Engine) -> None:
        await place(engine, *of_group("a", 30), *of_group("b", 2), *of_group("c", 2))
        order = keys(await take_once(engine, 6))
        assert [share(order, group) for group in "abc"] == [2, 2, 2]

    async def test_a_group_alone_gets_everything(self, engine: Engine) -> None:
        await place(engine, *of_group("a", 5))
        assert keys(await take_once(engine)) == ["a0", "a1", "a2", "a3", "a4"]

    async def test_a_group_of_weight_two_gets_two_turns_for_one(self, engine: Engine) -> None:
        await place(engine, *of_group("a", 20, weight=2.0), *of_group("b", 20))
        order = keys(await take_once(engine, 18))
        assert share(order, "a") in {12, 13}
        assert all(abs(share(order[: 3 * n], "a") - 2 * n) <= 1 for n in range(1, 7))

    async def test_a_weight_below_one_is_a_smaller_share(self, engine: Engine) -> None:
        await place(engine, *of_group("a", 20, weight=0.25), *of_group("b", 20))
        assert share(keys(await take_once(engine, 10)), "a") in {2, 3}

    async def test_a_late_group_is_not_made_to_wait_for_the_backlog(self, engine: Engine) -> None:
        await place(engine, *of_group("a", 100))
        await complete(engine, *await take_once(engine, 5))
        await place(engine, *of_group("b", 1))
        assert "b0" in keys(await take_once(engine, 2))

    async def test_a_late_group_is_not_paid_for_the_past(self, engine: Engine) -> None:
        await place(engine, *of_group("a", 100))
        await complete(engine, *await take_once(engine, 50))
        await place(engine, *of_group("b", 50))
        order = keys(await take_once(engine, 20))
        assert all(abs(share(order[: 2 * n], "b") - n) <= 1 for n in range(1, 11))

    async def test_a_group_that_worked_alone_does_not_pay_for_it(self, engine: Engine) -> None:
        await place(engine, *of_group("a", 50))
        await complete_one_by_one(engine)
        await place(engine, *of_group("b", 10), *of_group("a", 10))
        assert share(keys(await take_once(engine, 10)), "a") in {4, 5, 6}

    async def test_a_run_takes_its_place_when_it_becomes_due(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, *of_group("b", 2, due=MINUTE))
        await place(engine, *of_group("a", 10))
        await complete(engine, *await take_once(engine, 6))
        clock.jump(MINUTE)
        assert keys(await take_once(engine, 4)) == ["b0", "a6", "b1", "a7"]

    async def test_priority_outweighs_place(self, engine: Engine) -> None:
        await place(engine, *of_group("a", 3, priority=1), *of_group("b", 3))
        assert keys(await take_once(engine, 3)) == ["a0", "a1", "a2"]

    async def test_groups_of_different_queues_do_not_meddle(self, engine: Engine) -> None:
        await place(engine, *of_group("a", 3, queue="x"), *of_group("b", 3, queue="y"))
        assert keys(await take(engine, 3, queues=["x"])) == ["a0", "a1", "a2"]
        assert keys(await take(engine, 3, queues=["y"])) == ["b0", "b1", "b2"]

    async def test_runs_without_a_group_come_first_in_first_out(self, engine: Engine) -> None:
        await place(engine, *(a_run(f"{n}") for n in range(5)))
        assert keys(await take_once(engine, 3)) == ["0", "1", "2"]
        await place(engine, *(a_run(f"{n}") for n in range(5, 8)))
        assert keys(await take_once(engine)) == ["3", "4", "5", "6", "7"]

    async def test_a_run_without_a_group_is_not_held_up_by_a_backlog_of_groups(self, engine: Engine) -> None:
        await place(engine, *of_group("a", 50))
        await complete(engine, *await take_once(engine, 5))
        await place(engine, a_run("alone"))
        assert "alone" in keys(await take_once(engine, 2))

    async def test_a_run_without_a_group_does_not_jump_ahead_of_the_present_turn(self, engine: Engine) -> None:
        started = keys(await start(engine, *of_group("a", 3)))
        assert started == ["a0", "a1", "a2"]
        await place(engine, *of_group("b", 1), a_run("alone"))
        assert keys(await take_once(engine)) == ["b0", "alone"]

    async def test_places_say_nothing_of_another_queue(self, engine: Engine, clock: VirtualClock) -> None:
        """They grow with what was claimed, so a queue of groups would be behind the others for ever."""
        await place(engine, *of_group("a", 6, queue="x"))
        await complete(engine, *await take_once(engine, 5))
        clock.jump(SECOND)
        await place(engine, *(a_run(f"{n}", queue="y") for n in range(3)))
        assert await complete_one_by_one(engine, want=1) == ["a5", "0", "1", "2"]

    @pytest.mark.parametrize("want", [1, 2, 10])
    @pytest.mark.parametrize("ageing", [None, HOUR])
    async def test_of_several_queues_the_one_whose_first_is_due_first_has_its_turn(
        self, engine: Engine, clock: VirtualClock, want: int, ageing: timedelta | None
    ) -> None:
        await place(engine, *of_group("a", 3, queue="x"))
        clock.jump(SECOND)
        await place(engine, *(a_run(f"{n}", queue="y") for n in range(2)))
        clock.jump(SECOND)
        await place(engine, *of_group("b", 1, queue="x"), a_run("z", queue="z"), a_run("high", queue="z", priority=1))
        order: list[str] = []
        while claims := (await engine.claim("ann", want, lease=LEASE, ageing=ageing)).claims:
            order += keys(claims)
        assert order == ["high", "a0", "0", "1", "b0", "a1", "a2", "z"]
