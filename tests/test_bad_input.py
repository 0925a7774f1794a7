"""Bad input: an error at the call that says which argument, what was wrong and what to do; and nothing has changed."""

from __future__ import annotations

import asyncio
import functools
import os
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any

import pytest

from dovetail import (
    ConcurrencyLimit,
    Cooldown,
    Cron,
    Debounce,
    Docket,
    Execution,
    ExponentialRetry,
    Perpetual,
    RateLimit,
    Retry,
    Timeout,
    UsageError,
    Worker,
)
from dovetail.clock import VirtualClock
from dovetail.errors import (
    DovetailError,
    EngineUnavailable,
    InvalidArgument,
    InvalidType,
    InvalidURL,
    NotADatabase,
    SchemaOutdated,
)
from dovetail.model import RunQuery, State
from tests.by_hand import at_work
from tests.faults import behind_a_door
from tests.waiting import soon

SECOND = timedelta(seconds=1)
NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001
LATER = datetime(2030, 1, 1, tzinfo=UTC)
SURROGATE = "a\ud800b"
LONG = "x" * 1001


class NoOffset(tzinfo):
    """A time zone that does not know its offset: such a datetime is naive, whatever it looks like."""

    def utcoffset(self, when: datetime | None) -> None:
        return None

    def dst(self, when: datetime | None) -> None:
        return None

    def tzname(self, when: datetime | None) -> None:
        return None


class Unnamed:
    """Callable, but nobody knows what it is called."""

    async def __call__(self) -> None: ...


async def greet(name: str = "nobody") -> None: ...


async def generating() -> AsyncGenerator[int]:
    yield 1


def generating_plainly() -> Generator[int]:
    yield 1


def case(name: str, /, **arguments: Any) -> Any:
    """A wrong argument: its name, and how it is passed."""
    ((parameter, value),) = arguments.items()
    shown = ascii(value) if isinstance(value, str | bytes | int | float | timedelta) else type(value).__name__
    return pytest.param(name, arguments, id=f"{parameter}={shown:.40}")


def naming(error: BaseException, argument: str) -> bool:
    """Whether the error names the argument in its message."""
    return argument.replace("_", " ") in str(error).replace("_", " ")


# Docket

WRONG_DOCKETS = [
    case("name", name=5),
    case("name", name=""),
    case("name", name=b"bytes"),
    case("name", name=LONG),
    case("name", name=SURROGATE),
    case("url", url=5),
    case("url", url=Path("dovetail.db")),
    case("url", url=""),
    case("url", url="dovetail.db"),
    case("url", url="://"),
    case("url", url="nosuchstore://somewhere"),
    case("url", url="sqlite://host/file.db"),
    case("url", url="sqlite:///file.db?unknown=1"),
    case("url", url="sqlite:///file.db?single_process=perhaps"),
    case("url", url="sqlite:///a%00b"),
    case("url", url="sqlite:///a\x00b"),
    case("url", url="sqlite:///" + SURROGATE),
    case("url", url="sqlite://[broken"),
    case("heartbeat_interval", heartbeat_interval=2),
    case("heartbeat_interval", heartbeat_interval=timedelta()),
    case("heartbeat_interval", heartbeat_interval=-SECOND),
    case("missed_heartbeats", missed_heartbeats=0),
    case("missed_heartbeats", missed_heartbeats=-1),
    case("missed_heartbeats", missed_heartbeats=1.5),
    case("missed_heartbeats", missed_heartbeats="5"),
    case("missed_heartbeats", missed_heartbeats=True),
    case("execution_ttl", execution_ttl=900),
    case("execution_ttl", execution_ttl=-SECOND),
    case("execution_ttl", execution_ttl=None),
    case("durability", durability="quorum"),
    case("durability", durability=""),
    case("durability", durability=5),
    case("codec", codec="yaml"),
    case("codec", codec=5),
    case("codec", codec=""),
    case("signing", signing="secret"),
    case("clock", clock=None),
    case("clock", clock=datetime.now),
]


