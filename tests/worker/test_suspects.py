"""Runs that have seen two crashes: each is run apart from the others, so that none is condemned for another's."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from dovetail.model import Claim, Requeue, Settle, State, Verdict
from dovetail.worker import roster as module
from dovetail.worker.roster import Reason, Roster, Tenure
from tests.by_hand import soon

NOW = datetime(2030, 1, 1, tzinfo=UTC)


class Bodies:
    """Runs that go on until they are let go."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.settled: dict[str, Verdict] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.roster = Roster(10, self.attend, self.note, "docket")

    def note(self, verdict: Verdict) -> None:
        self.settled[verdict.claim.id] = verdict
        self.roster.settled(verdict.claim)

    async def attend(self, tenure: Tenure) -> Verdict:
        name = tenure.claim.id
        self.running.append(name)
        await self.gates.setdefault(name, asyncio.Event()).wait()
        self.running.remove(name)
        return Settle(tenure.claim, State.COMPLETED)

    async def start(self, **crashes: int) -> None:
        claims = [Claim(name, 1, name, "task", b"", 1, NOW, crashes=count) for name, count in crashes.items()]
        self.roster.claimed(claims, 100.0, 0.0)
        for _ in range(5):
            await asyncio.sleep(0)

    async def let_go(self, *names: str) -> None:
        for name in names:
            self.gates.setdefault(name, asyncio.Event()).set()
        for _ in range(10):
            await asyncio.sleep(0)


async def test_suspects_run_one_after_the_other_and_everything_else_beside_them():
    bodies = Bodies()
    await bodies.start(a=2, b=2, fresh=0, once=1)
    assert bodies.running == ["a", "fresh", "once"]
    await bodies.let_go("a")
    assert bodies.running == ["fresh", "once", "b"]
    await bodies.let_go("b", "fresh", "once")
    await soon(bodies.roster.is_idle.wait())
    assert set(bodies.settled) == {"a", "b", "fresh", "once"}


@pytest.mark.parametrize(("reason", "kind"), [(Reason.STOP, Settle), (Reason.SHUTDOWN, Requeue)])
async def test_a_suspect_that_is_stopped_while_it_waits_never_starts(reason: Reason, kind: type[Verdict]):
    bodies = Bodies()
    await bodies.start(a=2, b=2)
    bodies.roster.stop("b", reason)
    await bodies.let_go("a")
    await soon(bodies.roster.is_idle.wait())
    assert isinstance(bodies.settled["b"], kind)
    assert "b" not in bodies.gates, "its body has not begun"


async def test_a_suspect_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "QUARANTINE", 0.01)
    bodies = Bodies()
    await bodies.start(a=2, b=2)
    while bodies.running != ["a", "b"]:  # noqa: ASYNC110 - a timer ends it
        await asyncio.sleep(0.005)
    await bodies.let_go("a", "b")
    await soon(bodies.roster.is_idle.wait())
