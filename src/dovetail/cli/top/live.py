"""The live view: looks at the docket again and again, draws what it saw, and does what the keys say."""

from __future__ import annotations

import asyncio
import getpass
import signal
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

from rich.console import Console, RenderableType
from rich.live import Live

from dovetail.cli.top.keyboard import listening
from dovetail.cli.top.model import Look, QueueRow, RunRow, View, view_of
from dovetail.cli.top.screen import Surroundings, screen
from dovetail.cli.top.selection import Pane, Selection
from dovetail.docket import Docket
from dovetail.doctor import glance_of
from dovetail.errors import DovetailError
from dovetail.model import Revival

WINDOW = timedelta(seconds=10)
"""Over how long rates are taken: workers tell what they have done with their heartbeats, every two seconds."""
SIGNALLED = 128
"""What a shell adds to the number of the signal that ended a command."""
MESSAGE = 4.0
"""Seconds for which a message is shown."""
STEPS = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -10, "page down": 10, "home": -(10**6), "end": 10**6}
"""How far a key moves the selection."""
NOTHING = {
    "p": "there is no queue",
    "r": "no failure in sight; `dovetail failed ls` looks further",  # a glance sees a part of what failed
    "c": "nothing runs",
}
"""What is said to a key that has no row to act on."""


async def look(docket: Docket) -> Look:
    """Two bounded reads."""
    return Look.of(await glance_of(docket.engine), await docket.engine.holds())


class Top:
    """One user, looking at one docket."""

    def __init__(self, docket: Docket, store: str, console: Console, interval: float) -> None:
        self._docket = docket
        self._store = store
        self._console = console
        self._interval = interval
        self._silence = docket.heartbeat_interval * docket.missed_heartbeats
        self._looks: deque[Look] = deque()
        self._view: View | None = None
        self._selection = Selection()
        self._message = self._trouble = self._question = ""
        self._confirmed: Callable[[], Awaitable[str]] | None = None
        self._shows_help = self._quits = self._has_keys = False
        self._code = 0
        self._changed = asyncio.Event()
        self._at_once = asyncio.Event()  # look again now, without waiting for the interval
        self._actions: asyncio.TaskGroup

    async def run(self) -> int:
        """Until the user quits, or a signal says so. The terminal is then as it was. Returns the exit code."""
        loop = asyncio.get_running_loop()
        with (
            Live(console=self._console, screen=True, auto_refresh=False, redirect_stdout=False) as live,
            listening(self._heard) as self._has_keys,
        ):
            with suppress(NotImplementedError, AttributeError):  # Windows
                loop.add_signal_handler(signal.SIGWINCH, self._changed.set)
                for each in (signal.SIGTERM, signal.SIGHUP):
                    loop.add_signal_handler(each, self._quit, SIGNALLED + each)
            async with asyncio.TaskGroup() as self._actions:
                looking = self._actions.create_task(self._look_on(), name="dovetail top: looking")
                while not self._quits:
                    live.update(self._drawn(), refresh=True)
                    await self._changed.wait()
                    self._changed.clear()
                looking.cancel()
        return self._code

    def _quit(self, code: int = 0) -> None:
        self._quits, self._code = True, code
        self._changed.set()

    def _drawn(self) -> RenderableType:
        around = Surroundings(
            self._docket.name, self._store, self._message, self._trouble, self._question, self._has_keys,
            self._shows_help,
        )  # fmt: skip
        return screen(self._view, self._selection, around, self._console.height)

    # Looking

    async def _look_on(self) -> None:
        while True:
            try:
                self._take_in(await look(self._docket))
            except DovetailError as error:
                # What was seen last stays on the screen; it will come back, or the user quits.
                self._trouble = f"not reached, trying again: {error}"
            self._changed.set()
            self._at_once.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._at_once.wait(), self._interval)

    def _take_in(self, seen: Look) -> None:
        self._trouble = ""
        past = seen.glance.at - max(WINDOW, timedelta(seconds=self._interval * 1.5))
        while self._looks and self._looks[0].glance.at < past:
            self._looks.popleft()
        before = self._looks[0] if self._looks else None
        self._looks.append(seen)
        self._view = view_of(seen, before, self._silence)

    # Keys

    def _heard(self, key: str) -> None:
        self._changed.set()
        if self._confirmed is not None:
            self._answer(key)
        elif key == "q":
            self._quit()
        elif self._shows_help or key == "?":
            self._shows_help = not self._shows_help
        elif self._view is not None:
            self._handle(key, self._view)

    def _handle(self, key: str, view: View) -> None:
        if key in STEPS:
            self._selection.move(view, STEPS[key])
        elif key in ("tab", "f", "right"):
            self._selection.switch()
        elif key in ("back tab", "left"):
            self._selection.switch(-1)
        elif key in ("p", "r", "c"):
            self._act(key, view)

    def _act(self, key: str, view: View) -> None:
        pane = {"p": Pane.QUEUES, "r": Pane.FAILURES, "c": Pane.RUNS}[key]
        row = self._selection.row(view, pane)
        if row is None:
            self._say(NOTHING[key])
        elif isinstance(row, QueueRow):
            self._do(lambda: self._pause_or_resume(row))
        elif isinstance(row, RunRow) and key == "r":
            self._do(lambda: self._retry(row))
        elif isinstance(row, RunRow):
            self._question = f"cancel {row.key!r} ({row.task})? y or n"
            self._confirmed = lambda: self._cancel(row)

    def _answer(self, key: str) -> None:
        confirmed, self._confirmed, self._question = self._confirmed, None, ""
        if key == "y" and confirmed is not None:
            self._do(confirmed)

    # Doing

    def _do(self, action: Callable[[], Awaitable[str]]) -> None:
        self._actions.create_task(self._done(action), name="dovetail top: doing")

    async def _done(self, action: Callable[[], Awaitable[str]]) -> None:
        try:
            self._say(await action())
        except DovetailError as error:
            self._say(str(error))
        self._at_once.set()

    def _say(self, message: str) -> None:
        self._message = message
        self._changed.set()
        asyncio.get_running_loop().call_later(MESSAGE, self._unsay, message)

    def _unsay(self, message: str) -> None:
        if self._message == message:
            self._message = ""
            self._changed.set()

    async def _pause_or_resume(self, row: QueueRow) -> str:
        if row.is_paused:
            await self._docket.resume(row.name)
            return f"{row.name!r} goes on"
        await self._docket.pause(row.name, "paused in dovetail top", owner=_user())
        return f"{row.name!r} is paused"

    async def _retry(self, row: RunRow) -> str:
        (revived,) = await self._docket.engine.revive([Revival(row.id)])
        return f"{row.key!r} goes again" if revived else f"{row.key!r} cannot go again: another run holds its key"

    async def _cancel(self, row: RunRow) -> str:
        (answer,) = await self._docket.engine.cancel([row.key])
        return f"{row.key!r}: {answer}"


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a process may run as a number without a name
        return None
