"""The stage for the demo: worker processes, a timeline of what happens, and a table of what was seen."""

import asyncio
import shlex
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dovetail import Docket, DovetailError, ExecutionState
from dovetail.model import Event, EventKind, Topic

LONGEST = 25
"""Seconds after which the demo gives up."""

COLOURS = {"you": "cyan", "worker-1": "magenta", "worker-2": "yellow"}

Story = Callable[[Docket, "Stage"], Awaitable[None]]


class Stage:
    """Plays a story on a docket of its own, and leaves nothing behind."""

    def __init__(self, promises: Sequence[str], tasks: str) -> None:
        self._console = Console(highlight=False)
        self._began = time.monotonic()
        self._seen: dict[str, tuple[bool, str]] = dict.fromkeys(promises, (False, "not seen"))
        self._tasks = tasks
        self._workers: list[Process] = []
        self._last: dict[str, Event] = {}  # the latest event of each key
        self._hands: dict[str, str] = {}  # the worker that last had a key in hand

    async def play(self, story: Story) -> int:
        """Play it, and return the exit code: 0 only if everything was seen."""
        this = asyncio.current_task()
        assert this is not None
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, this.cancel)
        # A short path, if there is one: the sockets by which processes wake each other lie beside the database.
        place = "/tmp" if Path("/tmp").is_dir() else None
        try:
            with TemporaryDirectory(prefix="dovetail-", dir=place) as folder:
                return await self._play(story, Path(folder))
        except asyncio.CancelledError:
            self._console.print("\n  Interrupted. The workers are stopped, and every file is gone.\n")
            return 130

    async def _play(self, story: Story, folder: Path) -> int:
        self._url = f"sqlite:///{folder}/demo.db"
        self._log = folder / "workers.log"
        self._console.print(f"\n  [bold]Dovetail[/]  [dim]on one SQLite file, {folder}/demo.db[/]")
        problem = ""
        async with AsyncExitStack() as stack:
            self._docket = await stack.enter_async_context(Docket("demo", self._url))
            stack.push_async_callback(self._kill_workers)
            await stack.enter_async_context(self._telling())
            stack.enter_context(self._console.status("[dim]working[/]"))
            try:
                async with asyncio.timeout(LONGEST):
                    await story(self._docket, self)
            except (TimeoutError, DovetailError, AssertionError) as error:
                problem = f"{type(error).__name__}: {error or f'not over after {LONGEST} s'}"
        return self._close(problem)

    # Workers

    async def worker(self, name: str) -> Process:
        """Start a worker process, with the command that a person would type, and wait until it is there."""
        self.notes("", f"$ dovetail worker --tasks {self._tasks}", "→")
        options = f"--name {name} --tasks {self._tasks} --docket demo --url {self._url} --lease 2"
        with self._log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "dovetail", "worker", *shlex.split(options), stdout=log, stderr=log
            )
        self._workers.append(process)
        while name not in {worker.name for worker in await self._docket.workers()}:
            assert process.returncode is None, f"{name} ended before it began"
            await asyncio.sleep(0.02)
        self._line(name, "·", "", f"is there, as process {process.pid}")
        return process

    async def _kill_workers(self) -> None:
        for process in self._workers:
            if process.returncode is None:
                process.kill()
            await process.wait()

    # The timeline

    def act(self, title: str) -> None:
        self._console.print(f"\n  [bold]{title}[/]")

    async def says(self, key: str, text: str) -> None:
        """What this process is about to do, after a breath: people read along."""
        await asyncio.sleep(0.4)
        self._line("you", "→", key, text)

    def notes(self, key: str, text: str, arrow: str) -> None:
        self._line("you", arrow, key, text)

    async def hears(self, key: str, text: str) -> None:
        await asyncio.sleep(0.05)  # a result may overtake the news that there is one
        self._line("you", "←", key, text, "bold")

    @asynccontextmanager
    async def _telling(self) -> AsyncIterator[None]:
        """Tell every change of every run, as the store tells it."""

        async def tell() -> None:
            async with self._docket.engine.watch(Topic(EventKind.STATE)) as events:
                ready.set()
                async for event in events:
                    self._tell(event)

        ready = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            telling = group.create_task(tell(), name="timeline")
            await ready.wait()
            yield
            telling.cancel()

    def _tell(self, event: Event) -> None:
        key = event.key or ""
        before = self._last.get(key)
        self._last[key] = event
        self._hands[key] = worker = event.worker or self._hands.get(key, "")
        match event.state:
            case ExecutionState.RUNNING:
                taken_over = before is not None and before.state is ExecutionState.RUNNING
                self._line(worker, "▶", key, "takes it over and starts" if taken_over else "starts")
            case ExecutionState.COMPLETED:
                self._line(worker, "✔", key, "completed", "green")
            case ExecutionState.FAILED | ExecutionState.CANCELLED:
                self._line(worker, "✘", key, f"{event.state} {event.error or ''}", "red")
            case ExecutionState.SCHEDULED if before is not None and event.when is not None:
                ahead = f"in {(event.when - datetime.now(UTC)) / timedelta(seconds=1):.1f} s"
                if event.id == before.id:
                    self._line(worker, "↻", key, f"failed, goes again {ahead}", "red")
                else:
                    self._line(worker, "↻", key, f"next turn {ahead}")
            case _:
                pass  # it was added: the story has said so

    def _line(self, who: str, arrow: str, key: str, text: str, style: str = "") -> None:
        colour = COLOURS.get(who, "")
        line = Text(f"  {time.monotonic() - self._began:5.2f} s  ", style="dim")
        line.append(f"{who:<10}{arrow}  ", style=f"not dim {colour}")
        line.append(f"{key:<8}" if key else "", style=f"not dim bold {colour}")
        line.append(text, style=f"not dim {style}")
        self._console.print(line, no_wrap=True, overflow="ellipsis")

    # The table

    def check(self, promise: str, kept: bool, seen: str) -> None:
        """Tick a promise off, or not, with what was seen."""
        self._seen[promise] = (kept, seen)

    def _close(self, problem: str) -> int:
        kept, took = [was_kept for was_kept, _ in self._seen.values()], time.monotonic() - self._began
        is_good = all(kept) and not problem
        if not is_good and self._log.exists():
            self._console.print(Text(f"\nThe workers said last:\n{self._log.read_text()[-1500:]}", "dim"))
        table = Table(box=None, padding=(0, 1), show_header=False)
        for promise, (was_kept, seen) in self._seen.items():
            table.add_row(Text("✔", "green") if was_kept else Text("✘", "red"), promise, Text(seen, "dim"))
        self._console.print("", table, "", sep="\n")
        if is_good:
            self._console.print(f"  [bold green]All {len(kept)} seen[/] in {took:.1f} s.\n")
            return 0
        self._console.print(f"  [bold red]Only {sum(kept)} of {len(kept)} seen[/] in {took:.1f} s. {problem}\n")
        return 1
