"""schedule: a run that may take the place of one other, and of no other."""

from __future__ import annotations

import asyncio

import pytest

from dovetail.engine import Engine
from dovetail.model import Conflict, NewRun, Placing, State
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import (
    HOUR,
    Another,
    a_run,
    all_runs,
    assert_empty,
    complete,
    place,
    start_one,
    state_of,
    take_one,
)


def in_place_of(other: NewRun, payload: bytes = b"second") -> NewRun:
    return a_run(other.key, due=HOUR, conflict=Conflict.REPLACE, instead_of=other.id, payload=payload)


class Succeeding(Fixtures):
    async def test_a_run_takes_the_place_of_the_pending_one_it_names(self, engine: Engine) -> None:
        first = a_run(due=HOUR)
        await place(engine, first)
        second = in_place_of(first)
        (placement,) = await engine.schedule([second])
        assert (placement.placing, placement.id) == (Placing.REPLACED, second.id)
        assert [run.payload for run in await all_runs(engine)] == [b"second"]

    async def test_asked_for_twice_it_is_placed_once(self, engine: Engine) -> None:
        first = a_run(due=HOUR)
        await place(engine, first)
        second = in_place_of(first)
        await engine.schedule([second])
        (again,) = await engine.schedule([second])
        assert again.id == second.id
        assert len(await all_runs(engine)) == 1

    async def test_another_run_that_holds_the_key_keeps_it_out(self, engine: Engine) -> None:
        first, other = a_run(due=HOUR), a_run(due=HOUR, conflict=Conflict.REPLACE, payload=b"other")
        await place(engine, first, other)
        (placement,) = await engine.schedule([in_place_of(first)])
        assert (placement.placing, placement.id, placement.state) == (Placing.KEPT, other.id, State.SCHEDULED)
        assert [run.payload for run in await all_runs(engine)] == [b"other"]

    async def test_where_nothing_holds_the_key_it_is_not_placed_either(self, engine: Engine) -> None:
        first = a_run(due=HOUR)
        (placement,) = await engine.schedule([in_place_of(first)])
        assert (placement.placing, placement.id) == (Placing.KEPT, first.id)
        await assert_empty(engine)

    async def test_what_is_over_can_no_longer_be_replaced(self, engine: Engine) -> None:
        first = a_run()
        await complete(engine, await start_one(engine, first))
        (placement,) = await engine.schedule([in_place_of(first)])
        assert placement.placing is Placing.KEPT
        assert [run.id for run in await all_runs(engine)] == [first.id]

    async def test_it_waits_beside_a_run_that_is_running(self, engine: Engine) -> None:
        first = a_run()
        await start_one(engine, first)
        second = in_place_of(first)
        (placement,) = await engine.schedule([second])
        assert (placement.placing, placement.id) == (Placing.REPLACED, second.id)
        assert placement.state is State.SCHEDULED

    async def test_beside_a_running_one_the_pending_one_counts(self, engine: Engine) -> None:
        first = a_run()
        await start_one(engine, first)
        second = in_place_of(first)
        await place(engine, second)
        (late, third) = await engine.schedule([in_place_of(first, b"late"), in_place_of(second, b"third")])
        assert (late.placing, late.id) == (Placing.KEPT, second.id)
        assert third.placing is Placing.REPLACED

    @pytest.mark.parametrize("conflict", [Conflict.KEEP, Conflict.KEEP_PENDING])
    async def test_it_hinders_no_other_rule(self, engine: Engine, conflict: Conflict) -> None:
        first = a_run(due=HOUR)
        await place(engine, first)
        (placement,) = await engine.schedule([in_place_of(first).but(conflict=conflict)])
        assert (placement.placing, placement.id) == (Placing.KEPT, first.id)

    async def test_of_many_that_name_the_same_run_one_is_placed(self, engine: Engine, another: Another) -> None:
        other = await another()
        first = a_run(due=HOUR)
        await place(engine, first)
        rivals = [in_place_of(first, b"%d" % number) for number in range(8)]
        answers = await asyncio.gather(
            *(by.schedule([run]) for run, by in zip(rivals, [engine, other] * 4, strict=True))
        )
        placings = [placement.placing for (placement,) in answers]
        assert placings.count(Placing.REPLACED) == 1
        (left,) = await all_runs(engine)
        assert left.id == rivals[placings.index(Placing.REPLACED)].id

    async def test_a_run_that_started_meanwhile_is_met_as_running(self, engine: Engine) -> None:
        first = a_run()
        await place(engine, first)
        claim = await take_one(engine)
        (placement,) = await engine.schedule([in_place_of(first).but(after=(first.id,), after_failure=True)])
        assert placement.state is State.WAITING
        await complete(engine, claim)
        assert await state_of(engine, first.key) is State.SCHEDULED