@pytest.mark.parametrize(("argument", "given"), WRONG_DOCKETS)
def test_a_docket_says_which_argument_was_wrong(argument: str, given: Any, url: str, tmp_path: Path, monkeypatch: Any):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        Docket(**{"url": url, **given})
    assert naming(caught.value, argument)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_scheme_is_told_with_those_that_are_known():
    with pytest.raises(InvalidURL, match=r"memory, .*sqlite"):
        Docket(url="nosuchstore://somewhere")


def test_no_password_is_shown_in_an_error():
    with pytest.raises(InvalidURL) as caught:
        Docket(url="nosuchstore://user:secret@host/db")
    assert "secret" not in str(caught.value)


def test_a_host_in_a_file_url_is_told_with_what_was_meant():
    with pytest.raises(InvalidURL, match=r"sqlite:///data/file.db"):
        Docket(url="sqlite://data/file.db")


def test_an_unknown_option_is_told_with_those_that_are_known():
    with pytest.raises(InvalidURL, match=r"'timeout'.*single_process"):
        Docket(url="sqlite:///file.db?timeout=5")


# Scheduling

WRONG_CALLS = [
    case("function", function=None),
    case("function", function=5),
    case("function", function=functools.partial(greet, "ann")),
    case("function", function=Unnamed()),
    pytest.param("function", {"function": generating}, id="function=an asynchronous generator"),
    pytest.param("function", {"function": generating_plainly}, id="function=a generator"),
    case("when", when="tomorrow"),
    case("when", when=5),
    case("when", when=SECOND),
    case("when", when=NAIVE),
    case("when", when=NAIVE.replace(tzinfo=NoOffset())),
    case("when", when=LATER.date()),
    case("when", when=datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))),
    case("key", key=5),
    case("key", key=""),
    case("key", key=b"bytes"),
    case("key", key=LONG),
    case("key", key=SURROGATE),
    case("queue", queue=""),
    case("queue", queue=None),
    case("queue", queue=5),
    case("queue", queue=LONG),
    case("queue", queue=SURROGATE),
    case("queue", queue="dovetail.schedules"),
    case("priority", priority="high"),
    case("priority", priority=1.5),
    case("priority", priority=True),
    case("priority", priority=2**31),
    case("priority", priority=-(2**40)),
    case("priority", priority=None),
    case("priority", priority=""),
    case("priority", priority=0.0),
]


@pytest.fixture
async def untouched(docket: Docket) -> AsyncIterator[Docket]:
    """A docket that must know as little after the test as before it."""
    before = dict(docket.tasks)
    yield docket
    assert (await docket.engine.find(RunQuery())).items == []
    assert {name: each for name, each in docket.tasks.items() if name != "greet"} == before


@pytest.mark.parametrize(("argument", "given"), WRONG_CALLS)
@pytest.mark.parametrize("how", ["add", "call", "replace"])
async def test_scheduling_says_which_argument_was_wrong_before_the_call_is_made(
    untouched: Docket, how: str, argument: str, given: Any
):
    given = {"function": greet, **given}
    if how == "replace":
        given = {"when": LATER, "key": "k", **given}
    with pytest.raises(UsageError) as caught:
        getattr(untouched, how)(**given)
    assert naming(caught.value, argument)


@pytest.mark.parametrize("missing", ["when", "key"])
def test_replace_needs_a_time_and_a_key(untouched: Docket, missing: str):
    given: dict[str, Any] = {"when": LATER, "key": "k", missing: None}
    with pytest.raises(InvalidType, match=missing):
        untouched.replace(greet, **given)


WRONG_REGISTRATIONS: list[Any] = [
    pytest.param("function", (None,), id="None"),
    pytest.param("function", ("greet",), id="a name"),
    pytest.param("function", (functools.partial(greet, "ann"),), id="without a name"),
    pytest.param("name", (greet, [5]), id="a number"),
    pytest.param("name", (greet, [""]), id="no text"),
    pytest.param("name", (greet, ["fine", SURROGATE]), id="no unicode"),
    pytest.param("names", (greet, "alias"), id="text instead of a list"),
    pytest.param("names", (greet, 5), id="no iterable"),
]


@pytest.mark.parametrize(("argument", "given"), WRONG_REGISTRATIONS)
def test_registering_says_which_argument_was_wrong(docket: Docket, argument: str, given: Any):
    before = dict(docket.tasks)
    with pytest.raises(UsageError) as caught:
        docket.register(*given)
    assert naming(caught.value, argument)
    assert docket.tasks == before


