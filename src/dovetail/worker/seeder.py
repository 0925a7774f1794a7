"""The seeder: starts the tasks that are to run unasked, and starts them again should their chain be cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta

from dovetail.clock import Clock, from_microseconds
from dovetail.engine import Engine
from dovetail.errors import DovetailError
from dovetail.model import Conflict, NewRun, Retention
from dovetail.tasks import Drafter, Task, TaskFunction
from dovetail.worker.logs import logger

INTERVAL = timedelta(seconds=60)
RETRY = timedelta(seconds=1)


class Seeder:
    """Any number of workers may seed: a key that is taken keeps a second seed out."""

    def __init__(
        self, engine: Engine, clock: Clock, tasks: Mapping[str, TaskFunction], drafter: Drafter,
        retention: Callable[[], Retention], is_stricken: Callable[[str, TaskFunction], bool] = lambda name, task: False,
    ) -> None:  # fmt: skip
        self._engine = engine
        self._clock = clock
        self._tasks = tasks
        self._drafter = drafter
        self._retention = retention
        self._is_stricken = is_stricken

    async def seed(self) -> bool:
        """Start what is not there; whether the store could be asked."""
        runs = self.seeds()
        try:
            if runs:
                await self._engine.schedule(runs)
        except DovetailError as error:
            logger.warning("automatic tasks could not be looked after: %s", error)
            return False
        return True

    async def run(self) -> None:
        """Look after them from time to time. The first look is the worker's own, before it claims anything."""
        while True:
            await self._clock.rest(None, INTERVAL)
            while not await self.seed():
                await self._clock.sleep(RETRY)

    def seeds(self) -> list[NewRun]:
        """The first run of every task that is to run unasked and may."""
        now = from_microseconds(self._clock.microseconds())
        retention = self._retention()
        return [
            # Whatever the behaviors plan, what is there is left in peace: to debounce a seed would put it off for ever.
            self._drafter.draft(
                task,
                name,
                (),
                {},
                key=name,
                due=due,
                retention=retention,
                queue=task.declaration.queue,
                priority=task.declaration.priority,
            ).but(conflict=Conflict.KEEP)
            for name, function in list(self._tasks.items())
            for task in [Task.of(function)]
            for behavior in task.all_behaviors
            if (due := behavior.seed(now)) is not None and not self._is_stricken(name, function)
        ]
