"""The seeder: starts the tasks that are to run unasked, and starts them again should their chain be cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from dovetail import checks
from dovetail.behaviors import Behavior
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
        self._automatic: set[str] = set()
        self._missing = asyncio.Event()
        self._at_once = asyncio.Event()

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
            await self._clock.rest(self._missing, INTERVAL)
            if self._missing.is_set():
                # A chain has ended, or is forbidden for now: it is looked after at its time, and not when it suits.
                self._missing.clear()
                await self._clock.wait(self._at_once, INTERVAL)
            self._at_once.clear()
            while not await self.seed():
                await self._clock.sleep(RETRY)

    def chain_ended(self, task: str) -> None:
        """A run under the key of a task was the last of its chain, for now."""
        if task in self._automatic:
            self._missing.set()

    def seed_again(self) -> None:
        """The store has lost all chains: there is no use in waiting until it is time to look."""
        self._at_once.set()
        self._missing.set()

    def seeds(self) -> list[NewRun]:
        """The first run of every task that is to run unasked and may."""
        now = from_microseconds(self._clock.microseconds())
        return [
            run
            for name, function in list(self._tasks.items())
            for behavior in Task.of(function).all_behaviors
            if (run := self._seed_of(name, function, behavior, now)) is not None
        ]

    def _seed_of(self, name: str, function: TaskFunction, behavior: Behavior, now: datetime) -> NewRun | None:
        """One that cannot be had concerns its own task alone."""
        try:
            due = behavior.seed(now)
            if due is None:
                return None
            self._automatic.add(name)
            if self._is_stricken(name, function):
                self._missing.set()
                return None
            due = checks.duration(due, "seed") if isinstance(due, timedelta) else checks.moment(due, "seed")
            task = Task.of(function)
            run = self._drafter.draft(
                task, name, (), {}, key=name, due=due, retention=self._retention(), queue=task.declaration.queue,
                priority=task.declaration.priority,
            )  # fmt: skip
        except Exception:
            logger.exception("the automatic task %r cannot be started", name)
            return None
        # Whatever the behaviors plan, what is there is left in peace: to debounce a seed would put it off for ever.
        return run.but(conflict=Conflict.KEEP)
