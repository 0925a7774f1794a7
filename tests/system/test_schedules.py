"""Schedules while workers are killed: every time comes once, on every store."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from dovetail import Docket
from dovetail.errors import InvalidArgument
from dovetail.model import RunQuery
from dovetail.schedules import QUEUE
from tests.stores import Stores
from tests.system.harness import LEASE, Record, Stage, are_over, set_stage, short_folder
from tests.system.programs.tasks import pause
from tests.waiting import PATIENCE, eventually

SCHEDULES = 10
KILLS = 8
SECOND = timedelta(seconds=1)


class ServerStage(Stage):
    """A docket on a server, and all processes that play on it."""

    def check(self) -> None:
        for process in self.processes:
            assert "Traceback" not in process.said


@pytest.fixture(params=["file", "redis", "postgres"])
def stage(request: pytest.FixtureRequest, stores: Stores) -> Iterator[Stage]:
    with short_folder() as folder:
        if request.param == "file":
            with set_stage(folder) as stage:
                yield stage
            return
        with stores.place(request.param) as url:
            stage = ServerStage(folder, folder / "none")
            stage.url = url
            try:
                yield stage
            finally:
                stage.clear()
            stage.check()


async def kill_many(stage: Stage) -> None:
    """Kill one worker after the other, each after a few runs, with three at any time; the last three stay."""
    workers = [stage.start_worker(lease=LEASE) for _ in range(3)]
    for _ in range(KILLS):
        victim, runs = random.choice(workers), random.randrange(1, 10)
        await eventually(lambda: len(stage.record.starts(pid=victim.pid)) >= runs)  # noqa: B023
        victim.kill()
        workers[workers.index(victim)] = stage.start_worker(lease=LEASE)


async def end_of(docket: Docket, name: str) -> datetime:
    """Let a schedule end in three seconds; when that is."""
    while True:
        end = datetime.now(UTC).replace(microsecond=0) + 3 * SECOND
        try:
            await docket.schedules.change(name, until=end)
            return end
        except InvalidArgument:  # it took longer than that to say so
            continue


def runs_by_slot(record: Record) -> dict[str, dict[datetime, set[str]]]:
    """Of each schedule: its times, and the runs that were started for them."""
    found: defaultdict[str, defaultdict[datetime, set[str]]] = defaultdict(lambda: defaultdict(set))
    for line in record.starts():
        name, _, slot = line.key.removeprefix("schedule:").partition(":")
        found[name][datetime.fromisoformat(slot)].add(line.run)
    return {name: dict(slots) for name, slots in found.items()}


async def test_every_time_comes_once_though_workers_are_killed(stage: Stage, docket: Docket) -> None:
    made = [
        await docket.schedules.add(f"s{number}", pause, "* * * * * *", misfire="all", overlap="allow")(10)
        for number in range(SCHEDULES)
    ]
    await kill_many(stage)
    ends = {schedule.name: await end_of(docket, schedule.name) for schedule in made}
    await eventually(lambda: are_over(docket), within=2 * PATIENCE)
    assert await docket.find_all(RunQuery(queues=(QUEUE,))) == []
    found = runs_by_slot(stage.record)
    for schedule in made:
        assert schedule.next_time is not None
        seconds = range(round((ends[schedule.name] - schedule.next_time) / SECOND) + 1)
        slots = found[schedule.name]
        assert sorted(slots) == [schedule.next_time + number * SECOND for number in seconds]
        assert [slot for slot, runs in slots.items() if len(runs) != 1] == []
