"""Runs that have seen two crashes: each is run apart from the others, so that none is condemned for another's."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from dovetail.model import Claim, Requeue, Settle, State, Verdict
from dovetail.worker import roster as module
from dovetail.worker.roster import Reason, Roster, Tenure
from tests.waiting import soon

NOW = datetime(2030, 1, 1, tzinfo=UTC)


class Bodies:
    """Runs that go on until they are let go."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.writes = True
        self.settled: dict[str, Verdict] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.roster = Roster(10, self.attend, self.note, "docket")

    def note(self, verdict: Verdict) -> None:
        self.settled[verdict.claim.id] = verdict
        if self.writes:
            asyncio.get_running_loop().call_soon(self.roster.settled, verdict.claim)

    async def attend(self, tenure: Tenure) -> Verdict:
        name = tenure.claim.id
        self.running.append(name)
        await self.gates.setdefault(name, asyncio.Event()).wait()
        self.running.remove(name)
        return Settle(tenure.claim, State.COMPLETED)

    async def start(self, **crashes: int) -> None:
        claims = [Claim(name, 1, name, "task", b"", 1, NOW, crashes=count) for name, count in crashes.items()]
        self.roster.claimed(claims, 100.0, 0.0)
        for _ in range(20):
            await asyncio.sleep(0)

    async def let_go(self, *names: str) -> None:
        for name in names:
            self.gates.setdefault(name, asyncio.Event()).set()
        for _ in range(20):
            await asyncio.sleep(0)


async def test_while_one_suspect_runs_the_others_are_handed_back_at_no_cost():
    bodies = Bodies()
    await bodies.start(a=2, b=2, fresh=0, once=1)
    assert sorted(bodies.running) == ["a", "fresh", "once"]
    back = bodies.settled["b"]
    assert isinstance(back, Requeue)
    assert (back.attempt, back.crashed) == (1, False)
    await bodies.let_go("a")
    await bodies.start(b=2)
    assert "b" in bodies.running
    await bodies.let_go("b", "fresh", "once")
    await soon(bodies.roster.is_idle.wait())


async def test_a_suspect_starts_only_when_the_store_knows_that_the_others_were_handed_back():
    bodies = Bodies()
    bodies.writes = False
    await bodies.start(a=2, b=2)
    assert bodies.running == []
    bodies.roster.settled(bodies.settled["b"].claim)
    await bodies.let_go()
    assert bodies.running == ["a"]
    await bodies.let_go("a")


async def test_a_suspect_that_is_stopped_before_it_begins_never_starts():
    bodies = Bodies()
    bodies.writes = False
    await bodies.start(a=2, b=2)
    bodies.roster.stop("a", Reason.STOP)
    await bodies.let_go()
    verdict = bodies.settled["a"]
    assert isinstance(verdict, Settle)
    assert verdict.state is State.CANCELLED
    assert bodies.running == []


async def test_a_suspect_that_runs_for_long_keeps_nobody_away(monkeypatch: pytest.MonkeyPatch):
    bodies = Bodies()
    await bodies.start(a=2)
    monkeypatch.setattr(module, "QUARANTINE", 0.0)
    await bodies.start(b=2)
    assert bodies.running == ["a", "b"]
    await bodies.let_go("a", "b")
    await soon(bodies.roster.is_idle.wait())
