"""Hooks and middleware: around attempts, around scheduling, at a worker's start and stop."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dovetail import Agenda, Docket, Execution, ExecutionFailed, Middleware, Retry, TaskCall, Worker, sync
from dovetail.errors import InvalidType
from dovetail.middleware import MOMENTS
from tests.conftest import MakeWorker

SOON = timedelta(minutes=1)


class Diary(Middleware):
    """Writes down what it sees, under a name."""

    def __init__(self, name: str, pages: list[Any]) -> None:
        self.name = name
        self.pages = pages

    def before_attempt(self, execution: Execution[Any]) -> None:
        self.pages.append((self.name, "before", execution.key, execution.attempt))

    async def around_attempt(self, execution: Execution[Any], proceed: Any) -> Any:
        self.pages.append((self.name, "in"))
        try:
            return await proceed()
        finally:
            self.pages.append((self.name, "out"))

    async def after_attempt(self, execution: Execution[Any], result: Any) -> None:
        self.pages.append((self.name, "after", result))

    async def on_error(self, execution: Execution[Any], error: BaseException) -> None:
        self.pages.append((self.name, "error", repr(error)))

    async def before_enqueue(self, call: TaskCall) -> None:
        self.pages.append((self.name, "enqueue", call.function_name))

    def after_enqueue(self, execution: Execution[Any]) -> None:
        self.pages.append((self.name, "enqueued", str(execution.disposition)))

    def on_start(self, worker: Worker) -> None:
        self.pages.append((self.name, "start", worker.name))

    async def on_stop(self, worker: Worker) -> None:
        self.pages.append((self.name, "stop", worker.name))


class Broken(Middleware):
    """Fails at every moment."""

    def __init__(self, *, critical: bool = False) -> None:
        self.critical = critical

    def before_attempt(self, execution: Execution[Any]) -> None:
        raise RuntimeError("before")

    async def around_attempt(self, execution: Execution[Any], proceed: Any) -> Any:
        raise RuntimeError("around")

    async def after_attempt(self, execution: Execution[Any], result: Any) -> None:
        raise RuntimeError("after")

    def on_error(self, execution: Execution[Any], error: BaseException) -> None:
        raise RuntimeError("error")

    async def before_enqueue(self, call: TaskCall) -> None:
        raise RuntimeError("enqueue")

    def after_enqueue(self, execution: Execution[Any]) -> None:
        raise RuntimeError("enqueued")

    def on_start(self, worker: Worker) -> None:
        raise RuntimeError("start")

    def on_stop(self, worker: Worker) -> None:
        raise RuntimeError("stop")


async def work(number: int = 1) -> int:
    return number * 2


def work_in_a_thread() -> str:
    return "done"


async def fail(retry: Retry = Retry(attempts=2)) -> None:
    raise ValueError("no")


@pytest.fixture
def pages() -> list[Any]:
    return []


@pytest.fixture
async def docket(url: str, pages: list[Any]) -> AsyncIterator[Docket]:
    """A docket with two diaries."""
    middleware = [Diary("a", pages), Diary("b", pages)]
    async with Docket("tests", url, middleware=middleware) as docket:
        yield docket


@pytest.fixture
async def plain(url: str) -> AsyncIterator[Docket]:
    async with Docket("tests", url) as docket:
        yield docket


def of(pages: list[Any], *kinds: str) -> list[Any]:
    return [page for page in pages if page[1] in kinds]


class TestAttempts:
    async def test_the_first_is_around_all_others(self, docket: Docket, worker: Worker, pages: list[Any]) -> None:
        await docket.add(work, key="k")(4)
        await worker.run_until_finished()
        assert of(pages, "before", "in", "after", "out", "error") == [
            ("a", "before", "k", 1), ("a", "in"), ("b", "before", "k", 1), ("b", "in"),
            ("b", "out"), ("b", "after", 8), ("a", "out"), ("a", "after", 8),
        ]  # fmt: skip

    async def test_every_attempt_is_seen_with_its_error(self, docket: Docket, worker: Worker, pages: list[Any]) -> None:
        await docket.add(fail, key="k")()
        await worker.run_until_finished()
        assert [page for page in of(pages, "before", "error", "after") if page[0] == "b"] == [
            ("b", "before", "k", 1), ("b", "error", "ValueError('no')"),
            ("b", "before", "k", 2), ("b", "error", "ValueError('no')"),
        ]  # fmt: skip

    async def test_plain_functions_are_seen_too(self, docket: Docket, worker: Worker, pages: list[Any]) -> None:
        await docket.add(work_in_a_thread)()
        await worker.run_until_finished()
        assert of(pages, "after") == [("b", "after", "done"), ("a", "after", "done")]

    async def test_those_of_a_worker_are_inside_those_of_its_docket(
        self, docket: Docket, make_worker: MakeWorker, pages: list[Any]
    ) -> None:
        await docket.add(work)()
        await make_worker(docket, middleware=[Diary("w", pages)]).run_until_finished()
        assert [page[0] for page in of(pages, "before")] == ["a", "b", "w"]
        assert [page[0] for page in of(pages, "after")] == ["w", "b", "a"]

    async def test_what_is_around_an_attempt_shares_its_context(self, plain: Docket, make_worker: MakeWorker) -> None:
        from contextvars import ContextVar

        tenant: ContextVar[str] = ContextVar("tenant")

        class Tenancy(Middleware):
            def before_attempt(self, execution: Execution[Any]) -> None:
                tenant.set("ann")

        async def ask() -> str:
            return tenant.get()

        def ask_in_a_thread() -> str:
            return tenant.get()

        asked = [await plain.add(ask)(), await plain.add(ask_in_a_thread)()]
        await make_worker(plain, middleware=[Tenancy()]).run_until_finished()
        assert [await each.get_result(timeout=SOON) for each in asked] == ["ann", "ann"]

    async def test_a_cancelled_run_shows_that_it_was(self, docket: Docket, worker: Worker, pages: list[Any]) -> None:
        started = asyncio.Event()

        async def wait() -> None:
            started.set()
            await asyncio.Event().wait()

        execution = await docket.add(wait, key="k")()
        running = asyncio.create_task(worker.run_until_finished())
        await started.wait()
        await docket.cancel("k")
        await running
        await execution.sync()
        assert execution.state == "cancelled"
        assert of(pages, "error") == [("b", "error", "CancelledError()"), ("a", "error", "CancelledError()")]


class TestRaising:
    async def test_what_only_looks_on_breaks_nothing(
        self, plain: Docket, make_worker: MakeWorker, caplog: pytest.LogCaptureFixture
    ) -> None:
        plain.hooks.add(Broken())
        executions = [await plain.add(work)(4), *await plain.add_many([plain.call(fail)()])]
        with caplog.at_level(logging.ERROR, "dovetail.middleware"):
            await make_worker(plain).run_until_finished()
        assert await executions[0].get_result(timeout=SOON) == 8
        with pytest.raises(ValueError, match="no"):
            await executions[1].get_result(timeout=SOON)
        told = [record.getMessage() for record in caplog.records if record.name == "dovetail.middleware"]
        assert {each.split()[1] for each in told} == set(MOMENTS)
        assert "the before_attempt hook Broken.before_attempt failed; nothing else comes of it" in told

    @pytest.mark.parametrize("kind", [SystemExit, asyncio.CancelledError])
    async def test_not_even_what_would_end_a_program_does(
        self, plain: Docket, make_worker: MakeWorker, kind: type[BaseException]
    ) -> None:
        class Leaving(Middleware):
            def before_attempt(self, execution: Execution[Any]) -> None:
                raise kind

            async def around_attempt(self, execution: Execution[Any], proceed: Any) -> None:
                raise kind

            async def after_attempt(self, execution: Execution[Any], result: Any) -> None:
                raise kind

        plain.hooks.add(Leaving())
        execution = await plain.add(work)(4)
        await make_worker(plain).run_until_finished()
        assert await execution.get_result(timeout=SOON) == 8

    @pytest.mark.parametrize("moment", ["before_attempt", "around_attempt", "after_attempt"])
    async def test_what_is_critical_fails_the_attempt(
        self, plain: Docket, make_worker: MakeWorker, moment: str
    ) -> None:
        ran: list[int] = []

        async def note() -> None:
            ran.append(1)

        getattr(plain.hooks, moment)(critical=True)(getattr(Broken(), moment))
        execution = await plain.add(note)()
        await make_worker(plain).run_until_finished()
        with pytest.raises(ExecutionFailed, match=moment.split("_")[0]):
            await execution.get_result(timeout=SOON)
        assert ran == ([1] if moment == "after_attempt" else [])

    async def test_an_attempt_that_fails_so_is_tried_again(self, plain: Docket, make_worker: MakeWorker) -> None:
        attempts: list[int] = []

        @plain.hooks.before_attempt(critical=True)
        def refuse_at_first(execution: Execution[Any]) -> None:
            attempts.append(execution.attempt)
            if execution.attempt == 1:
                raise RuntimeError

        async def retried(retry: Retry = Retry(attempts=3)) -> str:
            return "ran"

        execution = await plain.add(retried)()
        await make_worker(plain).run_until_finished()
        assert await execution.get_result(timeout=SOON) == "ran"
        assert attempts == [1, 2]

    async def test_only_what_is_critical_changes_a_result(self, plain: Docket, make_worker: MakeWorker) -> None:
        class Doubling(Middleware):
            def __init__(self, critical: bool) -> None:
                self.critical = critical

            async def around_attempt(self, execution: Execution[Any], proceed: Any) -> Any:
                return 2 * await proceed()

        execution = await plain.add(work)(1)
        await make_worker(plain, middleware=[Doubling(False), Doubling(True)]).run_until_finished()
        assert await execution.get_result(timeout=SOON) == 4

    async def test_the_task_runs_once_however_often_it_is_asked_for(
        self, plain: Docket, make_worker: MakeWorker
    ) -> None:
        ran: list[int] = []

        async def note() -> None:
            ran.append(1)

        @plain.hooks.around_attempt
        async def eagerly(execution: Execution[Any], proceed: Any) -> Any:
            await proceed()
            await proceed()

        await plain.add(note)()
        await make_worker(plain).run_until_finished()
        assert ran == [1]


class TestEnqueueing:
    async def test_every_way_of_scheduling_is_seen(self, docket: Docket, pages: list[Any]) -> None:
        later = datetime.now(UTC) + timedelta(hours=1)
        seen = ["a", "b", "b", "a"]
        execution = await docket.add(work, when=later, key="k")()
        assert [page[0] for page in of(pages, "enqueue", "enqueued")] == seen
        await docket.replace(work, later, "k")()
        await docket.add_many([docket.call(work, when=later)()])
        await docket.replace_many([docket.call(work, when=later, key="k")()])
        await docket.schedule(execution, replace=True)
        agenda = Agenda()
        agenda.add(work)()
        await agenda.scatter(docket, over=timedelta(hours=2))
        assert [page[0] for page in of(pages, "enqueue", "enqueued")] == 6 * seen
        assert {page[2] for page in of(pages, "enqueue")} == {"work"}

    async def test_what_came_of_it_is_told(self, docket: Docket, pages: list[Any]) -> None:
        later = datetime.now(UTC) + timedelta(hours=1)
        await docket.strike(work, "number", "==", 5)
        for number in (1, 2, 5):
            await docket.add(work, when=later, key="k")(number)
        told = [page[2] for page in of(pages, "enqueued") if page[0] == "a"]
        assert told == ["scheduled", "already_scheduled", "struck"]

    async def test_a_call_that_is_returned_is_scheduled_instead(self, plain: Docket) -> None:
        @plain.hooks.before_enqueue
        async def to_the_slow_lane(call: TaskCall) -> TaskCall:
            return dataclasses.replace(call, queue="slow", kwargs={**call.kwargs, "number": 7})

        execution = await plain.add(work)()
        await execution.sync()
        assert execution.run is not None
        assert execution.run.queue == "slow"
        found = await plain.get_execution(execution.key)
        assert found is not None
        assert found.kwargs == {"number": 7}

    async def test_what_is_critical_is_raised_by_the_call(self, plain: Docket) -> None:
        @plain.hooks.before_enqueue(critical=True)
        def refuse(call: TaskCall) -> None:
            raise PermissionError("not today")

        with pytest.raises(PermissionError, match="not today"):
            await plain.add(work)()
        with pytest.raises(PermissionError, match="not today"):
            await plain.add_many([plain.call(work)()])
        assert (await plain.snapshot()).total_tasks == 0


def test_a_sync_docket_has_them_too(url: str, pages: list[Any]) -> None:
    with sync.Docket("tests", url, middleware=[Diary("a", pages)]) as docket:

        @docket.hooks.before_enqueue(critical=True)
        async def refuse(call: TaskCall) -> None:
            await asyncio.sleep(0)
            if call.args == (13,):
                raise PermissionError("not today")

        docket.add(work)(1)
        with pytest.raises(PermissionError, match="not today"):
            docket.add(work)(13)
    assert [page[1] for page in pages] == ["enqueue", "enqueued", "enqueue"]


class TestWorkers:
    async def test_start_and_stop_are_told(self, docket: Docket, make_worker: MakeWorker, pages: list[Any]) -> None:
        await docket.add(work)()
        await make_worker(docket, name="w1", middleware=[Diary("w", pages)]).run_until_finished()
        moments = of(pages, "start", "stop", "before")
        assert [page[:2] for page in moments] == [
            ("a", "start"), ("b", "start"), ("w", "start"), ("a", "before"), ("b", "before"), ("w", "before"),
            ("w", "stop"), ("b", "stop"), ("a", "stop"),
        ]  # fmt: skip
        assert moments[0][2] == "w1"

    async def test_a_critical_start_keeps_the_worker_from_starting(
        self, plain: Docket, make_worker: MakeWorker
    ) -> None:
        stopped: list[str] = []
        plain.hooks.on_stop(lambda worker: stopped.append(worker.name))
        plain.hooks.on_start(critical=True)(Broken().on_start)
        plain.hooks.on_stop(lambda worker: stopped.append("never started"))
        await plain.add(work)()
        with pytest.raises(RuntimeError, match="start"):
            await make_worker(plain).run_until_finished()
        assert stopped == ["worker"]
        assert (await plain.snapshot()).total_tasks == 1


async def test_a_worker_process_names_its_middleware(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    (tmp_path / "hooks.py").write_text(
        "from dovetail import Middleware\n"
        "class Loud(Middleware):\n"
        "    def after_attempt(self, execution, result):\n"
        "        print('saw', execution.function_name)\n"
        "middleware = [Loud()]\n"
    )
    async with Docket("docket", url) as docket:
        await docket.add("trace")("one")
        ran = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "dovetail", "worker", "--once", "--url", url, "--middleware", "hooks:middleware"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert (ran.returncode, ran.stdout) == (0, "saw trace\n"), ran.stderr


class TestBadInput:
    @pytest.mark.parametrize("wrong", [Broken(), Broken, "middleware", [5], [Broken], None])
    def test_what_is_no_middleware_is_refused(self, wrong: Any) -> None:
        with pytest.raises(InvalidType, match="middleware must be a"):
            Docket("tests", "memory://", middleware=wrong)
        with pytest.raises(InvalidType, match="middleware must be a"):
            Worker(Docket("tests", "memory://"), middleware=wrong)

    def test_a_hook_that_cannot_be_called_so_is_refused(self) -> None:
        hooks = Docket("tests", "memory://").hooks
        with pytest.raises(InvalidType, match=r"on_error hook is called with \(execution, error\)"):
            hooks.on_error(lambda execution: None)
        with pytest.raises(InvalidType, match="before_attempt hook must be a function, not 5"):
            hooks.before_attempt(5)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
        with pytest.raises(InvalidType, match="around_attempt hook must be async"):
            hooks.around_attempt(lambda execution, proceed: None)
        with pytest.raises(InvalidType, match="critical must be True or False"):
            hooks.on_stop(critical="yes")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]

        class Wrong(Middleware):
            def before_enqueue(self) -> None: ...  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]

        with pytest.raises(InvalidType, match="before_enqueue hook is called with"):
            hooks.add(Wrong())
