"""What an engine has while it is open: connections, and what goes over them."""

from __future__ import annotations

from dovetail.clock import Clock
from dovetail.engine.reminding import Reminders
from dovetail.engines.postgres.calling import Caller
from dovetail.engines.postgres.gathering import Gatherer, Perform
from dovetail.engines.postgres.news import News
from dovetail.engines.postgres.pool import Pool
from dovetail.engines.postgres.shortcut import Shortcut
from dovetail.engines.postgres.telling import Listener, Notifier
from dovetail.engines.postgres.transacting import SIZE as TASKS
from dovetail.engines.postgres.transacting import TaskConnection
from dovetail.model import Finished, NewRun, Placement, Verdict


class Opened:
    """Made when an engine is opened, and closed with it."""

    def __init__(
        self,
        pool: Pool,
        docket: int,
        clock: Clock,
        *,
        place: Perform[NewRun, Placement],
        settle: Perform[Verdict, Finished],
    ) -> None:
        location = pool.location
        channel = f"{location.schema}/{docket}"
        self.pool = pool
        self.shortcut = Shortcut(clock.monotonic)
        self.task_pool = Pool(location, pool.durability, TASKS, TaskConnection)
        self.caller = Caller(location, pool, clock)
        self.listener = Listener(location, docket, channel)
        self._notifier = Notifier(pool, channel)
        self.reminders = Reminders(lambda: self.tell(News(work=True, told=[])))
        self.schedules = Gatherer(place)
        self.finishes = Gatherer(settle)

    def tell(self, news: News) -> None:
        if self.pool.location.pooled:
            self.listener.tell_here(news)
        else:
            self._notifier.tell(news)

    async def close(self) -> None:
        await self.schedules.close()
        await self.finishes.close()
        self.reminders.close()
        await self._notifier.close()
        await self.listener.close()
        await self.task_pool.close()
        await self.pool.close()
