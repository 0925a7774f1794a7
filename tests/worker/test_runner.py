"""The runner takes a claim to a verdict, whatever the body does."""

from __future__ import annotations

import asyncio
import contextvars
import io
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from dovetail import CurrentExecution, Docket, Execution, ExecutionFailed, ExecutionState, PayloadError, Retry, Worker
from dovetail.model import NewRun, Requeue, Settle, State, new_id
from dovetail.worker.roster import Reason
from dovetail.worker.runner import UNKNOWN_DELAY
from dovetail.worker.threads import Threads
from tests.by_hand import ByHand, finish, run_of
from tests.waiting import PATIENCE, soon

Make = Callable[[], BaseException]


def broken(**members: type[BaseException]) -> BaseException:
    """An exception some of whose methods raise."""

    def raiser(blow: type[BaseException]) -> Any:
        def blow_up(self: Any, *_: Any) -> Any:
            raise blow("broken")

        return blow_up

    return type("Broken", (Exception,), {f"__{name}__": raiser(blow) for name, blow in members.items()})("x")


def in_a_circle() -> BaseException:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    return first


class Unpicklable(Exception):
    def __init__(self) -> None:
        super().__init__("cannot be pickled")
        self.lock = threading.Lock()


class Misshapen(Exception):
    """It pickles, and does not unpickle."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} {two}")


TROUBLE: dict[str, Make] = {
    "an exit": lambda: SystemExit(3),
    "an interrupt": lambda: KeyboardInterrupt(),
    "the end of a generator": lambda: GeneratorExit(),
    "the end of an iteration": lambda: StopIteration("over"),
    "the end of an asynchronous iteration": lambda: StopAsyncIteration("over"),
    "a bare base exception": lambda: BaseException("bare"),
    "a group": lambda: ExceptionGroup("two", [ValueError("left"), KeyError("right")]),
    "a group with an exit in it": lambda: BaseExceptionGroup("two", [SystemExit(1), ValueError("x")]),
    "a broken text": lambda: broken(str=ValueError),
    "a broken text and representation": lambda: broken(str=ValueError, repr=ValueError),
    "a text that exits": lambda: broken(str=SystemExit, repr=SystemExit),
    "an endless text": lambda: broken(str=RecursionError),
    "causes in a circle": in_a_circle,
    "ten megabytes": lambda: ValueError("x" * 10_000_000),
    "lone surrogates": lambda: ValueError("a\ud800b"),
    "a NUL": lambda: ValueError("a\x00b"),
    "an unpicklable one": Unpicklable,
    "a misshapen one": lambda: Misshapen("a", "b"),
    "one that cannot be reduced": lambda: broken(reduce_ex=ValueError),
    "one that exits when it is reduced": lambda: broken(reduce_ex=SystemExit),
    "one that interrupts when it is reduced": lambda: broken(reduce_ex=KeyboardInterrupt),
    "an assertion": lambda: AssertionError(),
    "a timeout": lambda: TimeoutError("its own"),
}


def raising(make: Make, *, is_async: bool) -> Callable[..., Any]:
    async def trouble() -> None:
        raise make()

    def plain_trouble() -> None:
        raise make()

    return trouble if is_async else plain_trouble


async def healthy() -> str:
    return "healthy"


both_kinds = pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])


# Whatever it raises


@contextmanager
def logging_apart() -> Iterator[None]:
    """The worker logs as it always does, but not into the test's report: no report can hold what is raised here."""
    logger, handler = logging.getLogger("dovetail.worker"), logging.StreamHandler(io.StringIO())
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.propagate = True
        logger.removeHandler(handler)


@both_kinds
@pytest.mark.parametrize("codec", ["json", "pickle"])
@pytest.mark.parametrize("what", TROUBLE)
async def test_whatever_a_body_raises_is_recorded_and_the_worker_goes_on(
    url: str, make_worker: Callable[..., Worker], what: str, codec: str, is_async: bool
):
    async with Docket("trouble", url, codec=codec) as docket:
        bad = await docket.add(raising(TROUBLE[what], is_async=is_async))()
        good = await docket.add(healthy)()
        with logging_apart():
            await finish(make_worker(docket, concurrency=1))
        run = await run_of(docket, key=bad.key)
        assert run.state is State.FAILED
        assert run.error
        assert len(run.error) < 20_000
        assert run.crashes == 0
        assert await good.get_result() == "healthy"