@pytest.mark.parametrize("path", ["", "module", "tests.collections_of_tasks:nothing", 5, None, b"a:b"])
def test_a_collection_that_is_not_named_rightly_is_refused(docket: Docket, path: Any):
    before = dict(docket.tasks)
    with pytest.raises(UsageError, match=r"member|collection"):
        docket.register_collection(path)
    assert docket.tasks == before


def test_a_collection_with_one_wrong_member_registers_none(docket: Docket):
    before = dict(docket.tasks)
    with pytest.raises(UsageError, match="holds 5"):
        docket.register_collection("tests.collections_of_tasks:not_functions")
    assert docket.tasks == before


WRONG_BATCHES: list[Any] = [
    pytest.param("calls", [5], {}, id="a number among the calls"),
    pytest.param("calls", [greet], {}, id="a function among the calls"),
    pytest.param("calls", 5, {}, id="no iterable"),
    pytest.param("calls", None, {}, id="None"),
    pytest.param("chunk_size", [], {"chunk_size": 0}, id="no chunk"),
    pytest.param("chunk_size", [], {"chunk_size": -1}, id="less than none"),
    pytest.param("chunk_size", [], {"chunk_size": "all"}, id="text"),
    pytest.param("chunk_size", [], {"chunk_size": 1.5}, id="a fraction"),
]


@pytest.mark.parametrize(("argument", "calls", "given"), WRONG_BATCHES)
@pytest.mark.parametrize("how", ["add_many", "replace_many"])
async def test_a_batch_says_which_argument_was_wrong(
    untouched: Docket, how: str, argument: str, calls: Any, given: Any
):
    with pytest.raises(UsageError) as caught:
        await getattr(untouched, how)(calls, **given)
    assert naming(caught.value, argument)


@pytest.mark.parametrize("how", ["cancel", "get_execution"])
@pytest.mark.parametrize("key", [None, 5, "", LONG, SURROGATE])
async def test_a_wrong_key_is_refused(untouched: Docket, how: str, key: Any):
    with pytest.raises(UsageError, match="key"):
        await getattr(untouched, how)(key)


@pytest.mark.parametrize("name", [None, 5, greet])
async def test_a_wrong_task_name_is_refused(untouched: Docket, name: Any):
    with pytest.raises(UsageError, match="task_name"):
        await untouched.task_workers(name)


@pytest.mark.parametrize("execution", [None, 5, greet])
async def test_only_an_execution_can_be_scheduled(untouched: Docket, execution: Any):
    with pytest.raises(UsageError, match="execution"):
        await untouched.schedule(execution)


# Executions

WRONG_WAITS = [
    case("timeout", timeout=5),
    case("timeout", timeout="soon"),
    case("deadline", deadline="tomorrow"),
    case("deadline", deadline=SECOND),
    case("deadline", deadline=NAIVE),
]


@pytest.mark.parametrize(("argument", "given"), WRONG_WAITS)
async def test_waiting_says_which_argument_was_wrong(docket: Docket, argument: str, given: Any):
    execution: Execution[Any] = await docket.add(greet, when=LATER)()
    with pytest.raises(UsageError) as caught:
        await soon(execution.get_result(**given))
    assert naming(caught.value, argument)


async def test_a_very_long_timeout_is_a_timeout(docket: Docket):
    execution = await docket.add(greet, when=LATER)()
    waiting = asyncio.create_task(execution.get_result(timeout=timedelta.max))
    await docket.cancel(execution.key)
    with pytest.raises(DovetailError, match="cancelled"):
        await soon(waiting)


# Workers

