"""Crew: the parts of a worker while it runs, and the order in which they start and stop."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import socket
from contextlib import AbstractContextManager, AsyncExitStack
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from uncalled_for import SharedContext

from dovetail.clock import SystemClock, VirtualClock, from_microseconds
from dovetail.engine.tracing import show_calls
from dovetail.errors import EngineUnavailable, OutcomeUnknown
from dovetail.execution import Execution
from dovetail.injection import current_docket, current_worker
from dovetail.model import Claim, Settle, Verdict, WorkerInfo
from dovetail.model import Pulse as Heard
from dovetail.observe.health import Vitals
from dovetail.observe.tracing import in_background
from dovetail.schedules.definition import TASK as SCHEDULE
from dovetail.tasks import Task, TaskFunction, compact_signature
from dovetail.worker.additions import lifecycles
from dovetail.worker.backoff import spread
from dovetail.worker.budget import Budget
from dovetail.worker.completing import completing
from dovetail.worker.hearing import Hearing
from dovetail.worker.intake import Intake
from dovetail.worker.janitor import Janitor
from dovetail.worker.lines import Lines
from dovetail.worker.listener import Listener
from dovetail.worker.logs import logger
from dovetail.worker.memory import Memory
from dovetail.worker.pulse import Pulse, PulseThread
from dovetail.worker.reporter import Reporter
from dovetail.worker.roster import Attend, Reason, Roster, Tenure
from dovetail.worker.round import Round
from dovetail.worker.runner import Runner
from dovetail.worker.seeder import RETRY, Seeder
from dovetail.worker.settler import Settler
from dovetail.worker.surveyor import Surveyor
from dovetail.worker.tally import Tally
from dovetail.worker.telemetry import Telemetry
from dovetail.worker.threads import Threads
from dovetail.worker.ticker import Ticker

if TYPE_CHECKING:
    from dovetail.worker.worker import Worker

Shared = tuple[dict[Any, Any], asyncio.Lock, AsyncExitStack]
"""What the tasks of one worker share: values, the lock for making them, and how they are put away."""

READY_WITHIN = 20.0
"""Seconds for which a claim shows that the claim loop moves: it looks every five or so by itself."""
STUCK_AFTER = 60.0
"""Seconds without so much as a failed claim after which the claim loop counts as stuck."""
FLUSH_TIME = 5.0
"""Seconds that a worker which is out of time still gives to writing down outcomes."""

DEAF_NAMED = 10
"""How many runs that ignore their cancellation are named with a heartbeat."""


class Crew:
    """The parts of a worker while it runs, and the order in which they stop, which is written here once."""

    def __init__(self, worker: Worker, shared: Shared, *, until_finished: bool, budget: Budget | Round | None) -> None:
        docket = worker.docket
        if worker.enable_internal_instrumentation:
            show_calls(docket.engine, docket.url, docket.name)
        self._shared = shared
        self._worker = worker
        self._docket = docket
        self._clock = docket.clock
        self._grace = worker.shutdown_grace
        self._stop_requests = 0
        self._stopping = asyncio.Event()
        self._asked = asyncio.Event()
        self._hurry = asyncio.Event()
        self.finished = asyncio.Event()
        self._threads = Threads()
        self._telemetry = Telemetry(worker.labels())
        self.tally = Tally()
        self._join_those_who_run(budget)
        self.intake = Intake(
            docket.engine, self.roster, self._clock, worker=worker.name, queues=worker.queues,
            lease=worker.redelivery_timeout, batch=worker.message_batch,
            reconnection_delay=worker.reconnection_delay, until_finished=until_finished,
            once=isinstance(budget, Round), shares=worker.shares, ageing=worker.ageing,
        )  # fmt: skip
        self._runner.cannot_share = self.intake.brake.press
        self._join_those_who_help()
        for part in (self._runner, self.settler, self.intake, self.pulse, self.hearing, self.memory, self._ticker):
            part.telemetry = self._telemetry
        self._started = from_microseconds(self._clock.microseconds())

    def _join_those_who_run(self, budget: Budget | Round | None) -> None:
        """Those through whose hands a claim goes, to its verdict and into the store."""
        worker, docket = self._worker, self._docket
        self.reporter = Reporter(docket.engine, self._clock)
        self._runner = runner = Runner(
            docket, self._clock, self._threads, Lines(worker.labels()), worker.name, worker.fallback_task,
            worker.dependencies, self.reporter,
        )  # fmt: skip
        runner.middleware = worker.hooks
        runner.is_stopping = lambda: self._stop_requests > 0
        attend = runner.run if budget is None else budget.around(runner.run)
        attend = completing(attend, self._telemetry, self.tally)
        self._ticker = Ticker(docket.engine, docket.codec, self._clock)
        attend = self._ticker.around(attend)
        if isinstance(self._clock, VirtualClock):
            attend = _accompanied(attend, self._clock)
        self.roster = Roster(worker.concurrency, attend, self._put, docket.name)
        self.settler = Settler(docket.engine, self._clock)
        self.settler.settled = self._settled
        self.settler.give_up = self._ticker.given_up

    def _join_those_who_help(self) -> None:
        """Those who keep up leases, news, automatic tasks and the store beside that."""
        worker, docket = self._worker, self._docket
        self.listener = Listener(
            docket.engine, self._clock, on_work=self.intake.hint,
            on_stop=lambda run_id: self.roster.stop(run_id, Reason.STOP),
            reconnection_delay=worker.reconnection_delay,
        )  # fmt: skip
        self.seeder = Seeder(
            docket.engine, self._clock, docket.tasks, docket.drafter, lambda: docket.retention, self._is_stricken
        )
        self.memory = Memory(self._clock, self.seeder.seed_again)
        self.janitor = Janitor(docket.engine, self._clock, lambda: docket.heartbeat_interval * docket.missed_heartbeats)
        self.hearing = Hearing(self.roster)
        self._in_thread = isinstance(self._clock, SystemClock)
        self.pulse = Pulse(
            docket.engine.twin(), self.roster, self._clock, lease=worker.redelivery_timeout,
            interval=lambda: docket.heartbeat_interval, say=self._say, heard=self._heed,
        )  # fmt: skip
        self.surveyor = Surveyor(docket.engine, self._clock, self._telemetry, lambda: docket.heartbeat_interval)
        self._pulse_thread = PulseThread(self.pulse, self.roster)

    def stop(self) -> None:
        """Once: take in nothing more, let running work end. Twice: hand it back now."""
        self._stop_requests += 1
        self._asked.set()
        self._stopping.set()
        self.intake.stop()
        if self._stop_requests > 1:
            self._hurry.set()

    def retire(self) -> None:
        """Take in nothing more, without asking anything to hurry."""
        self._stopping.set()
        self.intake.stop()

    @property
    def is_ready(self) -> bool:
        intake, now = self.intake, self._clock.monotonic()
        if self._stopping.is_set() or not intake.has_claimed:
            return False
        return self.roster.room <= 0 or now - intake.moved < READY_WITHIN

    @property
    def is_stuck(self) -> bool:
        is_due = not self._stopping.is_set() and self.roster.room > 0
        return is_due and self._clock.monotonic() - self.intake.tried > STUCK_AFTER

    @property
    def last_claim_at(self) -> datetime | None:
        if not self.intake.has_claimed:
            return None
        ago = timedelta(seconds=self._clock.monotonic() - self.intake.moved)
        return from_microseconds(self._clock.microseconds()) - ago

    async def work(self) -> None:
        self._set_context()
        self._announce()
        self._telemetry.begin(self._docket.tasks)
        try:
            with self._in_background():
                await self._learn_strikes()
            async with (
                lifecycles(self._worker, self._docket.tasks.values()),
                self._docket.hooks.lifetime(self._worker),
                self._worker.hooks.lifetime(self._worker),
                asyncio.TaskGroup() as group,
            ):
                self.roster.context = contextvars.copy_context()
                with self._in_background():
                    await self._keep_at_it(group)
        finally:
            # Only after a bug of ours is anything still at work: nobody would renew its lease.
            await self._abandon()
            self._threads.shutdown()
            await self._runner.processes.close()
            self._telemetry.end()
            self.finished.set()

    async def _keep_at_it(self, group: asyncio.TaskGroup) -> None:
        await self._seed()
        pulse = group.create_task(self._beat(), name="dovetail pulse")
        settling = group.create_task(self.settler.run(), name="dovetail settler")
        helpers = [group.create_task(self.listener.run(), name="dovetail listener")]
        helpers.append(group.create_task(self.janitor.run(), name="dovetail janitor"))
        helpers.append(group.create_task(self.reporter.run(), name="dovetail reporter"))
        helpers.append(group.create_task(self.hearing.run(), name="dovetail hearing"))
        helpers.append(group.create_task(self.surveyor.run(), name="dovetail surveyor"))
        if self._worker.schedule_automatic_tasks:
            helpers.append(group.create_task(self.seeder.run(), name="dovetail seeder"))
        await self.intake.run()
        await self._drain()
        self.settler.close()
        await self._flush(settling)
        for helper in helpers:
            helper.cancel()
        await self.surveyor.look_again()
        self._stop_beating()
        await pulse

    def _in_background(self) -> AbstractContextManager[None]:
        """What the parts ask of the store shows in nobody's traces, unless it is to. Bodies are not among it."""
        return in_background(traced=self._worker.enable_internal_instrumentation)

    def vitals(self) -> Vitals:
        since = self._clock.monotonic() - self.intake.moved
        running, has_room = self.roster.running, self.roster.room > 0
        return Vitals(
            timedelta(seconds=since), has_room, len(running), self._stopping.is_set(), deaf=len(self.roster.deaf),
            is_helpless=not has_room and all(tenure.is_deaf for tenure in running),
        )  # fmt: skip

    def _set_context(self) -> None:
        """This worker, its docket and what its tasks share are those of its own tasks, and not of another worker's."""
        current_docket.set(self._docket)
        current_worker.set(self._worker)
        resolved, lock, stack = self._shared
        SharedContext.resolved.set(resolved)
        SharedContext.lock.set(lock)
        SharedContext.stack.set(stack)

    async def _learn_strikes(self) -> None:
        """Know what is stricken before anything is claimed, however long that takes, or be told to stop."""
        learning = asyncio.ensure_future(self._read_strikes())
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait([learning, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not learning.cancel():
            learning.result()

    async def _read_strikes(self) -> None:
        while True:
            try:
                return await self._docket.strike_list.refresh()
            except (EngineUnavailable, OutcomeUnknown) as error:
                delay = self._worker.reconnection_delay
                logger.warning("the strikes cannot be read, trying again in %s: %s", delay, error)
                await self._clock.sleep(spread(delay))

    def _is_stricken(self, name: str, function: TaskFunction) -> bool:
        """Whether a task must not be started unasked."""
        now = from_microseconds(self._clock.microseconds())
        seed = Execution[Any](self._docket, function, (), {}, name, now, function_name=name)
        return self._docket.strike_list.is_stricken(seed)

    async def _seed(self) -> None:
        """Start automatic tasks before anything is claimed: a worker that is to finish must not miss them."""
        if not self._worker.schedule_automatic_tasks or self._stop_requests:
            return
        while not await self.seeder.seed() and not self._stop_requests:
            await self._clock.sleep(RETRY)

    def _put(self, verdict: Verdict) -> None:
        self.settler.put(self._ticker.instead_of_handing_back(verdict))
        if verdict.claim.key == verdict.claim.task and isinstance(verdict, Settle) and not verdict.then:
            self.seeder.chain_ended(verdict.claim.task)

    def _settled(self, claim: Claim) -> None:
        self.roster.settled(claim)
        if claim.task == SCHEDULE:
            self.intake.hint()  # it has placed runs that are due: no need to wait until the store says so

    async def _drain(self) -> None:
        """Hand back what has not started; let running work end while there is grace, then hand it back too."""
        self.roster.release_reserve()
        if not self.roster.running:
            return
        logger.info("Shutdown requested, finishing %d running runs", len(self.roster.running))
        idle = asyncio.ensure_future(self.roster.is_idle.wait())
        hurry = asyncio.ensure_future(self._hurry.wait())
        grace = asyncio.ensure_future(self._grace_is_over())
        await asyncio.wait([idle, hurry, grace], return_when=asyncio.FIRST_COMPLETED)
        for each in (hurry, grace):
            each.cancel()
        if self.roster.running:
            logger.warning("out of time: %d runs are handed back", len(self.roster.running))
            self.roster.stop_all(Reason.SHUTDOWN)
            await asyncio.wait([idle], timeout=FLUSH_TIME)
        idle.cancel()

    async def _grace_is_over(self) -> None:
        await self._asked.wait()  # one who retires waits for as long as it takes
        await self._clock.sleep(self._grace)

    async def _abandon(self) -> None:
        bodies = self.roster.stop_all(Reason.LOST)
        if bodies:
            await asyncio.wait(bodies, timeout=FLUSH_TIME)

    async def _flush(self, settling: asyncio.Task[None]) -> None:
        done, _ = await asyncio.wait([settling], timeout=max(FLUSH_TIME, self._grace.total_seconds()))
        if not done:
            logger.error("some outcomes could not be written; their runs start again once their leases lapse")
            settling.cancel()

    async def _beat(self) -> None:
        if self._in_thread:
            await self._pulse_thread.run()
        else:
            await self.pulse.run(asyncio.get_running_loop())

    def _stop_beating(self) -> None:
        if self._in_thread:
            self._pulse_thread.stop()
        else:
            self.pulse.stop()

    def _say(self) -> WorkerInfo:
        worker = self._worker
        return WorkerInfo(
            worker.name, tasks=frozenset(self._docket.tasks), id=worker.id, queues=worker.queues,
            concurrency=worker.concurrency, running=len(self.roster.running), host=socket.gethostname(),
            pid=os.getpid(), started=self._started, has_fallback=worker.fallback_task is not None,
            interval=self._docket.heartbeat_interval, blocked=self._pulse_thread.blocked,
            lease=worker.redelivery_timeout, grace=worker.shutdown_grace,
            ended=dict(self.tally.ended), failed=self.tally.failed,
            deaf=tuple(tenure.claim.key for tenure in self.roster.deaf[:DEAF_NAMED]), emptied=self.memory.lost_at,
            clock=from_microseconds(self._clock.microseconds()),
        )  # fmt: skip

    def _heed(self, heard: Heard) -> None:
        self.memory.heard(heard.origin, len(heard.lost))
        self._docket.strike_list.notice(heard.holds)
        for run_id in heard.lost:
            self.roster.stop(run_id, Reason.LOST)
        for run_id in heard.stopping:
            self.roster.stop(run_id, Reason.STOP)

    def _announce(self) -> None:
        if not logger.isEnabledFor(logging.INFO):
            return
        logger.info("Starting worker %r with the following tasks:", self._worker.name)
        for name, function in self._docket.tasks.items():
            logger.info("* %s(%s)", name, compact_signature(Task.of(function).signature))


def _accompanied(attend: Attend, clock: VirtualClock) -> Attend:
    """Let a clock that is moved know of the bodies that run."""

    async def accompany(tenure: Tenure) -> Verdict | None:
        with clock.body(tenure.claim.key):
            return await attend(tenure)

    return accompany
