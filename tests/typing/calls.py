"""What a type checker knows of a call. Not run: checked by pyright.

A line that has to be an error is marked with the rule it breaks; a mark on a line without that error is an error too.
"""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from collections.abc import AsyncGenerator, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from dovetail import (
    CurrentDocket,
    CurrentExecution,
    CurrentWorker,
    Depends,
    Docket,
    Execution,
    Perpetual,
    Retry,
    Schedule,
    Shared,
    TaskCall,
    TaskKey,
    Timeout,
    Worker,
    result_of,
    sync,
    task,
)

LATER = datetime(2030, 1, 1, tzinfo=UTC)


@dataclass
class Receipt:
    number: int


async def send(address: str, copies: int = 1, *, urgent: bool = False) -> Receipt:
    return Receipt(copies)


def print_out(text: str) -> int:
    return len(text)


async def silent() -> None: ...


async def behaved(
    name: str,
    retry: Retry = Retry(attempts=3),
    timeout: Timeout = Timeout(timedelta(seconds=1)),
    perpetual: Perpetual = Perpetual(),
) -> list[str]:
    return [name, str(retry.attempt), str(timeout.remaining()), str(perpetual.every)]


def plain() -> str:
    return "plain"


async def asynchronous() -> bytes:
    return b""


@contextmanager
def managed() -> Generator[float]:
    yield 1.0


@asynccontextmanager
async def managed_asynchronously() -> AsyncGenerator[complex]:
    yield 1j


async def injected(
    number: int,
    text: str = Depends(plain),
    data: bytes = Depends(asynchronous),
    fraction: float = Depends(managed),
    imaginary: complex = Depends(managed_asynchronously),
    pool: str = Shared(plain),
    docket: Docket = CurrentDocket(),
    worker: Worker = CurrentWorker(),
    execution: Execution[Any] = CurrentExecution(),
    key: str = TaskKey(),
) -> int:
    return number


async def wrongly_injected(
    data: bytes = Depends(plain),  # pyright: ignore[reportArgumentType]
    text: str = Depends(managed),  # pyright: ignore[reportArgumentType]
    key: int = TaskKey(),  # pyright: ignore[reportArgumentType]
) -> None: ...


async def adding(docket: Docket) -> None:
    # The arguments are the task's own.
    assert_type(await docket.add(send)("ann@example.com"), Execution[Receipt])
    assert_type(await docket.add(send)("ann@example.com", 2, urgent=True), Execution[Receipt])
    assert_type(await docket.add(send, when=LATER, key="k")(address="ann@example.com"), Execution[Receipt])
    assert_type(await docket.add(print_out)("text"), Execution[int])
    assert_type(await docket.add(silent)(), Execution[None])
    await docket.add(send)()  # pyright: ignore[reportCallIssue]
    await docket.add(send)(5)  # pyright: ignore[reportArgumentType]
    await docket.add(send)("ann@example.com", 2, True)  # pyright: ignore[reportCallIssue]
    await docket.add(send)("ann@example.com", colour="red")  # pyright: ignore[reportCallIssue]
    await docket.add(print_out)(b"bytes")  # pyright: ignore[reportArgumentType]
    await docket.add(silent)("too much")  # pyright: ignore[reportCallIssue]

    # What is declared need not be given.
    assert_type(await docket.add(behaved)("ann"), Execution[list[str]])
    assert_type(await docket.add(injected)(5), Execution[int])
    await docket.add(behaved)("ann", retry=Retry(attempts=5))
    await docket.add(behaved)("ann", retry=5)  # pyright: ignore[reportArgumentType]

    # By name anything goes.
    assert_type(await docket.add("send")(1, 2, 3, anything=True), Execution[Any])

    # A call that is not awaited schedules nothing.
    await assert_type(docket.add(silent)(), Coroutine[Any, Any, Execution[None]])
    docket.add(silent)()  # pyright: ignore[reportUnusedCoroutine]


async def adding_wrongly(docket: Docket) -> None:
    docket.add(5)  # pyright: ignore[reportCallIssue, reportArgumentType]
    docket.add(send, when="tomorrow")  # pyright: ignore[reportCallIssue, reportArgumentType]
    docket.add(send, key=5)  # pyright: ignore[reportCallIssue, reportArgumentType]
    docket.add(send, colour="red")  # pyright: ignore[reportCallIssue]


@task(name="mail.post", queue="mail")
async def post(address: str, copies: int = 1) -> Receipt:
    return Receipt(copies)


@task
def declared(text: str) -> int:
    return len(text)


async def declaring(docket: Docket) -> None:
    assert_type(await post("ann@example.com"), Receipt)
    assert_type(declared("text"), int)
    assert_type(await docket.add(post, queue="default")("ann@example.com"), Execution[Receipt])
    assert_type(await docket.add(declared)("text"), Execution[int])
    await docket.add(post)(5)  # pyright: ignore[reportArgumentType]
    task(queue=5)  # pyright: ignore[reportArgumentType]


async def flowing(docket: Docket) -> None:
    length = await docket.add(print_out)("text")
    assert_type(result_of(length), int)
    await docket.add(send)("ann@example.com", result_of(length))
    await docket.add(send)(result_of(length))  # pyright: ignore[reportArgumentType]
    await docket.add(send, after=[length, "key"], after_failure="run", group="g", unique="pending")("ann@example.com")
    docket.add(send, after_failure="retry")  # pyright: ignore[reportCallIssue, reportArgumentType]
    docket.add(send, unique="always")  # pyright: ignore[reportCallIssue, reportArgumentType]
    docket.add(send, priority="high")  # pyright: ignore[reportCallIssue, reportArgumentType]
    docket.replace(send, LATER, "k", unique="live")  # pyright: ignore[reportCallIssue]
    assert_type(await docket.retry(length), Execution[Any])


