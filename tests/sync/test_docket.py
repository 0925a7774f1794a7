"""The docket without await: the same calls, the same answers, on every store."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, get_overloads

import pytest

import dovetail
from dovetail import Agenda, ExecutionCancelled, ExecutionFailed, Retention, UsageError, result_of
from dovetail.errors import AlreadyOpen, EngineUnavailable, InvalidArgument, InvalidType, InvalidURL, UnknownTask
from dovetail.model import RunQuery
from dovetail.sync import Docket, Execution
from tests.sync.workers import finish, working

SOON = timedelta(minutes=1)


def later() -> datetime:
    return datetime.now(UTC) + timedelta(hours=1)


def is_open(docket: dovetail.Docket) -> bool:
    try:
        return bool(docket.engine)
    except EngineUnavailable:
        return False


async def double(number: int) -> int:
    return 2 * number


def shout(text: str) -> str:
    return text.upper()


async def fail(text: str) -> None:
    raise ValueError(text)


@pytest.fixture
def docket(url: str) -> Iterator[Docket]:
    with Docket("tests", url) as docket:
        yield docket


class TestScheduling:
    def test_a_call_is_added_and_its_result_fetched(self, docket: Docket, url: str) -> None:
        with working(url, double):
            assert docket.add(double)(21).get_result(timeout=SOON) == 42

    def test_what_was_asked_for_can_be_read_off(self, docket: Docket) -> None:
        when = later()
        execution = docket.add(double, when=when, key="one")(number=21)
        assert isinstance(execution, Execution)
        assert (execution.key, execution.args, execution.kwargs) == ("one", (), {"number": 21})
        assert (execution.function, execution.function_name, execution.when) == (double, "double", when)
        assert (execution.state, execution.disposition) == ("scheduled", "scheduled")
        assert execution.docket is docket
        assert execution.get_argument("number") == 21
        assert repr(execution) == "<Execution double(number=...){one} scheduled>"

    def test_a_handle_cannot_be_changed(self, docket: Docket) -> None:
        execution = docket.add(double, when=later())(1)
        with pytest.raises(AttributeError):
            execution.key = "another"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]

    def test_a_key_that_is_taken_keeps_the_newcomer_out(self, docket: Docket) -> None:
        docket.add(double, when=later(), key="one")(1)
        assert docket.add(double, when=later(), key="one")(2).disposition == "already_scheduled"

    def test_a_call_is_replaced(self, docket: Docket) -> None:
        docket.add(double, when=later(), key="one")(1)
        docket.replace(double, later(), "one")(2)
        (waiting,) = docket.snapshot().future
        assert waiting.args == (2,)

    def test_many_are_added_and_replaced(self, docket: Docket) -> None:
        calls = [docket.call(double, when=later(), key=f"n{number}")(number) for number in range(5)]
        assert [each.key for each in docket.add_many(calls)] == ["n0", "n1", "n2", "n3", "n4"]
        (again,) = docket.replace_many([docket.call(shout, when=later(), key="n0")("a")])
        assert again.disposition == "scheduled"
        assert docket.snapshot().total_tasks == 5

    def test_a_task_is_added_by_name(self, docket: Docket) -> None:
        docket.register(double)
        assert docket.add("double", when=later())(1).function is double

    def test_queue_and_priority_are_passed_on(self, docket: Docket) -> None:
        docket.add(double, when=later(), queue="slow", priority=7)(1)
        (run,) = docket.find_all(RunQuery())
        assert (run.queue, run.priority) == ("slow", 7)

    def test_an_agenda_is_scattered(self, docket: Docket) -> None:
        agenda = Agenda()
        for number in range(3):
            agenda.add(double)(number)
        start = later()
        spread = docket.scatter(agenda, timedelta(hours=2), start)
        assert [each.when - start for each in spread] == [timedelta(hours=hours) for hours in range(3)]

    def test_an_execution_is_scheduled_again(self, docket: Docket, url: str) -> None:
        execution = docket.add(double, key="one")(1)
        finish(url, double)
        assert execution.schedule() == "scheduled"
        assert docket.schedule(execution, replace=True).key == "one"


class TestControlling:
    def test_a_run_is_cancelled(self, docket: Docket) -> None:
        execution = docket.add(double, when=later(), key="one")(1)
        docket.cancel("one")
        with pytest.raises(ExecutionCancelled):
            execution.get_result(timeout=SOON)
        assert execution.state == "cancelled"

    def test_everything_that_waits_is_cleared(self, docket: Docket) -> None:
        docket.add_many([docket.call(double, when=later())(number) for number in range(3)])
        assert docket.clear() == 3

    def test_calls_are_stricken_and_restored(self, docket: Docket) -> None:
        docket.add(double, when=later())(1)
        docket.add(double, when=later())(2)
        preview = docket.preview_strike(double, "number", "==", 2)
        assert preview.count() == 1
        assert [each.args for each in preview] == [(2,)]
        docket.strike(double, "number", "==", 2)
        assert [strike.value for strike in docket.strikes()] == [2]
        assert docket.add(double)(2).disposition == "struck"
        docket.restore(double, "number", "==", 2)
        assert docket.add(double, when=later())(2).disposition == "scheduled"


class TestReading:
    def test_the_newest_run_of_a_key_is_found(self, docket: Docket) -> None:
        assert docket.get_execution("one") is None
        docket.add(double, when=later(), key="one")(1)
        found = docket.get_execution("one")
        assert found is not None
        assert (found.args, found.state) == ((1,), "scheduled")

    def test_a_failed_run_raises_what_it_failed_with(self, docket: Docket, url: str) -> None:
        execution = docket.add(fail)("no luck")
        finish(url, fail)
        with pytest.raises(ValueError, match="no luck") as raised:
            execution.get_result(timeout=SOON)
        assert isinstance(raised.value, ExecutionFailed)

    def test_waiting_ends_with_the_time_given(self, docket: Docket) -> None:
        with pytest.raises(TimeoutError, match="Timeout waiting for execution 'one'"):
            docket.add(double, when=later(), key="one")(1).get_result(timeout=timedelta(milliseconds=50))

    def test_what_became_of_a_run_is_read(self, docket: Docket, url: str) -> None:
        execution = docket.add(double)(1)
        finish(url, double)
        assert execution.state == "queued"
        execution.sync()
        assert execution.state == "completed"
        assert execution.run is not None
        assert execution.completed_at is not None

    def test_states_are_told_as_they_change(self, docket: Docket, url: str) -> None:
        execution = docket.add(double, key="one")(1)
        states: list[Any] = []
        with working(url, double):
            for event in execution.subscribe():
                if event["type"] == "state":
                    states.append(event["state"])
                    if event["state"].is_terminal:
                        break
        assert states[-1] == "completed"

    def test_progress_is_read(self, docket: Docket) -> None:
        progress = docket.add(double, when=later())(1).progress
        progress.sync()
        assert (progress.current, progress.total, progress.message) == (None, 100, None)

    def test_workers_are_listed(self, docket: Docket, url: str) -> None:
        with working(url, double):
            while not docket.workers():  # it says so with its first heartbeat
                threading.Event().wait(0.01)
            assert len(docket.task_workers("double")) == 1
            assert docket.task_workers("shout") == []

    def test_why_a_run_is_not_running(self, docket: Docket) -> None:
        execution = docket.add(double, key="k", when=later())(1)
        assert docket.why(execution).cause.code == "scheduled"
        assert docket.why("k").id == execution.id
        assert not docket.why("nobody").is_known

    def test_what_would_not_run(self, docket: Docket, url: str) -> None:
        docket.add(double)(1)
        assert docket.check().is_fit
        with Docket("tests", url) as stranger:
            assert stranger.check().count == 1


class TestThreads:
    def test_threads_share_a_docket(self, docket: Docket) -> None:
        with ThreadPoolExecutor(8) as threads:
            added = list(threads.map(lambda number: docket.add(double, when=later())(number).key, range(80)))
        assert {each.key for each in docket.snapshot().future} == set(added)

    def test_threads_open_a_docket_together(self, url: str) -> None:
        docket = Docket("tests", url)
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda number: docket.add(double, when=later())(number), range(8)))
        assert docket.snapshot().total_tasks == 8
        docket.close()

    def test_calls_of_other_threads_are_not_lost_when_one_closes(self, docket: Docket, url: str) -> None:
        """Each call ends, or opens the docket again; the one beside it keeps a store in memory alive."""
        shared = Docket("tests", url)

        def add(number: int) -> str:
            if number % 10 == 0:
                shared.close()
            return shared.add(double, when=later())(number).key

        with ThreadPoolExecutor(8) as threads:
            added = list(threads.map(add, range(80)))
        assert {each.key for each in docket.snapshot().future} == set(added)
        shared.close()

    def test_a_plain_task_may_add_another(self, docket: Docket, url: str) -> None:
        def parent(number: int) -> str:
            return docket.add(double, key="child")(number).key

        with working(url, parent, double):
            assert docket.add(parent)(4).get_result(timeout=SOON) == "child"
            child = docket.get_execution("child")
            assert child is not None
            assert child.get_result(timeout=SOON) == 8

    def test_all_dockets_of_a_process_share_one_thread(self, docket: Docket, url: str) -> None:
        with Docket("others", url) as other:
            docket.strikes()
            other.strikes()
            assert [each.name for each in threading.enumerate()].count("dovetail sync") == 1

    def test_a_thread_whose_event_loop_runs_is_refused(self, docket: Docket) -> None:
        async def call() -> None:
            docket.add(double)(1)

        with pytest.raises(UsageError, match="use the Docket of dovetail there, and await its calls"):
            asyncio.run(call())
        assert docket.snapshot().total_tasks == 0


class TestOpening:
    def test_the_first_call_opens(self, url: str) -> None:
        docket = Docket("tests", url)
        docket.add(double, when=later())(1)
        assert docket.snapshot().total_tasks == 1
        docket.close()
        docket.close()

    def test_a_closed_docket_opens_again(self, url: str) -> None:
        with Docket("tests", url) as beside:
            docket = Docket("tests", url)
            docket.add(double, when=later(), key="one")(1)
            docket.close()
            assert docket.get_execution("one") is not None
            docket.close()
            assert beside.get_execution("one") is not None

    def test_a_docket_is_not_entered_twice(self, docket: Docket) -> None:
        with pytest.raises(AlreadyOpen, match="'tests' is entered already"):
            docket.__enter__()

    def test_a_docket_that_is_closed_lets_its_waiters_go(self, docket: Docket) -> None:
        execution = docket.add(double, when=later())(1)
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(execution.get_result)
            while not waiting.done():
                docket.close()  # more than once: the wait opens it again if it comes after
            with pytest.raises(EngineUnavailable, match="closed during the call"):
                waiting.result()

    def test_a_docket_that_nobody_holds_is_closed(self, url: str) -> None:
        with Docket("tests", url):
            docket = Docket("tests", url)
            docket.open()
            beneath = docket.docket
            assert is_open(beneath)
            del docket
            while is_open(beneath):
                threading.Event().wait(0.01)


class TestBadInput:
    def test_a_wrong_setting_is_refused_at_once(self) -> None:
        with pytest.raises(InvalidURL):
            Docket("tests", "nothing://here")
        with pytest.raises(InvalidType, match="missed_heartbeats must be a whole number"):
            Docket("tests", missed_heartbeats="x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    def test_a_store_that_cannot_be_reached_is_told_at_the_call(self) -> None:
        docket = Docket("tests", "redis://localhost:1/0")
        with pytest.raises(EngineUnavailable):
            docket.add(double)(1)
        with pytest.raises(EngineUnavailable):
            docket.__enter__()

    def test_a_wrong_call_is_refused_before_anything_is_asked(self, docket: Docket) -> None:
        with pytest.raises(UnknownTask, match="'nothing' is not registered"):
            docket.add("nothing")
        with pytest.raises(InvalidType, match="when must know its time zone"):
            docket.add(double, when=datetime(2030, 1, 1))  # noqa: DTZ001
        with pytest.raises(InvalidArgument, match="key must not be empty"):
            docket.cancel("")
        with pytest.raises(InvalidType, match="timeout must be a timedelta"):
            docket.add(double, when=later())(1).get_result(timeout=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        with pytest.raises(InvalidType, match=r"execution must be an Execution of dovetail\.sync"):
            docket.schedule("one")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        with pytest.raises(InvalidType, match="agenda must be an Agenda"):
            docket.scatter([], SOON)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


class TestSameness:
    """What the async docket learns, the sync one has to be taught."""

    LEFT_OUT = frozenset({"engine", "redis"})

    @pytest.mark.parametrize(("ours", "theirs"), [(Docket, dovetail.Docket), (Execution, dovetail.Execution)])
    def test_every_public_member_is_there(self, ours: type, theirs: type) -> None:
        left_out = self.LEFT_OUT | {"take_in", "general_labels", "specific_labels", "incoming_span_links"}
        members = {name for name in vars(theirs) if not name.startswith("_")} - left_out
        assert members - set(dir(ours)) == set()

    @pytest.mark.parametrize("name", ["add", "replace", "call"])
    def test_the_options_of_a_call_are_the_same(self, name: str) -> None:
        ours = [list(inspect.signature(each).parameters) for each in get_overloads(getattr(Docket, name))]
        theirs = [list(inspect.signature(each).parameters) for each in get_overloads(getattr(dovetail.Docket, name))]
        assert ours == theirs

    @pytest.mark.parametrize("name", ["__init__", "add_many", "replace_many", "schedule", "get_execution"])
    def test_the_options_of_a_method_are_the_same(self, name: str) -> None:
        ours = inspect.signature(getattr(Docket, name)).parameters
        assert list(ours) == list(inspect.signature(getattr(dovetail.Docket, name)).parameters)


def test_a_run_waits_for_another_and_receives_its_result(docket: Docket) -> None:
    first = docket.add(double)(2)
    second = docket.add(double)(result_of(first))
    finish(docket.url, double)
    assert second.get_result() == 8
    assert set(docket.graph(second).nodes) == {first.id, second.id}


def test_a_queue_is_paused_and_resumed(docket: Docket) -> None:
    docket.pause("default", reason="maintenance")
    (queue,) = docket.queues()
    assert queue.paused is not None
    assert queue.paused.reason == "maintenance"
    docket.resume("default")
    assert docket.queues() == []


def test_what_failed_is_listed_and_run_again(docket: Docket) -> None:
    failing = docket.add(fail)("no")
    finish(docket.url, fail)
    assert [each.key for each in docket.failed(task=fail)] == [failing.key]
    assert docket.retry(failing).key == failing.key
    assert docket.failed().items == []
    assert docket.retry_failed() == 0


def test_runs_are_found_and_discarded(url: str) -> None:
    with Docket("tests", url, retention=Retention(keep=10)) as docket:
        assert docket.retention.keep == 10
        first = docket.add(fail, key="first")("no")
        docket.add(fail, key="second", tags=["odd"])("no")
        finish(url, fail)
        assert [each.key for each in docket.find(states=["failed"], tags=["odd"])] == ["second"]
        docket.discard(first)
        assert [each.key for each in docket.find()] == ["second"]
        docket.discard("second")
        assert docket.discard_failed(task=fail) == 0