@both_kinds
async def test_what_a_body_raised_can_be_read_with_its_traceback(docket: Docket, worker: Worker, is_async: bool):
    execution = await docket.add(raising(lambda: ValueError("no such thing"), is_async=is_async))()
    await finish(worker)
    run = await run_of(docket, key=execution.key)
    assert run.error == "ValueError: no such thing"
    (line,) = run.errors
    assert (line.attempt, line.worker, line.failure.type) == (1, "worker", "ValueError")
    assert "raise make()" in line.failure.traceback


@both_kinds
async def test_a_body_that_raises_a_cancellation_of_its_own_ends_cancelled_once(
    docket: Docket, worker: Worker, is_async: bool
):
    calls = 0

    def cancel_itself() -> None:
        nonlocal calls
        calls += 1
        raise asyncio.CancelledError("by itself")

    async def cancel_itself_async(retry: Retry = Retry(attempts=3)) -> None:
        cancel_itself()

    execution = await docket.add(cancel_itself_async if is_async else cancel_itself)()
    good = await docket.add(healthy)()
    await finish(worker)
    assert (await run_of(docket, key=execution.key)).state is State.CANCELLED
    assert calls == 1
    assert await good.get_result() == "healthy"


async def test_a_body_that_cancels_its_own_asyncio_task_ends_cancelled(by_hand: ByHand, still: Docket):
    async def cancel_own_task() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.Event().wait()

    await still.add(cancel_own_task)()
    verdict = await by_hand.attempt()
    assert isinstance(verdict, Settle)
    assert verdict.state is State.CANCELLED


async def test_a_call_that_does_not_fit_the_function_any_more_fails_with_a_type_error(docket: Docket, worker: Worker):
    async def wide(a: int, b: int, c: int) -> None: ...
    async def narrow(a: int) -> None: ...

    docket.register(wide, names=["task"])
    execution = await docket.add("task")(1, 2, 3)
    docket.register(narrow, names=["task"])
    await finish(worker)
    await execution.sync()
    assert execution.state is ExecutionState.FAILED
    assert execution.error is not None
    assert execution.error.startswith("TypeError")


# Results


def results() -> dict[str, Callable[[], Any]]:
    class Exits:
        def __reduce_ex__(self, protocol: Any) -> Any:
            raise SystemExit(1)

    return {"a lock": threading.Lock, "one that exits when it is stored": Exits}


@both_kinds
@pytest.mark.parametrize("codec", ["json", "pickle"])
@pytest.mark.parametrize("what", results())
async def test_a_result_that_cannot_be_stored_completes_with_an_error_text_and_is_not_tried_again(
    url: str, make_worker: Callable[..., Worker], what: str, codec: str, is_async: bool
):
    calls = 0

    def work(retry: Retry = Retry(attempts=4)) -> Any:
        nonlocal calls
        calls += 1
        return results()[what]()

    async def work_async(retry: Retry = Retry(attempts=4)) -> Any:
        return work()

    async with Docket("results", url, codec=codec) as docket:
        execution = await docket.add(work_async if is_async else work)()
        good = await docket.add(healthy)()
        await finish(make_worker(docket))
        await execution.sync()
        assert execution.state is ExecutionState.COMPLETED
        assert execution.error
        assert calls == 1
        assert await good.get_result() == "healthy"
        with pytest.raises(PayloadError, match="could not be stored"):
            await execution.get_result()


async def test_a_result_that_is_too_large_completes_with_an_error_text(docket: Docket, worker: Worker):
    async def boast() -> str:
        return "x" * 20_000_000

    execution = await docket.add(boast)()
    await finish(worker)
    await execution.sync()
    assert execution.state is ExecutionState.COMPLETED
    assert "PayloadTooLarge" in (execution.error or "")


async def test_no_result_stores_nothing(by_hand: ByHand, still: Docket):
    async def silent() -> None: ...

    await still.add(silent)()
    verdict = await by_hand.attempt()
    assert isinstance(verdict, Settle)
    assert (verdict.state, verdict.result, verdict.failure) == (State.COMPLETED, None, None)


# Unknown tasks and unreadable payloads


async def test_an_unknown_task_is_put_back_with_a_delay_and_a_warning(
    by_hand: ByHand, still: Docket, caplog: pytest.LogCaptureFixture
):
    execution = await still.add(healthy)()
    del still.tasks["healthy"]
    due = still.clock.now() + UNKNOWN_DELAY  # type: ignore[attr-defined]
    run = await by_hand.step()
    assert (run.state, run.attempt, run.error, run.due) == (State.SCHEDULED, 1, None, due)
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "'healthy'" in warning.getMessage()
    assert execution.key in warning.getMessage()
    assert "docket.register()" in warning.getMessage()


