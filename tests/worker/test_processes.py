"""The processes of a worker: used again, replaced, and not to be had at times."""

from __future__ import annotations

import pickle
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from dovetail import Depends, Docket, Worker
from dovetail.errors import ProcessDied
from dovetail.model import Claim, Requeue, State
from dovetail.worker.processes import NotStarted, Processes
from dovetail.worker.processes.errors import got
from dovetail.worker.processes.letters import Order, Raised, Returned, Told, framed
from dovetail.worker.runner import UNSTARTED_DELAY
from tests import abroad
from tests.by_hand import ByHand, run_of

NOW = datetime(2030, 1, 1, tzinfo=UTC)


async def hear(told: Told) -> None:
    raise AssertionError(told)


def order(task: Any, *args: Any) -> bytes:
    claim = Claim("id", 1, "key", task.__name__, b"", 1, NOW)
    return framed(Order(task.__module__, task.__name__, claim, args, {}, {}, "worker", {}, {}))


async def result_of(processes: Processes, task: Any, *args: Any) -> Any:
    answer = await processes.carry_out(order(task, *args), hear, is_urgent=lambda: False)
    assert isinstance(answer, Returned)
    assert answer.result is not None
    return pickle.loads(answer.result)


@pytest.fixture
async def processes() -> AsyncIterator[Processes]:
    processes = Processes(runs_each=2)
    yield processes
    await processes.close()


async def test_a_process_is_replaced_after_so_many_runs(processes: Processes):
    pids = [await result_of(processes, abroad.whoami) for _ in range(3)]
    assert pids[0] == pids[1] != pids[2]


async def test_a_module_that_cannot_be_imported_there_is_an_error_of_the_body(processes: Processes):
    letter = framed(Order("no.such", "task", Claim("id", 1, "key", "task", b"", 1, NOW), (), {}, {}, "worker", {}, {}))
    answer = await processes.carry_out(letter, hear, is_urgent=lambda: False)
    assert isinstance(answer, Raised)
    assert isinstance(got(answer), ModuleNotFoundError)


async def test_a_death_is_told_by_its_signal(processes: Processes):
    with pytest.raises(ProcessDied, match=r"was killed by SIGSEGV \(signal 11\)"):
        await processes.carry_out(order(abroad.segfault), hear, is_urgent=lambda: False)
    assert isinstance(await result_of(processes, abroad.whoami), int)


@pytest.mark.parametrize("program", ["/no/such/python", "/bin/false"])
async def test_a_process_that_cannot_be_started_is_no_fault_of_the_run(
    processes: Processes, monkeypatch: pytest.MonkeyPatch, program: str
):
    monkeypatch.setattr(sys, "executable", program)
    with pytest.raises(NotStarted):
        await processes.carry_out(order(abroad.whoami), hear, is_urgent=lambda: False)


async def test_a_run_without_a_process_is_put_back_at_no_cost(
    by_hand: ByHand, still: Docket, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    await still.add(abroad.whoami)()
    verdict = await by_hand.attempt()
    assert isinstance(verdict, Requeue)
    assert (verdict.attempt, verdict.due, verdict.crashed) == (1, UNSTARTED_DELAY, False)


async def test_arguments_that_cannot_be_sent_fail_the_run(pickling: Docket):
    execution = await pickling.add(abroad.receive)(lambda: None)
    async with Worker(pickling) as worker:
        await worker.run_until_finished()
    run = await run_of(pickling, id=execution.id)
    assert run.state is State.FAILED
    assert "cannot be sent to a process of its own" in (run.error or "")


async def test_dependencies_that_the_worker_adds_stay_with_the_worker(docket: Docket):
    seen: list[str] = []

    def note() -> str:
        seen.append("set up")
        return "added"

    execution = await docket.add(abroad.ask, key="k")(1)
    async with Worker(docket, dependencies={"added": Depends(note)}) as worker:
        await worker.run_until_finished()
    assert seen == ["set up"]
    assert (await execution.get_result())[0] == "plain"