async def replacing(docket: Docket) -> None:
    assert_type(await docket.replace(send, LATER, "k")("ann@example.com"), Execution[Receipt])
    assert_type(await docket.replace(print_out, when=LATER, key="k")("text"), Execution[int])
    await docket.replace(send, LATER, "k")(5)  # pyright: ignore[reportArgumentType]
    docket.replace(send)  # pyright: ignore[reportCallIssue]
    docket.replace(send, None, "k")  # pyright: ignore[reportCallIssue, reportArgumentType]


async def batching(docket: Docket) -> None:
    assert_type(docket.call(send)("ann@example.com"), TaskCall)
    docket.call(send)(5)  # pyright: ignore[reportArgumentType]
    assert_type(await docket.add_many([docket.call(send)("a"), docket.call(silent)()]), list[Execution[Any]])
    await docket.add_many([send])  # pyright: ignore[reportArgumentType]


async def results(docket: Docket) -> None:
    sent = await docket.add(send)("ann@example.com")
    assert_type(await sent.get_result(), Receipt)
    assert_type(await sent.get_result(timeout=timedelta(seconds=1)), Receipt)
    assert_type(await (await docket.add(print_out)("text")).get_result(), int)
    assert_type(await (await docket.add(silent)()).get_result(), None)
    number: int = await sent.get_result()  # pyright: ignore[reportAssignmentType]
    assert number
    await sent.get_result(timeout=5)  # pyright: ignore[reportArgumentType]
    assert_type(await docket.get_execution("k"), Execution[Any] | None)


def reading(execution: Execution[Receipt]) -> None:
    execution.key = "another"  # pyright: ignore[reportAttributeAccessIssue]
    execution.args = ()  # pyright: ignore[reportAttributeAccessIssue]
    assert_type(execution.error, str | None)
    assert_type(execution.started_at, datetime | None)


def without_await(docket: sync.Docket) -> None:
    # The same, for code that does not await.
    assert_type(docket.add(send)("ann@example.com"), sync.Execution[Receipt])
    assert_type(docket.add(send, when=LATER, key="k")(address="ann@example.com", urgent=True), sync.Execution[Receipt])
    assert_type(docket.add(print_out)("text"), sync.Execution[int])
    assert_type(docket.add("send")(1, anything=True), sync.Execution[Any])
    docket.add(send)()  # pyright: ignore[reportCallIssue]
    docket.add(send)(5)  # pyright: ignore[reportArgumentType]
    docket.add(print_out)(b"bytes")  # pyright: ignore[reportArgumentType]
    docket.add(send, colour="red")  # pyright: ignore[reportCallIssue]
    assert_type(docket.replace(send, LATER, "k")("ann@example.com"), sync.Execution[Receipt])
    docket.replace(send, LATER, "k")(5)  # pyright: ignore[reportArgumentType]

    assert_type(docket.call(send)("ann@example.com"), TaskCall)
    docket.call(send)(5)  # pyright: ignore[reportArgumentType]
    assert_type(docket.add_many([docket.call(silent)()]), list[sync.Execution[Any]])
    assert_type(docket.get_execution("k"), sync.Execution[Any] | None)

    sent = docket.add(send)("ann@example.com")
    assert_type(sent.get_result(timeout=timedelta(seconds=1)), Receipt)
    assert_type(docket.add(silent)().get_result(), None)
    sent.get_result(timeout=5)  # pyright: ignore[reportArgumentType]
    assert_type(sent.key, str)
    assert_type(sent.started_at, datetime | None)
    sent.key = "another"  # pyright: ignore[reportAttributeAccessIssue]

    assert_type(docket.clear(), int)
    docket.cancel("k")
    docket.cancel(5)  # pyright: ignore[reportArgumentType]
    docket.strike(send, "address", "==", "ann@example.com", reason="asked")
    docket.strike(send, colour="red")  # pyright: ignore[reportCallIssue]


async def hooking(docket: Docket, worker: Worker) -> None:
    # A hook stays what it was.
    @docket.hooks.on_error
    def report(execution: Execution[Any], error: BaseException) -> int:
        return execution.attempt

    @worker.hooks.on_stop(critical=True)
    async def leave(worker: Worker) -> bytes:
        return b""

    report("k", ValueError())  # pyright: ignore[reportArgumentType]
    assert_type(await leave(worker), bytes)
    docket.hooks.on_error(critical=5)  # pyright: ignore[reportArgumentType]
    Docket(middleware=[report])  # pyright: ignore[reportArgumentType]


async def repeating(docket: Docket) -> None:
    # A schedule's call is checked as any other.
    assert_type(await docket.schedules.add("nightly", send, "0 3 * * *")("ann@example.com"), Schedule)
    assert_type(await docket.schedules.add("often", "send", every=timedelta(hours=1))(1, anything=True), Schedule)
    await docket.schedules.add("nightly", send, "0 3 * * *")(5)  # pyright: ignore[reportArgumentType]
    docket.schedules.add("nightly", send, overlap="maybe")  # pyright: ignore[reportCallIssue, reportArgumentType]
    assert_type(await docket.schedules.list(), list[Schedule])
    assert_type(await docket.schedules.get("nightly"), Schedule | None)
    assert_type(await docket.schedules.trigger("nightly"), Execution[Any])


def repeating_without_await(docket: sync.Docket) -> None:
    assert_type(docket.schedules.add("nightly", send, "0 3 * * *")("ann@example.com"), Schedule)
    docket.schedules.add("nightly", send, "0 3 * * *")(5)  # pyright: ignore[reportArgumentType]
    assert_type(docket.schedules.list(), list[Schedule])
    assert_type(docket.schedules.trigger("nightly"), sync.Execution[Any])