async def test_an_unknown_task_runs_once_a_worker_knows_it(by_hand: ByHand, still: Docket):
    execution = await still.add(healthy)()
    del still.tasks["healthy"]
    await by_hand.step()
    still.register(healthy)
    still.clock.jump(UNKNOWN_DELAY)  # type: ignore[attr-defined]
    await by_hand.step()
    assert await execution.get_result() == "healthy"


async def test_an_unknown_task_may_be_put_back_for_ever(by_hand: ByHand, still: Docket):
    execution = await still.add(healthy)()
    del still.tasks["healthy"]
    for _ in range(20):
        await by_hand.step()
        still.clock.jump(UNKNOWN_DELAY)  # type: ignore[attr-defined]
    run = await run_of(still, key=execution.key)
    assert (run.attempt, run.crashes) == (1, 0)
    assert not run.state.is_terminal


async def test_a_fallback_runs_instead_of_an_unknown_task_with_the_arguments_and_the_name(
    docket: Docket, make_worker: Callable[..., Worker]
):
    calls: list[Any] = []

    async def original(a: int, b: str) -> None: ...

    async def fallback(*args: Any, execution: Execution[Any] = CurrentExecution(), **kwargs: Any) -> str:
        calls.append((args, kwargs, execution.function_name, execution.args, execution.kwargs))
        return "fell back"

    execution = await docket.add(original)(1, b="two")
    del docket.tasks["original"]
    await finish(make_worker(fallback_task=fallback))
    assert calls == [((1,), {"b": "two"}, "original", (1,), {"b": "two"})]
    assert await execution.get_result() == "fell back"


async def test_a_fallback_may_retry(docket: Docket, make_worker: Callable[..., Worker]):
    attempts: list[int] = []

    async def fallback(*args: Any, retry: Retry = Retry(attempts=3)) -> None:
        attempts.append(retry.attempt)
        raise ValueError("again")

    execution = await docket.add(healthy)()
    del docket.tasks["healthy"]
    await finish(make_worker(fallback_task=fallback))
    await execution.sync()
    assert attempts == [1, 2, 3]
    assert execution.state is ExecutionState.FAILED


async def test_a_task_that_is_known_does_not_go_to_the_fallback(docket: Docket, make_worker: Callable[..., Worker]):
    async def fallback(*args: Any) -> str:
        return "fell back"

    execution = await docket.add(healthy)()
    await finish(make_worker(fallback_task=fallback))
    assert await execution.get_result() == "healthy"


@pytest.mark.parametrize(
    "payload", [b"", b"garbage", b"\xff\x00\xfe", b"1j:{", b'1j:{"a":5}', b"9z:{}", b"1p:\x80\x05."]
)
async def test_a_payload_that_cannot_be_read_fails_with_a_text_and_the_worker_goes_on(
    docket: Docket, worker: Worker, payload: bytes
):
    docket.register(healthy)
    await docket.engine.schedule([NewRun(new_id(), "garbled", "healthy", payload)])
    good = await docket.add(healthy)()
    await finish(worker)
    run = await run_of(docket, key="garbled")
    assert run.state is State.FAILED
    assert run.error is not None
    assert "UndecodablePayload" in run.error
    assert run.crashes == 0
    assert run.payload == payload, "the bytes are kept, for repair"
    assert await good.get_result() == "healthy"


async def test_a_payload_that_cannot_be_read_is_not_tried_again(by_hand: ByHand, still: Docket):
    async def stubborn(retry: Retry = Retry(attempts=5)) -> None: ...

    still.register(stubborn)
    await still.engine.schedule([NewRun(new_id(), "garbled", "stubborn", b"garbage")])
    assert (await by_hand.step()).state is State.FAILED


# Plain functions


async def test_plain_functions_run_in_threads_side_by_side(docket: Docket, make_worker: Callable[..., Worker]):
    meeting = threading.Barrier(4)

    def meet() -> int:
        return meeting.wait(timeout=PATIENCE)

    executions = [await docket.add(meet)() for _ in range(4)]
    await finish(make_worker(concurrency=4))
    assert sorted([await execution.get_result() for execution in executions]) == [0, 1, 2, 3]


