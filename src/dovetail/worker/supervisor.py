"""The supervisor: keeps so many worker processes running, and says what becomes of each."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta

from dovetail.observe.serving import PLACE
from dovetail.worker.backoff import pause_after
from dovetail.worker.membership import LINE, Sign

logger = logging.getLogger("dovetail.supervisor")

SETTLED_AFTER = 60.0
"""Seconds after which a process counts as one that came up well: the next death is the first again."""
GIVE_UP_AFTER = 5
"""Deaths in a row, before any process was ever ready, after which there is no point in going on."""
HASTY = 5.0
"""Seconds of life below which a process that is worn was worn too soon."""
LENIENCY = 3
"""How many of them in a row may be."""
LAST_WORDS = 10.0
"""Seconds beyond the grace that a worker has for writing outcomes and leaving, before it is killed."""
REPORT_AFTER = timedelta(seconds=30)
KILL_AFTER = timedelta(minutes=5)
GLANCE = 0.25


class Member:
    """One worker process, as its supervisor sees it."""

    def __init__(self, process: asyncio.subprocess.Process, line: socket.socket) -> None:
        self._process = process
        self._line = line
        self.exited = asyncio.create_task(process.wait(), name=f"dovetail member {process.pid}")
        self.exited.add_done_callback(lambda _: self._hang_up())
        self.started = self.heard = self.sound = time.monotonic()
        self.was_ready = False
        self.is_going = False  # worn, and on its way out
        self.is_told = False  # to stop
        self.is_reported = False
        asyncio.get_running_loop().add_reader(line.fileno(), self._listen)

    @classmethod
    async def start(cls, command: Sequence[str], environment: Mapping[str, str]) -> Member:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    *command, env={**environment, LINE: str(theirs.fileno())}, pass_fds=[theirs.fileno()],
                    start_new_session=True,  # a signal from the terminal is passed on by the supervisor, and once
                )  # fmt: skip
            except BaseException:
                ours.close()
                raise
        return cls(process, ours)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def age(self) -> float:
        return time.monotonic() - self.started

    def _listen(self) -> None:
        try:
            signs = self._line.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            signs = b""
        if not signs:
            asyncio.get_running_loop().remove_reader(self._line.fileno())
            return
        now = self.heard = time.monotonic()
        self.is_going = self.is_going or Sign.GOING in signs
        self.was_ready = self.was_ready or Sign.READY in signs
        if not signs.endswith(Sign.STUCK):
            self.sound = now

    def _hang_up(self) -> None:
        if self._line.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._line.fileno())
            self._line.close()

    def send(self, number: signal.Signals) -> None:
        if not self.exited.done():
            with suppress(ProcessLookupError):
                # Not send_signal(): that looks first whether the process has ended, and then nobody learns how it did.
                os.kill(self.pid, number)

    def trouble(self) -> tuple[float, str] | None:
        """For how long something is wrong, and what."""
        now = time.monotonic()
        silent, stuck = now - self.heard, now - self.sound
        what = "its event loop does not turn" if silent >= stuck else "its claim loop does not move"
        return (max(silent, stuck), what) if max(silent, stuck) >= 1 else None


class Supervisor:
    """Runs `processes` copies of a command. One that dies is replaced, ever more slowly if it dies again and again; one
    that is worn is replaced while it still drains; one that is stuck is reported, and killed in the end."""

    def __init__(
        self,
        command: Sequence[str],
        processes: int = 1,
        *,
        grace: timedelta = timedelta(seconds=25),
        changes: AsyncIterator[object] | None = None,
        report_after: timedelta = REPORT_AFTER,
        kill_after: timedelta = KILL_AFTER,
    ) -> None:
        self._command = command
        self._processes = processes
        self._grace = grace.total_seconds()
        self._changes = changes  # of files: at each of them everything starts anew
        self._report_after = report_after.total_seconds()
        self._kill_after = kill_after.total_seconds()
        self._members: set[Member] = set()
        self._environment = dict(os.environ)
        self._stop_requests = 0
        self._stopping = asyncio.Event()
        self._restart = asyncio.Event()
        self._was_ready = False
        self._exit_code = 0

    async def run(self) -> int:
        """Until told to stop, until every process has ended by itself, or until there is no point; the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        logger.info("supervisor %d starts %d worker processes", os.getpid(), self._processes)
        try:
            async with asyncio.TaskGroup() as group:
                helpers = [group.create_task(self._watch(), name="dovetail watch")]
                if self._changes is not None:
                    helpers.append(group.create_task(self._reload(self._changes), name="dovetail reload"))
                places = [group.create_task(self._keep(number)) for number in range(self._processes)]
                await asyncio.wait(places)
                for helper in helpers:
                    helper.cancel()
        finally:
            for member in self._members:
                member.send(signal.SIGKILL)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
        return self._exit_code

    def stop(self) -> None:
        """Once: let the workers end within their grace. Twice: let them hand their work back now."""
        self._stop_requests += 1
        self._stopping.set()
        what = "stop" if self._stop_requests == 1 else "hurry"
        logger.info("%d worker processes are told to %s", len(self._members), what)
        patience = LAST_WORDS + (self._grace if self._stop_requests == 1 else 0)
        for member in list(self._members):
            self._end(member, patience)

    def _end(self, member: Member, patience: float) -> None:
        # Two signals of one kind may arrive as one, and a second one says something else.
        member.send(signal.SIGINT if member.is_told else signal.SIGTERM)
        member.is_told = True
        asyncio.get_running_loop().call_later(patience, self._kill_if_there, member, patience)

    def _kill_if_there(self, member: Member, patience: float) -> None:
        if not member.exited.done():
            logger.error("worker process %d has not ended within %.0f s, and is killed", member.pid, patience)
            self._exit_code = 1
            member.send(signal.SIGKILL)

    # One place

    async def _keep(self, place: int) -> None:
        """Keep one process running in its place, and see those out that leave it."""
        deaths = hasty = 0
        leaving: set[asyncio.Task[int]] = set()
        while not self._stopping.is_set():
            try:
                member = await Member.start(self._command, {**self._environment, PLACE: str(place)})
            except OSError as error:
                deaths += 1
                logger.error("no worker process can be started: %s", error)
                if not await self._goes_on_after(deaths):
                    break
                continue
            self._members.add(member)
            logger.info("worker process %d started (place %d)", member.pid, place)
            if self._stopping.is_set():
                self._end(member, LAST_WORDS)
            await self._until_to_be_replaced(member)
            if member.is_going:
                logger.info("worker process %d makes room for another", member.pid)
                leaving.add(asyncio.create_task(self._see_out(member)))
                deaths, hasty = 0, hasty + 1 if member.age < HASTY else 0
                await self._slow_down(member, hasty)
                continue
            self._forget(member)
            if member.is_told:
                continue
            if member.exited.result() == 0:
                logger.info("worker process %d has done its work", member.pid)
                break
            deaths = 1 if member.age > SETTLED_AFTER else deaths + 1
            logger.error("worker process %d %s after %.1f s", member.pid, how(member.exited.result()), member.age)
            if not await self._goes_on_after(deaths):
                break
        if leaving:
            await asyncio.wait(leaving)

    async def _until_to_be_replaced(self, member: Member) -> None:
        while not (member.exited.done() or member.is_going):
            await asyncio.wait([member.exited], timeout=GLANCE)

    async def _see_out(self, member: Member) -> int:
        code = await member.exited
        self._forget(member)
        logger.info("worker process %d, which was replaced, %s", member.pid, how(code))
        return code

    def _forget(self, member: Member) -> None:
        self._members.discard(member)
        self._was_ready = self._was_ready or member.was_ready

    async def _goes_on_after(self, deaths: int) -> bool:
        """Wait before the next try; False if there is none."""
        was_ready = self._was_ready or any(member.was_ready for member in self._members)
        if deaths >= GIVE_UP_AFTER and not was_ready and self._changes is None:
            logger.critical("no worker process became ready in %d tries: the supervisor gives up", deaths)
            self._exit_code = 1
            self.stop()
            return False
        pause = pause_after(deaths)
        logger.info("the next one is started in %.1f s", pause)
        await self._pause(pause)
        return not self._stopping.is_set()

    async def _slow_down(self, member: Member, hasty: int) -> None:
        """Wait before the next one is started if they are worn as soon as they are there."""
        if hasty > LENIENCY:
            pause = pause_after(hasty - LENIENCY)
            logger.warning(
                "worker process %d was worn after %.1f s, like those before: a limit is too low for it. The next one is"
                " started in %.1f s", member.pid, member.age, pause,
            )  # fmt: skip
            await self._pause(pause)

    async def _pause(self, pause: float) -> None:
        """Wait, unless there is something new."""
        waiting = [asyncio.ensure_future(each.wait()) for each in (self._stopping, self._restart)]
        await asyncio.wait(waiting, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
        for each in waiting:
            each.cancel()

    # All of them

    async def _watch(self) -> None:
        """Report those that do not move, and in the end kill them."""
        while True:
            await asyncio.sleep(GLANCE)
            for member in list(self._members):
                trouble = None if member.is_told else member.trouble()
                if trouble is None or trouble[0] < self._report_after:
                    member.is_reported = False
                    continue
                if trouble[0] >= self._kill_after:
                    logger.error("worker process %d is killed: for %.0f s %s", member.pid, *trouble)
                    member.send(signal.SIGKILL)
                elif not member.is_reported:
                    member.is_reported = True
                    logger.warning("worker process %d: for %.0f s %s", member.pid, *trouble)

    async def _reload(self, changes: AsyncIterator[object]) -> None:
        async for change in changes:
            logger.info("%s: the workers start anew", change)
            self._restart.set()
            for member in list(self._members):
                # Twice is to hand running work back at once: nobody wants to wait for the grace.
                self._end(member, LAST_WORDS)
                self._end(member, LAST_WORDS)
            await asyncio.sleep(0)
            self._restart.clear()


def how(code: int) -> str:
    """How a process ended."""
    if code >= 0:
        return f"ended with exit code {code}"
    with suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"
