"""The seeder: starts the tasks that are to run unasked, and starts them again should their chain be cut."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta

from dovetail.clock import Clock
from dovetail.engine import Engine
from dovetail.errors import EngineUnavailable
from dovetail.model import NewRun, Retention
from dovetail.tasks import Drafter, Task, TaskFunction

logger = logging.getLogger("dovetail.worker")

INTERVAL = timedelta(seconds=60)


class Seeder:
    """Any number of workers may seed: a key that is taken keeps a second seed out."""

    def __init__(
        self, engine: Engine, clock: Clock, tasks: Mapping[str, TaskFunction], drafter: Drafter,
        retention: Callable[[], Retention],
    ) -> None:  # fmt: skip
        self._engine = engine
        self._clock = clock
        self._tasks = tasks
        self._drafter = drafter
        self._retention = retention

    async def seed(self) -> None:
        runs = self.seeds()
        if runs:
            await self._engine.schedule(runs)

    async def run(self) -> None:
        while True:
            await self._clock.sleep(INTERVAL)
            try:
                await self.seed()
            except EngineUnavailable as error:
                logger.warning("automatic tasks could not be looked after: %s", error)

    def seeds(self) -> list[NewRun]:
        """The first run of every task that is to run unasked."""
        return [
            self._drafter.draft(task, name, (), {}, key=name, due=delay, retention=self._retention())
            for name, function in list(self._tasks.items())
            for task in [Task.of(function)]
            for behavior in task.all_behaviors
            if (delay := behavior.seed()) is not None
        ]