async def test_a_plain_function_does_not_run_on_the_event_loop(docket: Docket, worker: Worker):
    def where() -> int:
        return threading.get_ident()

    execution = await docket.add(where)()
    await finish(worker)
    assert await execution.get_result() != threading.get_ident()


language = contextvars.ContextVar("language", default="none")


async def test_a_plain_function_sees_the_context_of_its_run(docket: Docket, worker: Worker):
    def speak(execution: Execution[Any] = CurrentExecution()) -> tuple[str, str]:
        from dovetail.injection import current_execution

        return language.get(), current_execution.get().key

    language.set("welsh")
    execution = await docket.add(speak, key="speak")()
    await finish(worker)
    assert await execution.get_result() == ("welsh", "speak")


async def test_what_a_plain_function_sets_in_its_context_stays_there(
    docket: Docket, make_worker: Callable[..., Worker]
):
    def change() -> str:
        before = language.get()
        language.set("changed")
        return before

    executions = [await docket.add(change)() for _ in range(3)]
    await finish(make_worker(concurrency=1))
    assert [await execution.get_result() for execution in executions] == ["none"] * 3


async def test_a_plain_function_that_returns_a_coroutine_has_it_awaited(docket: Docket, worker: Worker):
    async def inner() -> str:
        return "awaited"

    def outer() -> Any:
        return inner()

    execution = await docket.add(outer)()
    await finish(worker)
    assert await execution.get_result() == "awaited"


async def test_a_callable_object_can_be_a_task(docket: Docket, worker: Worker):
    class Greeter:
        __name__ = "greeter"

        async def __call__(self, name: str) -> str:
            return f"hello {name}"

    execution = await docket.add(Greeter())("ann")
    await finish(worker)
    assert await execution.get_result() == "hello ann"


# Being stopped


async def started_and_then(started: asyncio.Event, then: str) -> str:
    try:
        started.set()
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        if then == "re-raise":
            raise
        if then == "fail":
            raise ValueError("while stopping") from None
    return "swallowed"


def stoppable(then: str) -> tuple[Callable[..., Any], asyncio.Event]:
    started = asyncio.Event()

    async def body(retry: Retry = Retry(attempts=5)) -> str:
        return await started_and_then(started, then)

    return body, started


async def test_a_run_that_was_cancelled_ends_cancelled_and_is_not_tried_again(by_hand: ByHand, still: Docket):
    body, started = stoppable("re-raise")
    await still.add(body)()
    verdict = await by_hand.attempt(stop_for=Reason.STOP, once=started)
    assert isinstance(verdict, Settle)
    assert verdict.state is State.CANCELLED


async def test_a_run_that_swallows_its_cancellation_completes(by_hand: ByHand, still: Docket):
    body, started = stoppable("swallow")
    await still.add(body)()
    verdict = await by_hand.attempt(stop_for=Reason.STOP, once=started)
    assert isinstance(verdict, Settle)
    assert verdict.state is State.COMPLETED
    assert verdict.result is not None


async def test_a_run_that_fails_while_it_is_cancelled_ends_cancelled_with_the_error(by_hand: ByHand, still: Docket):
    body, started = stoppable("fail")
    await still.add(body)()
    verdict = await by_hand.attempt(stop_for=Reason.STOP, once=started)
    assert isinstance(verdict, Settle)
    assert verdict.state is State.CANCELLED
    assert str(verdict.failure) == "ValueError: while stopping"


async def test_a_run_that_is_stopped_for_a_shutdown_is_handed_back_at_no_cost(by_hand: ByHand, still: Docket):
    body, started = stoppable("re-raise")
    await still.add(body)()
    verdict = await by_hand.attempt(stop_for=Reason.SHUTDOWN, once=started)
    assert isinstance(verdict, Requeue)
    assert (verdict.attempt, verdict.due, verdict.failure) == (1, timedelta(), None)


async def test_a_run_that_completes_in_spite_of_a_shutdown_has_completed(by_hand: ByHand, still: Docket):
    body, started = stoppable("swallow")
    await still.add(body)()
    verdict = await by_hand.attempt(stop_for=Reason.SHUTDOWN, once=started)
    assert isinstance(verdict, Settle)
    assert verdict.state is State.COMPLETED


@pytest.mark.parametrize("then", ["re-raise", "swallow", "fail"])
async def test_a_run_whose_lease_is_lost_is_not_judged(by_hand: ByHand, still: Docket, then: str):
    body, started = stoppable(then)
    await still.add(body)()
    assert await by_hand.attempt(stop_for=Reason.LOST, once=started) is None