WRONG_WORKERS = [
    case("docket", docket=None),
    case("docket", docket="docket"),
    case("name", name=5),
    case("name", name=LONG),
    case("name", name=SURROGATE),
    case("concurrency", concurrency=0),
    case("concurrency", concurrency=-1),
    case("concurrency", concurrency=1.5),
    case("concurrency", concurrency="10"),
    case("concurrency", concurrency=True),
    case("concurrency", concurrency=None),
    case("redelivery_timeout", redelivery_timeout=10),
    case("redelivery_timeout", redelivery_timeout=timedelta()),
    case("redelivery_timeout", redelivery_timeout=-SECOND),
    case("reconnection_delay", reconnection_delay=5),
    case("reconnection_delay", reconnection_delay=-SECOND),
    case("minimum_check_interval", minimum_check_interval=0.25),
    case("scheduling_resolution", scheduling_resolution=0.25),
    case("message_batch", message_batch=0),
    case("message_batch", message_batch="all"),
    case("queues", queues="default"),
    case("queue", queues=[5]),
    case("queue", queues=[""]),
    case("queues", queues=5),
    case("shutdown_grace", shutdown_grace=25),
    case("shutdown_grace", shutdown_grace=-SECOND),
    case("fallback_task", fallback_task=5),
    case("fallback_task", fallback_task="module:function"),
]


@pytest.mark.parametrize(("argument", "given"), WRONG_WORKERS)
def test_a_worker_says_which_argument_was_wrong(docket: Docket, argument: str, given: Any):
    with pytest.raises(UsageError) as caught:
        Worker(**{"docket": docket, **given})
    assert naming(caught.value, argument)


@pytest.mark.parametrize("wrong", [5, None, "key", {"k": -1}, {"k": 1.5}, {"k": "once"}, {5: 1}])
async def test_a_wrong_number_of_runs_is_refused(docket: Docket, worker: Worker, wrong: Any):
    with pytest.raises(UsageError, match=r"iterations_by_key|the number of runs|key"):
        await soon(worker.run_at_most(wrong))


@pytest.mark.parametrize(
    ("argument", "given"),
    [
        ("url", {"url": "nosuchstore://x"}),
        ("concurrency", {"concurrency": 0}),
        ("codec", {"codec": "yaml"}),
        ("member", {"tasks": ["nonsense"]}),
        ("member", {"fallback_task": "nonsense"}),
        ("tasks", {"tasks": "tests.collections_of_tasks:tasks"}),
    ],
)
async def test_a_worker_process_says_which_argument_was_wrong(url: str, argument: str, given: Any):
    with pytest.raises(UsageError) as caught:
        await soon(Worker.run(**{"docket_name": "d", "url": url, "until_finished": True, **given}))
    assert naming(caught.value, argument)


async def test_a_worker_of_a_docket_that_is_not_open_is_told_so(url: str):
    with pytest.raises(EngineUnavailable, match="async with"):
        await soon(Worker(Docket("d", url)).run_until_finished())


# Behaviors

