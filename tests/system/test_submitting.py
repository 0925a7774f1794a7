"""Producers that are killed while they add: what was acknowledged is there, and asking again adds nothing twice."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter, defaultdict

from dovetail import Docket
from dovetail.model import State
from tests.system.harness import Stage, are_over, runs_of
from tests.system.programs.submit import BATCH, drafted
from tests.waiting import PATIENCE, eventually

KILLS = 30


async def kill_producers(stage: Stage, kills: int) -> None:
    """Kill one producer after the other once it has added a few batches, with three at any time."""
    nursery = stage.start("submit", 3)
    enough: defaultdict[int, int] = defaultdict(lambda: random.randint(1, 5 * BATCH))
    killed: set[int] = set()

    def due() -> int | None:
        assert nursery.is_running, nursery.said
        counts = Counter(line.pid for line in stage.record.of("acknowledged"))
        return next((pid for pid, count in counts.items() if pid not in killed and count >= enough[pid]), None)

    while len(killed) < kills:
        victim = await eventually(due)
        os.kill(victim, signal.SIGKILL)
        killed.add(victim)
    nursery.kill_with_children()


async def test_a_producer_that_is_killed_loses_nothing_acknowledged_and_may_ask_again(
    stage: Stage, docket: Docket
) -> None:
    await kill_producers(stage, KILLS)

    sent = {line.run: (line.pid, line.epoch) for line in stage.record.of("sent")}
    acknowledged = {line.run for line in stage.record.of("acknowledged")}
    kept = {run.id for run in await runs_of(docket)}
    in_the_middle = {sent[run][0] for run in sent.keys() - acknowledged}
    assert len(in_the_middle) >= KILLS // 3, "kills hit producers that waited for an answer"
    assert acknowledged - kept == set()
    assert kept - sent.keys() == set()
    assert set(Counter(sent[run] for run in kept).values()) == {BATCH}, "all of a batch, or none"

    again = [drafted(docket, run) for run in sent]
    await docket.engine.schedule(again)
    await docket.engine.schedule(again)
    stage.start_worker(concurrency=50)
    await eventually(lambda: are_over(docket), within=2 * PATIENCE)
    await docket.engine.schedule(again)
    await eventually(lambda: are_over(docket), within=2 * PATIENCE)

    assert sorted(run.id for run in await runs_of(docket, State.COMPLETED)) == sorted(sent)
    assert sorted(line.run for line in stage.record.starts()) == sorted(sent)