async def test_a_plain_function_that_cannot_hear_of_its_cancellation_completes(by_hand: ByHand, still: Docket):
    loop, started, release = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def stubborn() -> str:
        loop.call_soon_threadsafe(started.set)
        release.wait(5)
        return "done all the same"

    await still.add(stubborn)()
    attempting = asyncio.create_task(by_hand.attempt(stop_for=Reason.STOP, once=started))
    await soon(started.wait())
    loop.call_soon(loop.call_soon, release.set)
    verdict = await soon(attempting)
    assert isinstance(verdict, Settle)
    assert verdict.state is State.COMPLETED
    assert verdict.result is not None


@pytest.mark.parametrize("reason", [Reason.SHUTDOWN, Reason.LOST])
async def test_a_plain_function_is_not_waited_for_by_a_worker_that_is_out_of_time(
    by_hand: ByHand, still: Docket, reason: Reason
):
    loop, started, release = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def stubborn() -> None:
        loop.call_soon_threadsafe(started.set)
        release.wait(5)

    await still.add(stubborn)()
    try:
        verdict = await by_hand.attempt(stop_for=reason, once=started)
    finally:
        release.set()
    assert isinstance(verdict, Requeue) if reason is Reason.SHUTDOWN else verdict is None


# Logging


async def test_a_run_is_logged_without_its_arguments(docket: Docket, worker: Worker, caplog: pytest.LogCaptureFixture):
    async def greet(name: str, secret: str) -> None: ...

    with caplog.at_level(logging.INFO, "dovetail.worker"):
        await docket.add(greet, key="greeting")("ann", secret="hush")
        await finish(worker)
    lines = [record.getMessage() for record in caplog.records]
    assert any(line.startswith("↪") and line.endswith("greet(..., secret=...){greeting}") for line in lines)
    assert any(line.startswith("↩") for line in lines)
    assert not any("ann" in line or "hush" in line for line in lines)


async def test_each_failed_attempt_is_logged_with_its_traceback(
    docket: Docket, worker: Worker, caplog: pytest.LogCaptureFixture
):
    async def fail(retry: Retry = Retry(attempts=2)) -> None:
        raise ValueError("no")

    await docket.add(fail)()
    await finish(worker)
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.exc_info[0] for record in errors if record.exc_info] == [ValueError, ValueError]


@pytest.mark.parametrize("then", ["succeed", "fail"])
async def test_a_log_handler_that_raises_costs_no_outcome(
    docket: Docket, worker: Worker, then: str, monkeypatch: pytest.MonkeyPatch
):
    class Exporter(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("the exporter is away")

    calls = 0

    async def work() -> None:
        nonlocal calls
        calls += 1
        if then == "fail":
            raise ValueError("its own")

    logger = logging.getLogger("dovetail.worker")
    monkeypatch.setattr(logger, "level", logging.INFO)
    exporter = Exporter()
    execution = await docket.add(work)()
    logger.addHandler(exporter)
    try:
        await finish(worker)
    finally:
        logger.removeHandler(exporter)
    run = await run_of(docket, key=execution.key)
    assert run.state is (State.FAILED if then == "fail" else State.COMPLETED)
    assert run.error == ("ValueError: its own" if then == "fail" else None)
    assert calls == 1


# What a run knows of itself


async def test_a_body_that_raised_is_failed_for_its_waiter(docket: Docket, worker: Worker):
    execution = await docket.add(raising(lambda: ValueError("no"), is_async=True))()
    await finish(worker)
    with pytest.raises(ExecutionFailed, match="no"):
        await execution.get_result()


async def test_the_asyncio_task_of_a_run_is_named_after_its_key(docket: Docket, worker: Worker):
    async def named() -> str:
        task = asyncio.current_task()
        assert task is not None
        return task.get_name()

    execution = await docket.add(named, key="k")()
    await finish(worker)
    assert await execution.get_result() == "tests - task:k"


async def test_a_redelivered_run_says_so(still: Docket, threads: Threads):
    seen: list[tuple[bool, int]] = []

    async def work(execution: Execution[Any] = CurrentExecution()) -> None:
        seen.append((execution.redelivered, execution.attempt))

    await still.add(work)()
    await still.engine.claim("vanished", 1, lease=timedelta(seconds=1))
    still.clock.jump(timedelta(minutes=1))  # type: ignore[attr-defined]
    await ByHand(still, threads).step()
    assert seen == [(True, 1)]