WRONG_BEHAVIORS: list[Any] = [
    pytest.param("attempts", lambda: Retry(attempts=0), id="no attempts"),
    pytest.param("attempts", lambda: Retry(attempts=-1), id="less than none"),
    pytest.param("attempts", lambda: Retry(attempts=1.5), id="a fraction of an attempt"),  # type: ignore[arg-type]
    pytest.param("attempts", lambda: Retry(attempts="3"), id="attempts as text"),  # type: ignore[arg-type]
    pytest.param("attempts", lambda: Retry(attempts=True), id="attempts as truth"),
    pytest.param("delay", lambda: Retry(delay=5), id="a delay as a number"),  # type: ignore[arg-type]
    pytest.param("delay", lambda: Retry(delay=-SECOND), id="a delay into the past"),
    pytest.param("delay", lambda: Retry.forever(delay=5), id="for ever with a number"),  # type: ignore[arg-type]
    pytest.param("delay", lambda: Retry(attempts=2).after(5), id="after a number"),  # type: ignore[arg-type]
    pytest.param("delay", lambda: Retry(attempts=2).in_(-SECOND), id="into the past"),
    pytest.param("when", lambda: Retry(attempts=2).at("soon"), id="at a text"),  # type: ignore[arg-type]
    pytest.param("when", lambda: Retry(attempts=2).at(NAIVE), id="at a naive time"),
    pytest.param("attempts", lambda: ExponentialRetry(attempts=0), id="no exponential attempts"),
    pytest.param("minimum_delay", lambda: ExponentialRetry(minimum_delay=1), id="a minimum as a number"),  # type: ignore[arg-type]
    pytest.param("minimum_delay", lambda: ExponentialRetry(minimum_delay=-SECOND), id="a minimum below zero"),
    pytest.param("maximum_delay", lambda: ExponentialRetry(maximum_delay=1), id="a maximum as a number"),  # type: ignore[arg-type]
    pytest.param("maximum_delay", lambda: ExponentialRetry(maximum_delay=-SECOND), id="a maximum below zero"),
    pytest.param("base", lambda: Timeout(5), id="a timeout as a number"),  # type: ignore[arg-type]
    pytest.param("base", lambda: Timeout(timedelta()), id="no time"),
    pytest.param("base", lambda: Timeout(-SECOND), id="less than no time"),
    pytest.param("by", lambda: Timeout(SECOND).extend(5), id="more time as a number"),  # type: ignore[arg-type]
    pytest.param("by", lambda: Timeout(SECOND).extend(-SECOND), id="more time below zero"),
    pytest.param("every", lambda: Perpetual(every=5), id="a period as a number"),  # type: ignore[arg-type]
    pytest.param("every", lambda: Perpetual(every=-SECOND), id="a period below zero"),
    pytest.param("delay", lambda: Perpetual().after(5), id="next after a number"),  # type: ignore[arg-type]
    pytest.param("delay", lambda: Perpetual().after(-SECOND), id="next into the past"),
    pytest.param("when", lambda: Perpetual().at("soon"), id="next at a text"),  # type: ignore[arg-type]
    pytest.param("when", lambda: Perpetual().at(NAIVE), id="next at a naive time"),
    pytest.param("max_concurrent", lambda: ConcurrencyLimit(0), id="none at once"),
    pytest.param("max_concurrent", lambda: ConcurrencyLimit(max_concurrent=-1), id="less than none at once"),
    pytest.param("max_concurrent", lambda: ConcurrencyLimit("a", 1.5), id="a fraction at once"),  # type: ignore[arg-type]
    pytest.param("max_concurrent", lambda: ConcurrencyLimit("a", "2"), id="so many as text"),  # type: ignore[arg-type]
    pytest.param("max_concurrent", lambda: ConcurrencyLimit(True), id="so many as truth"),
    pytest.param("max_concurrent", lambda: ConcurrencyLimit(2**31), id="too many at once"),
    pytest.param("argument_name", lambda: ConcurrencyLimit(""), id="an argument without a name"),
    pytest.param("argument_name", lambda: ConcurrencyLimit(b"a"), id="an argument in bytes"),  # type: ignore[arg-type]
    pytest.param("scope", lambda: ConcurrencyLimit(1, scope=""), id="a scope without a name"),
    pytest.param("scope", lambda: ConcurrencyLimit(1, scope=5), id="a scope as a number"),  # type: ignore[arg-type]
    pytest.param("scope", lambda: ConcurrencyLimit(1, scope=SURROGATE), id="a scope that cannot be stored"),
    pytest.param("scope", lambda: ConcurrencyLimit(1, scope=LONG), id="a scope that is too long"),
    pytest.param("limit", lambda: RateLimit(0, per=SECOND), id="no starts"),
    pytest.param("limit", lambda: RateLimit(-1, per=SECOND), id="less than no starts"),
    pytest.param("limit", lambda: RateLimit("2", per=SECOND), id="starts as text"),  # type: ignore[arg-type]
    pytest.param("limit", lambda: RateLimit(True, per=SECOND), id="starts as truth"),
    pytest.param("per", lambda: RateLimit(1, per=timedelta()), id="a window of nothing"),
    pytest.param("per", lambda: RateLimit(1, per=-SECOND), id="a window below zero"),
    pytest.param("per", lambda: RateLimit(1, per=5), id="a window as a number"),  # type: ignore[arg-type]
    pytest.param("scope", lambda: RateLimit(1, per=SECOND, scope=""), id="a rate's scope without a name"),
    pytest.param("drop", lambda: RateLimit(1, per=SECOND, drop="no"), id="drop as text"),  # type: ignore[arg-type]
    pytest.param("window", lambda: Cooldown(timedelta()), id="a cooldown of nothing"),
    pytest.param("window", lambda: Cooldown(-SECOND), id="a cooldown below zero"),
    pytest.param("window", lambda: Cooldown(5), id="a cooldown as a number"),  # type: ignore[arg-type]
    pytest.param("scope", lambda: Cooldown(SECOND, scope=5), id="a cooldown's scope as a number"),  # type: ignore[arg-type]
    pytest.param("settle", lambda: Debounce(timedelta()), id="nothing to settle in"),
    pytest.param("settle", lambda: Debounce(-SECOND), id="less than nothing to settle in"),
    pytest.param("settle", lambda: Debounce(5), id="a time to settle as a number"),  # type: ignore[arg-type]
    pytest.param("scope", lambda: Debounce(SECOND, scope=""), id="a debounce's scope without a name"),
    pytest.param("expression", lambda: Cron("every day"), id="no cron expression"),
    pytest.param("expression", lambda: Cron("0 0 30 2 *"), id="a date that never comes"),
    pytest.param("expression", lambda: Cron(5), id="an expression as a number"),  # type: ignore[arg-type]
    pytest.param("tz", lambda: Cron("@daily", tz="Nowhere"), id="a zone that nobody knows"),
    pytest.param("tz", lambda: Cron("@daily", tz=1), id="a zone as a number"),  # type: ignore[arg-type]
    pytest.param("overlap", lambda: Cron("@daily", overlap="allow"), id="an overlap"),  # type: ignore[arg-type]
    pytest.param("misfire", lambda: Cron("@daily", misfire="none"), id="a misfire"),  # type: ignore[arg-type]
    pytest.param("delay", lambda: Cron("@daily").after(-SECOND), id="the next slot in the past"),
    pytest.param("automatic", lambda: Perpetual(SECOND, "yes"), id="automatic as text"),  # type: ignore[arg-type]
    pytest.param("automatic", lambda: Cron("@daily", "UTC"), id="a zone in another's place"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("argument", "make"), WRONG_BEHAVIORS)
def test_a_behavior_says_which_argument_was_wrong(argument: str, make: Callable[[], Any]):
    with pytest.raises(UsageError) as caught:
        make()
    assert naming(caught.value, argument)


# Durations without end are either taken or refused where they are given, never met by a worker

ENDLESS: dict[str, Callable[[Docket], Any]] = {
    "a retry's delay": lambda docket: retrying(Retry(attempts=2, delay=timedelta.max)),
    "an exponential retry's delay": lambda docket: retrying(
        ExponentialRetry(attempts=2, minimum_delay=timedelta.max, maximum_delay=timedelta.max)
    ),
    "a perpetual's period": lambda docket: perpetual(Perpetual(every=timedelta.max)),
    "a timeout": lambda docket: timing(Timeout(timedelta.max)),
    "a rate's window": lambda docket: limiting(RateLimit(1, per=timedelta.max)),
    "a cooldown": lambda docket: limiting(Cooldown(timedelta.max)),
    "a retention": lambda docket: keeping(docket),
}


def retrying(retry: Retry) -> Any:
    async def fail(retry: Retry = retry) -> None:
        raise ValueError("the task's own")

    return fail


def perpetual(perpetual: Perpetual) -> Any:
    async def tick(perpetual: Perpetual = perpetual) -> None: ...

    return tick


def timing(timeout: Timeout) -> Any:
    async def quick(timeout: Timeout = timeout) -> None: ...

    return quick


def limiting(limit: RateLimit | Cooldown) -> Any:
    async def limited(limit: Any = limit) -> None: ...

    return limited


def keeping(docket: Docket) -> Any:
    docket.execution_ttl = timedelta.max
    return greet


@pytest.mark.parametrize("what", ENDLESS)
async def test_an_endless_duration_is_refused_at_once_or_works(docket: Docket, worker: Worker, what: str):
    try:
        function = ENDLESS[what](docket)
        execution = await docket.add(function, key="k")()
    except UsageError:
        return
    faults = behind_a_door(docket)
    async with at_work(worker):
        await faults.reached("finish", 1)
    (run,) = (await docket.engine.find(RunQuery(ids=(execution.id or "",)))).items
    assert run.state is not State.RUNNING, "the end of the run could not be written"
    assert "Overflow" not in (run.error or "")


# Files


async def opened(url: str) -> None:
    async with Docket("tests", url):
        pass


async def test_a_folder_that_does_not_exist_is_told_and_not_made(tmp_path: Path):
    with pytest.raises(EngineUnavailable, match=r"missing does not exist; create it first"):
        await opened(f"sqlite:///{tmp_path}/missing/store.db")
    assert list(tmp_path.iterdir()) == []


async def test_a_folder_is_not_a_file(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(NotADatabase, match=r"folder: it is a folder; name a file in it"):
        await opened(f"sqlite:///{tmp_path}/folder")
    assert list((tmp_path / "folder").iterdir()) == []


async def test_a_file_that_is_something_else_is_left_as_it_is(tmp_path: Path):
    file = tmp_path / "letter.txt"
    file.write_text("Dear diary, " * 1000)
    before = file.read_bytes()
    with pytest.raises(NotADatabase, match="not an SQLite database; nothing was changed"):
        await opened(f"sqlite:///{file}")
    assert file.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["letter.txt"]


async def test_a_file_that_was_cut_off_is_told(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/store.db"
    async with Docket("tests", url) as docket:
        await docket.add(greet)()
    file = tmp_path / "store.db"
    content = file.read_bytes()
    file.write_bytes(content[:100] + b"\xff" * 400)
    with pytest.raises((NotADatabase, EngineUnavailable), match=r"store.db"):
        await opened(url)


async def test_a_device_is_not_a_file():
    with pytest.raises(NotADatabase, match="not a regular file"):
        await opened("sqlite:////dev/null")


async def test_a_database_of_a_newer_schema_is_left_as_it_is(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/store.db"
    async with Docket("tests", url) as docket:
        await docket.add(greet, key="k")()
    with sqlite3.connect(tmp_path / "store.db") as db:
        db.execute("UPDATE dovetail_schema SET version = 9999")
    db.close()
    with pytest.raises(SchemaOutdated, match=r"9999.*upgrade dovetail-tasks.*nothing was changed"):
        await opened(url)
    with sqlite3.connect(tmp_path / "store.db") as db:
        assert db.execute("SELECT version FROM dovetail_schema").fetchall() == [(9999,)]
        assert db.execute("SELECT count(*) FROM dovetail_run").fetchone() == (1,)
    db.close()


async def test_a_database_of_the_applications_own_is_shared_in_peace(tmp_path: Path):
    with sqlite3.connect(tmp_path / "app.db") as db:
        db.execute("CREATE TABLE letters (text)")
        db.execute("INSERT INTO letters VALUES ('dear diary')")
    db.close()
    await opened(f"sqlite:///{tmp_path}/app.db")
    with sqlite3.connect(tmp_path / "app.db") as db:
        assert db.execute("SELECT text FROM letters").fetchall() == [("dear diary",)]
    db.close()


async def test_a_place_where_nothing_can_be_created_is_told():
    with pytest.raises(EngineUnavailable, match=r"/proc/store.db"):
        await opened("sqlite:////proc/store.db")


@pytest.mark.skipif(os.geteuid() == 0, reason="for root everything is writable")
async def test_a_folder_that_is_not_writable_is_told(tmp_path: Path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(EngineUnavailable, match="not writable for this user"):
            await opened(f"sqlite:///{tmp_path}/store.db")
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.skipif(os.geteuid() == 0, reason="for root everything is readable")
async def test_a_file_that_is_not_readable_is_told(tmp_path: Path):
    file = tmp_path / "store.db"
    file.touch(0o000)
    with pytest.raises(EngineUnavailable, match="not readable and writable for this user"):
        await opened(f"sqlite:///{file}")


# Checks


@pytest.mark.parametrize(
    ("kind", "wrong"), [(InvalidType, {"key": 5}), (InvalidArgument, {"key": ""}), (TypeError, {"when": NAIVE})]
)
def test_a_wrong_type_is_told_from_a_wrong_value(docket: Docket, kind: type[Exception], wrong: Any):
    with pytest.raises(kind):
        docket.add(greet, **wrong)


def test_a_virtual_clock_is_a_clock(url: str):
    assert Docket("d", url, clock=VirtualClock()).name == "d"
