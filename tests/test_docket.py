"""Docket: registering, scheduling, controlling and reading back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dovetail import (
    Disposition,
    Docket,
    DovetailError,
    EngineUnavailable,
    Execution,
    ExecutionState,
    PayloadError,
    Perpetual,
    Retry,
    UnknownTask,
    UsageError,
    Worker,
    result_of,
)
from dovetail.clock import VirtualClock
from dovetail.codec import Keyring, SigningKey
from dovetail.docket import TaskCall, steering
from dovetail.model import NewRun, RunQuery, State, new_id
from tests.by_hand import ByHand, at_work, finish, run_of, runs_of
from tests.faults import behind_a_door
from tests.waiting import soon

MakeWorker = Callable[..., Worker]
IN_AN_HOUR = timedelta(hours=1)


async def greet(name: str = "nobody") -> str:
    return f"hello {name}"


async def count(number: int) -> int:
    return number


def later(by: timedelta = IN_AN_HOUR) -> datetime:
    return datetime.now(UTC) + by


async def stored(docket: Docket) -> int:
    return len((await docket.engine.find(RunQuery(limit=1000))).items)


# Settings


def test_the_defaults_are_those_of_docket(url: str):
    docket = Docket(url=url)
    assert docket.name == "docket"
    assert docket.heartbeat_interval == timedelta(seconds=2)
    assert docket.missed_heartbeats == 5
    assert docket.execution_ttl == timedelta(minutes=15)


def test_without_a_url_the_file_is_dovetail_db_in_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert Docket().url == "sqlite:///dovetail.db"


def test_nothing_is_opened_by_the_constructor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Docket()
    assert list(tmp_path.iterdir()) == []


async def test_the_environment_names_the_url(url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DOVETAIL_URL", url)
    async with Docket("tests") as docket, Docket("tests", url) as other:
        await docket.add(greet, key="k")()
        assert await other.get_execution("k") is not None


def test_the_environment_names_the_docket(url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DOVETAIL_NAME", "from-outside")
    assert Docket(url=url).name == "from-outside"


def test_the_environment_names_the_codec(url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DOVETAIL_CODEC", "pickle")
    assert Docket(url=url).codec.name == "pickle"


def test_an_argument_wins_over_the_environment(url: str, monkeypatch: pytest.MonkeyPatch):
    for variable in ("DOVETAIL_URL", "DOVETAIL_NAME", "DOVETAIL_CODEC"):
        monkeypatch.setenv(variable, "nonsense")
    docket = Docket("mine", url, codec="json")
    assert (docket.name, docket.url, docket.codec.name) == ("mine", url, "json")


def test_an_empty_variable_counts_as_none(url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DOVETAIL_NAME", "")
    assert Docket(url=url).name == "docket"


@pytest.mark.parametrize("variable", ["DOVETAIL_URL", "DOVETAIL_CODEC"])
def test_a_wrong_variable_is_refused(variable: str, monkeypatch: pytest.MonkeyPatch, url: str):
    monkeypatch.setenv(variable, "nonsense")
    with pytest.raises(UsageError, match="nonsense"):
        Docket(url=None if variable == "DOVETAIL_URL" else url)


def test_a_docket_shows_no_password():
    shown = repr(Docket("d", "memory://user:secret@host"))
    assert "secret" not in shown


def test_the_labels_of_a_docket_name_it(url: str):
    assert Docket("mine", url).labels() == {"docket.name": "mine"}


# Opening and closing


async def test_a_docket_can_be_entered_again_and_keeps_its_tasks_and_runs(tmp_path: Path):
    docket = Docket("tests", f"sqlite:///{tmp_path}/store.db")
    docket.register(greet)
    async with docket:
        await docket.add("greet", key="k")()
    async with docket:
        assert "greet" in docket.tasks
        assert await docket.get_execution("k") is not None


async def test_a_docket_that_is_open_cannot_be_entered(docket: Docket):
    with pytest.raises(UsageError, match="open already"):
        await docket.__aenter__()
    await docket.add(greet)()


async def test_a_docket_that_could_not_be_opened_can_be_tried_again(tmp_path: Path):
    docket = Docket("tests", f"sqlite:///{tmp_path}/missing/store.db")
    with pytest.raises(EngineUnavailable):
        await docket.__aenter__()
    (tmp_path / "missing").mkdir()
    async with docket:
        await docket.add(greet)()


def calls_on(docket: Docket) -> dict[str, Callable[[], Any]]:
    return {
        "add": lambda: docket.add(greet)(),
        "replace": lambda: docket.replace(greet, later(), "k")(),
        "add_many": lambda: docket.add_many([docket.call(greet)()]),
        "cancel": lambda: docket.cancel("k"),
        "clear": lambda: docket.clear(),
        "get_execution": lambda: docket.get_execution("k"),
        "snapshot": lambda: docket.snapshot(),
        "workers": lambda: docket.workers(),
        "task_workers": lambda: docket.task_workers("greet"),
    }


CALLS = ["add", "replace", "add_many", "cancel", "clear", "get_execution", "snapshot", "workers", "task_workers"]


@pytest.mark.parametrize("call", CALLS)
async def test_a_docket_that_is_not_open_is_unavailable(url: str, call: str):
    docket = Docket("tests", url)
    with pytest.raises(EngineUnavailable, match="async with") as caught:
        await calls_on(docket)[call]()
    assert isinstance(caught.value, ConnectionError)


@pytest.mark.parametrize("call", CALLS)
async def test_a_docket_that_was_left_is_unavailable(url: str, call: str):
    async with Docket("tests", url) as docket:
        pass
    with pytest.raises(EngineUnavailable):
        await calls_on(docket)[call]()


@pytest.mark.parametrize("call", CALLS)
async def test_trouble_with_the_store_reaches_the_caller(docket: Docket, call: str):
    faults = behind_a_door(docket)
    for verb in ("schedule", "cancel", "clear", "find", "glance", "survey"):
        faults.fail(verb, 100)
    with pytest.raises(EngineUnavailable, match="the door is shut"):
        await calls_on(docket)[call]()


async def test_a_docket_that_signs_runs_what_was_signed_and_refuses_what_was_not(url: str, make_worker: MakeWorker):
    ring = Keyring(SigningKey("2030", b"sixteen bytes or more"))
    async with Docket("signed", url, signing=ring) as signing, Docket("signed", url) as careless:
        signed = await signing.add(greet)("ann")
        unsigned = await careless.add(greet)("mallory")
        await finish(make_worker(signing))
        assert await signed.get_result() == "hello ann"
        await unsigned.sync()
        assert unsigned.state is ExecutionState.FAILED
        assert "UndecodablePayload" in (unsigned.error or "")


# Registering


def test_a_task_is_filed_under_its_own_name(docket: Docket):
    docket.register(greet)
    assert docket.tasks["greet"] is greet


def test_a_task_is_filed_under_the_names_given(docket: Docket):
    docket.register(greet, names=["hello", "hi"])
    assert docket.tasks["hello"] is greet
    assert docket.tasks["hi"] is greet
    assert "greet" not in docket.tasks


def test_no_names_are_the_same_as_none(docket: Docket):
    docket.register(greet, names=[])
    assert docket.tasks["greet"] is greet


def test_a_later_registration_takes_the_name(docket: Docket):
    docket.register(greet, names=["same"])
    docket.register(count, names=["same"])
    assert docket.tasks["same"] is count


def test_the_standard_tasks_are_known_from_the_start(url: str):
    assert {"trace", "fail", "sleep"} <= set(Docket(url=url).tasks)


def test_a_task_can_be_registered_before_the_docket_is_open(url: str):
    docket = Docket(url=url)
    docket.register(greet)
    assert docket.tasks["greet"] is greet


def test_a_collection_is_registered_by_its_name(docket: Docket):
    docket.register_collection("tests.collections_of_tasks:tasks")
    assert {"first", "second"} <= set(docket.tasks)


def test_behaviors_of_different_kinds_go_together(docket: Docket):
    from dovetail import Timeout

    async def everything(
        retry: Retry = Retry(attempts=2),
        timeout: Timeout = Timeout(timedelta(seconds=1)),
        perpetual: Perpetual = Perpetual(),
    ) -> None: ...

    docket.register(everything)
    assert docket.tasks["everything"] is everything


@pytest.mark.parametrize("how", ["register", "add", "call", "replace"])
def test_two_behaviors_of_one_kind_are_refused(docket: Docket, how: str):
    async def torn(one: Retry = Retry(), two: Retry = Retry()) -> None: ...

    ways: dict[str, Callable[[], Any]] = {
        "register": lambda: docket.register(torn),
        "add": lambda: docket.add(torn),
        "call": lambda: docket.call(torn),
        "replace": lambda: docket.replace(torn, later(), "k"),
    }
    with pytest.raises(ValueError, match="Only one Retry") as caught:
        ways[how]()
    assert isinstance(caught.value, UsageError)
    assert "torn" in str(caught.value)
    assert "torn" not in docket.tasks


# Adding


async def test_a_call_without_a_time_is_queued(docket: Docket):
    execution = await docket.add(greet)("ann")
    assert execution.state is ExecutionState.QUEUED
    assert execution.disposition is Disposition.SCHEDULED


async def test_a_call_for_later_is_scheduled(docket: Docket):
    when = later()
    execution = await docket.add(greet, when=when)("ann")
    assert execution.state is ExecutionState.SCHEDULED
    assert (await run_of(docket, key=execution.key)).due == when


async def test_a_time_that_has_passed_means_now(docket: Docket):
    execution = await docket.add(greet, when=later(-IN_AN_HOUR))("ann")
    assert execution.state is ExecutionState.QUEUED


async def test_this_very_moment_means_now(still: Docket, clock: VirtualClock):
    execution = await still.add(greet, when=clock.now())("ann")
    assert execution.state is ExecutionState.QUEUED


async def test_a_time_in_another_zone_is_the_same_time(docket: Docket):
    from datetime import timezone

    when = later().astimezone(timezone(timedelta(hours=-7)))
    execution = await docket.add(greet, when=when)()
    assert (await run_of(docket, key=execution.key)).due == when


async def test_a_call_without_a_key_gets_a_fresh_one(docket: Docket):
    one, two = await docket.add(greet)(), await docket.add(greet)()
    assert one.key != two.key
    assert one.key < two.key, "UUIDs of version 7 sort by when they were made"


async def test_adding_registers_the_function(docket: Docket):
    await docket.add(greet)()
    assert docket.tasks["greet"] is greet


async def test_a_task_can_be_added_by_its_name(docket: Docket, worker: Worker):
    docket.register(greet)
    execution = await docket.add("greet")("ann")
    await finish(worker)
    assert await execution.get_result() == "hello ann"


async def test_a_task_added_by_an_alias_carries_it(docket: Docket, worker: Worker):
    seen: list[str] = []

    async def named(execution: Execution[Any] = __import__("dovetail").CurrentExecution()) -> None:
        seen.append(execution.function_name)

    docket.register(named, names=["alias"])
    execution = await docket.add("alias")()
    assert execution.function_name == "alias"
    await finish(worker)
    assert seen == ["alias"]


@pytest.mark.parametrize("how", ["add", "replace", "call"])
def test_an_unknown_name_is_refused_before_any_argument_is_given(docket: Docket, how: str):
    ways: dict[str, Callable[[], Any]] = {
        "add": lambda: docket.add("nobody"),
        "replace": lambda: docket.replace("nobody", later(), "k"),
        "call": lambda: docket.call("nobody"),
    }
    with pytest.raises(KeyError, match="'nobody' is not registered") as caught:
        ways[how]()
    assert isinstance(caught.value, UnknownTask)


@pytest.mark.parametrize("how", ["add", "replace", "call"])
def test_a_time_without_a_zone_is_refused(docket: Docket, how: str):
    naive = datetime(2030, 1, 1)  # noqa: DTZ001
    ways: dict[str, Callable[[], Any]] = {
        "add": lambda: docket.add(greet, when=naive),
        "replace": lambda: docket.replace(greet, naive, "k"),
        "call": lambda: docket.call(greet, when=naive),
    }
    with pytest.raises(TypeError, match="when must know its time zone"):
        ways[how]()


async def test_an_argument_that_cannot_be_stored_is_refused_by_name_and_nothing_is_scheduled(docket: Docket):
    docket.register(greet)
    with pytest.raises(PayloadError, match="name"):
        await docket.add("greet")(name=object())
    assert await stored(docket) == 0


@pytest.mark.parametrize(
    "key", ["a'b\"c", "line\nbreak", "tab\tnul\x00", "ключ 🗝", "{brace}", "*?[%_", "x" * 1000, " "]
)
async def test_a_key_is_free_text(docket: Docket, worker: Worker, key: str):
    execution = await docket.add(greet, key=key)("ann")
    await finish(worker)
    found = await docket.get_execution(key)
    assert found is not None
    assert found.key == execution.key == key
    assert await found.get_result() == "hello ann"


async def test_a_higher_priority_goes_first(docket: Docket, make_worker: MakeWorker):
    order: list[str] = []

    async def note(name: str) -> None:
        order.append(name)

    await docket.add(note, priority=-1)("low")
    await docket.add(note)("normal")
    await docket.add(note, priority=5)("high")
    await finish(make_worker(concurrency=1))
    assert order == ["high", "normal", "low"]


async def test_a_worker_takes_only_from_its_queues(docket: Docket, make_worker: MakeWorker):
    mine = await docket.add(greet, queue="mine")()
    other = await docket.add(greet, queue="other")()
    async with at_work(make_worker(queues=("mine",))):
        await soon(mine.get_result())
    await other.sync()
    assert other.state is ExecutionState.QUEUED


# Keys


@pytest.mark.parametrize("first", [None, IN_AN_HOUR], ids=["now", "later"])
@pytest.mark.parametrize("second", [None, IN_AN_HOUR], ids=["now", "later"])
async def test_a_key_that_waits_is_taken(docket: Docket, first: timedelta | None, second: timedelta | None):
    await docket.add(greet, when=None if first is None else later(first), key="k")("first")
    kept_out = await docket.add(count, when=None if second is None else later(second), key="k")(2)
    assert kept_out.disposition is Disposition.ALREADY_SCHEDULED
    (run,) = await runs_of(docket, "k")
    assert run.task == "greet"
    assert run.state is (State.SCHEDULED if first else State.QUEUED)


async def test_one_who_is_kept_out_can_wait_for_the_run_that_holds_the_key(docket: Docket, worker: Worker):
    await docket.add(greet, key="k")("first")
    kept_out = await docket.add(greet, key="k")("second")
    await finish(worker)
    assert await kept_out.get_result() == "hello first"


@pytest.mark.parametrize("ttl", [timedelta(), timedelta(minutes=15)])
async def test_a_key_that_runs_is_taken(docket: Docket, worker: Worker, ttl: timedelta):
    started, release = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        started.set()
        await release.wait()

    docket.execution_ttl = ttl
    await docket.add(hold, key="k")()
    async with at_work(worker):
        await soon(started.wait())
        kept_out = await docket.add(greet, key="k")()
        release.set()
    assert kept_out.disposition is Disposition.ALREADY_SCHEDULED


async def test_a_key_stays_taken_while_a_retry_waits(still: Docket, by_hand: ByHand):
    async def fail(retry: Retry = Retry(attempts=2, delay=IN_AN_HOUR)) -> None:
        raise ValueError

    await still.add(fail, key="k")()
    await by_hand.step()
    assert (await still.add(greet, key="k")()).disposition is Disposition.ALREADY_SCHEDULED


async def fail() -> None:
    raise ValueError("no")


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
async def test_a_key_is_free_once_its_run_is_over(docket: Docket, make_worker: MakeWorker, end: str):
    first = await docket.add(fail if end == "failed" else greet, key="k")()
    if end == "cancelled":
        await docket.cancel("k")
    await finish(make_worker())
    await first.sync()
    assert first.state == end
    again = await docket.add(greet, key="k")("again")
    assert again.disposition is Disposition.SCHEDULED
    await finish(make_worker())
    assert await again.get_result() == "hello again"


async def test_a_key_that_is_used_again_starts_with_a_clean_record(docket: Docket, worker: Worker):
    await docket.add(fail, key="k")()
    await finish(worker)
    await docket.add(greet, when=later(), key="k")()
    found = await docket.get_execution("k")
    assert found is not None
    assert found.state is ExecutionState.SCHEDULED
    assert (found.worker, found.started_at, found.completed_at, found.error) == (None, None, None, None)


async def test_a_finished_record_expires_and_the_waiting_one_does_not(
    still: Docket, by_hand: ByHand, clock: VirtualClock
):
    await still.add(greet, key="old")()
    await by_hand.step()
    await still.add(greet, when=clock.now() + timedelta(days=30), key="new")()
    clock.jump(still.execution_ttl + timedelta(seconds=1))
    await still.engine.sweep()
    assert await still.get_execution("old") is None
    assert await still.get_execution("new") is not None


async def test_dockets_of_different_names_do_not_see_each_other(url: str, make_worker: MakeWorker):
    async with Docket("one", url) as one, Docket("two", url) as two:
        await one.add(greet, key="k")("one")
        assert await two.get_execution("k") is None
        assert (await two.add(greet, key="k")("two")).disposition is Disposition.SCHEDULED
        await two.cancel("k")
        assert await two.clear() == 0
        await finish(make_worker(two))
        assert (await run_of(one, key="k")).state is State.QUEUED
        assert (await run_of(two, key="k")).state is State.CANCELLED


async def test_dockets_of_one_name_share_their_runs(url: str):
    async with Docket("one", url) as one, Docket("one", url) as other:
        await one.add(greet, key="k")()
        assert await other.get_execution("k") is not None


async def test_stores_in_memory_of_different_names_are_apart():
    url = f"memory://{new_id()}"
    async with Docket("one", url) as one, Docket("one", f"{url}/elsewhere") as elsewhere:
        await one.add(greet, key="k")()
        assert await elsewhere.get_execution("k") is None


# Replacing


async def test_replacing_what_waits_changes_function_arguments_and_time(docket: Docket):
    await docket.add(greet, when=later(), key="k")("first")
    when = later(2 * IN_AN_HOUR)
    execution = await docket.replace(count, when, "k")(2)
    assert execution.disposition is Disposition.SCHEDULED
    found = await docket.get_execution("k")
    assert found is not None
    assert (found.function_name, found.args, found.when) == ("count", (2,), when)
    assert len(await runs_of(docket, "k")) == 1


async def test_replacing_nothing_adds(docket: Docket, worker: Worker):
    execution = await docket.replace(greet, later(-IN_AN_HOUR), "k")("ann")
    await finish(worker)
    assert await execution.get_result() == "hello ann"


async def test_many_replaces_leave_one_run_the_last(docket: Docket, worker: Worker):
    executions = [await docket.replace(count, later(-IN_AN_HOUR), "k")(number) for number in range(10)]
    await finish(worker)
    assert len(await runs_of(docket, "k")) == 1
    assert await executions[-1].get_result() == 9


async def test_a_replace_records_no_cancelled_run(docket: Docket):
    await docket.add(greet, key="k")()
    await docket.replace(greet, later(), "k")()
    assert [run.state for run in await runs_of(docket, "k")] == [State.SCHEDULED]


async def test_a_handle_on_what_was_replaced_follows_the_replacement(docket: Docket, worker: Worker):
    first = await docket.add(greet, when=later(), key="k")("first")
    await docket.replace(greet, later(-IN_AN_HOUR), "k")("second")
    waiting = asyncio.create_task(first.get_result())
    await finish(worker)
    assert await soon(waiting) == "hello second"


async def test_replacing_what_runs_lets_it_run_and_waits_beside_it(docket: Docket, worker: Worker):
    started, release = asyncio.Event(), asyncio.Event()

    async def hold() -> str:
        started.set()
        await release.wait()
        return "held"

    held = await docket.add(hold, key="k")()
    async with at_work(worker):
        await soon(started.wait())
        replacement = await docket.replace(greet, later(-IN_AN_HOUR), "k")("beside")
        assert replacement.disposition is Disposition.SCHEDULED
        assert await soon(replacement.get_result()) == "hello beside"
        release.set()
        assert await soon(held.get_result()) == "held"


async def test_a_retry_gives_way_to_what_replaced_its_run(still: Docket, by_hand: ByHand, clock: VirtualClock):
    async def fail_later(retry: Retry = Retry(attempts=5)) -> None:
        await still.replace(greet, clock.now(), "k")("replacement")
        raise ValueError

    failing = await still.add(fail_later, key="k")()
    verdict = await by_hand.attempt()
    assert verdict is not None
    await still.engine.finish([verdict])
    assert [run.task for run in await runs_of(still, "k")] == ["greet"]
    await by_hand.step()
    assert await failing.get_result() == "hello replacement"


# Batches


async def test_a_call_is_data_and_reaches_no_store(docket: Docket):
    when = later()
    call = docket.call(greet, when=when, key="k")("ann")
    assert isinstance(call, TaskCall)
    assert (call.function, call.args, call.kwargs) == (greet, ("ann",), {})
    assert (call.key, call.when, call.function_name) == ("k", when, "greet")
    assert docket.tasks["greet"] is greet
    assert await stored(docket) == 0


async def test_a_call_without_a_key_gets_a_fresh_one_so_that_it_can_be_sent_again(docket: Docket):
    call = docket.call(greet)("ann")
    first, second = await docket.add_many([call]), await docket.add_many([call])
    assert first[0].key == second[0].key == call.key
    assert await stored(docket) == 1


@pytest.mark.parametrize("how", ["add_many", "replace_many"])
async def test_a_call_can_be_used_again_once_its_run_is_over(docket: Docket, make_worker: MakeWorker, how: str):
    calls: list[int] = []

    async def note() -> None:
        calls.append(1)

    call = docket.call(note, when=later(-IN_AN_HOUR), key="k")()
    for _ in range(2):
        await getattr(docket, how)([call])
        await finish(make_worker())
    assert calls == [1, 1]


@pytest.mark.parametrize("chunk_size", [1, 3, 10, 1000, None])
async def test_many_are_added_in_the_order_given(docket: Docket, make_worker: MakeWorker, chunk_size: int | None):
    calls = [docket.call(count, key=f"k{number}")(number) for number in range(10)]
    executions = await docket.add_many(calls, chunk_size=chunk_size)
    assert [execution.key for execution in executions] == [f"k{number}" for number in range(10)]
    assert {execution.disposition for execution in executions} == {Disposition.SCHEDULED}
    await finish(make_worker(concurrency=3))
    assert [await execution.get_result() for execution in executions] == list(range(10))


async def test_many_start_in_the_order_given_whether_they_have_a_key_or_not(docket: Docket, make_worker: MakeWorker):
    started: list[int] = []

    async def note(number: int) -> None:
        started.append(number)

    keys = [None, "b", None, None, "e", "f"]
    await docket.add_many([docket.call(note, key=key)(number) for number, key in enumerate(keys)])
    await finish(make_worker(concurrency=1))
    assert started == [0, 1, 2, 3, 4, 5]


async def test_a_call_whose_key_is_taken_stands_for_the_run_that_holds_it(docket: Docket, make_worker: MakeWorker):
    held = await docket.add(count, key="k")(1)
    parent = docket.call(count, key="k")(2)
    _, child = await docket.add_many([parent, docket.call(count)(result_of(parent))])
    await finish(make_worker())
    assert await child.get_result() == await held.get_result() == 1


async def test_a_chunk_is_one_round_trip(docket: Docket):
    faults = behind_a_door(docket)
    await docket.add_many([docket.call(count)(number) for number in range(10)], chunk_size=4)
    assert faults.calls["schedule"] == 3


async def test_a_handle_on_the_run_that_holds_a_key_shows_its_state(docket: Docket, make_worker: MakeWorker):
    states: list[ExecutionState] = []

    async def once_more() -> None:
        states.append((await docket.add(greet, key="k")()).state)

    await docket.add(once_more, key="k")()
    states.append((await docket.add(greet, key="k")()).state)
    await finish(make_worker())
    assert states == [ExecutionState.QUEUED, ExecutionState.RUNNING]


async def test_in_a_batch_the_first_of_a_key_wins(docket: Docket):
    executions = await docket.add_many([docket.call(count, key="k")(number) for number in range(3)])
    assert [execution.disposition for execution in executions] == [
        Disposition.SCHEDULED,
        Disposition.ALREADY_SCHEDULED,
        Disposition.ALREADY_SCHEDULED,
    ]
    found = await docket.get_execution("k")
    assert found is not None
    assert found.args == (0,)


async def test_in_a_batch_of_replaces_the_last_of_a_key_wins(docket: Docket):
    calls = [docket.call(count, when=later(), key="k")(number) for number in range(3)]
    executions = await docket.replace_many(calls)
    assert {execution.disposition for execution in executions} == {Disposition.SCHEDULED}
    found = await docket.get_execution("k")
    assert found is not None
    assert found.args == (2,)
    assert len(await runs_of(docket, "k")) == 1


@pytest.mark.parametrize("chunk_size", [0, -1])
@pytest.mark.parametrize("how", ["add_many", "replace_many"])
async def test_a_chunk_holds_at_least_one_even_if_there_is_nothing_to_add(docket: Docket, how: str, chunk_size: int):
    with pytest.raises(ValueError, match="chunk_size"):
        await getattr(docket, how)([], chunk_size=chunk_size)


@pytest.mark.parametrize("how", ["add_many", "replace_many"])
async def test_nothing_to_add_adds_nothing(docket: Docket, how: str):
    assert await getattr(docket, how)([]) == []


async def test_a_batch_may_come_from_a_generator(docket: Docket):
    assert len(await docket.add_many(docket.call(count)(number) for number in range(5))) == 5


async def test_a_call_that_cannot_be_stored_leaves_none_of_its_batch_behind(docket: Docket):
    docket.register(greet)
    with pytest.raises(PayloadError):
        await docket.add_many([docket.call("greet")("fine"), docket.call("greet")(object())])
    assert await stored(docket) == 0


async def test_a_large_batch_is_added_whole(docket: Docket):
    executions = await docket.add_many(docket.call(count)(number) for number in range(2500))
    assert len({execution.key for execution in executions}) == 2500
    assert (await docket.snapshot()).total_tasks == 2500


async def test_a_ready_made_execution_can_be_scheduled(docket: Docket, worker: Worker):
    execution = Execution[str](docket, greet, ("ann",), {}, "ready-made", later(-IN_AN_HOUR))
    docket.register(greet)
    await docket.schedule(execution)
    assert execution.disposition is Disposition.SCHEDULED
    again = Execution[str](docket, greet, ("bob",), {}, "ready-made", later(-IN_AN_HOUR))
    await docket.schedule(again)
    assert again.disposition is Disposition.ALREADY_SCHEDULED
    await finish(worker)
    assert await execution.get_result() == "hello ann"


# Cancelling


@pytest.mark.parametrize("delay", [None, IN_AN_HOUR], ids=["queued", "scheduled"])
async def test_what_waits_is_cancelled_and_never_runs(docket: Docket, worker: Worker, delay: timedelta | None):
    ran: list[bool] = []

    async def run() -> None:
        ran.append(True)

    execution = await docket.add(run, when=None if delay is None else later(delay), key="k")()
    await docket.cancel("k")
    await finish(worker)
    await execution.sync()
    assert execution.state is ExecutionState.CANCELLED
    assert execution.completed_at is not None
    assert ran == []


@pytest.fixture
async def running(docket: Docket, worker: Worker) -> AsyncIterator[tuple[Execution[Any], asyncio.Event]]:
    """A run in progress, and the event that lets it end."""
    started, release = asyncio.Event(), asyncio.Event()

    async def hold() -> str:
        started.set()
        await release.wait()
        return "held"

    execution = await docket.add(hold, key="held")()
    faults = behind_a_door(docket)
    async with at_work(worker):
        await soon(started.wait())
        await faults.reached("heartbeat", 1)
        yield execution, release
        release.set()


async def test_what_runs_is_cancelled(docket: Docket, running: tuple[Execution[Any], asyncio.Event]):
    execution, _ = running
    await docket.cancel("held")
    with pytest.raises(Exception, match="was cancelled"):
        await soon(execution.get_result())
    assert execution.state is ExecutionState.CANCELLED
    assert execution.completed_at is not None


async def test_what_is_over_stays_as_it_is(docket: Docket, worker: Worker):
    execution = await docket.add(greet, key="k")()
    await finish(worker)
    await execution.sync()
    ended = execution.completed_at
    await docket.cancel("k")
    await execution.sync()
    assert (execution.state, execution.completed_at) == (ExecutionState.COMPLETED, ended)


async def test_to_cancel_twice_is_to_cancel_once(still: Docket, clock: VirtualClock):
    execution = await still.add(greet, key="k")()
    await still.cancel("k")
    await execution.sync()
    ended = execution.completed_at
    clock.jump(timedelta(minutes=1))
    await still.cancel("k")
    await execution.sync()
    assert (execution.state, execution.completed_at) == (ExecutionState.CANCELLED, ended)


async def test_to_cancel_an_unknown_key_is_no_error(docket: Docket):
    assert await docket.cancel("nobody") is None  # type: ignore[func-returns-value]


async def test_a_cancelled_run_keeps_its_function_and_arguments(docket: Docket):
    await docket.add(greet, key="k")("ann")
    await docket.cancel("k")
    found = await docket.get_execution("k")
    assert found is not None
    assert (found.function_name, found.args) == ("greet", ("ann",))


# Clearing


async def test_clear_cancels_what_waits_and_counts_it(docket: Docket):
    executions = [await docket.add(greet)() for _ in range(2)]
    executions += [await docket.add(greet, when=later())() for _ in range(3)]
    assert await docket.clear() == 5
    for execution in executions:
        await execution.sync()
    assert {execution.state for execution in executions} == {ExecutionState.CANCELLED}


async def test_clear_counts_what_hangs_on_others_too(docket: Docket):
    first = await docket.add(greet)()
    second = await docket.add(greet, after=[first])()
    await docket.add(greet, after=[first, second])()
    assert await docket.clear() == 3


async def test_clear_of_an_empty_docket_is_nothing(docket: Docket):
    assert await docket.clear() == 0


async def test_clear_wakes_those_who_wait_for_results(docket: Docket):
    execution = await docket.add(greet, when=later())()
    waiting = asyncio.create_task(execution.get_result())
    await docket.clear()
    with pytest.raises(Exception, match="was cancelled"):
        await soon(waiting)


async def test_clear_frees_the_keys(docket: Docket):
    await docket.add(greet, key="k\x00\n")()
    await docket.clear()
    assert (await docket.add(greet, key="k\x00\n")()).disposition is Disposition.SCHEDULED


async def test_clear_lets_what_runs_go_on(docket: Docket, running: tuple[Execution[Any], asyncio.Event]):
    execution, release = running
    assert await docket.clear() == 0
    release.set()
    assert await soon(execution.get_result()) == "held"


async def test_clear_lets_a_run_go_on_that_starts_in_the_meantime(docket: Docket, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(steering, "CLEARED_AT_ONCE", 1)
    await docket.add(greet, later())()
    await docket.add(greet, key="k")()
    faults = behind_a_door(docket)

    async def start_it() -> None:
        faults.after.pop("clear", None)
        await docket.engine.claim("meanwhile", 1, lease=timedelta(minutes=1))

    faults.after["clear"] = start_it
    assert await docket.clear() == 1
    run = await run_of(docket, key="k")
    assert (run.state, run.stopping) == (State.RUNNING, False)


async def test_clear_takes_only_the_tasks_and_queues_that_it_is_given(docket: Docket):
    await docket.add(greet, key="one", queue="mail")()
    await docket.add(count, key="two", queue="mail")(2)
    await docket.add(count, key="three")(3)
    assert await docket.clear(tasks=[count], queues=["mail"]) == 1
    assert await docket.clear(tasks=["greet"]) == 1
    assert [each.key for each in (await docket.snapshot()).future] == ["three"]


@pytest.mark.parametrize("wrong", [{"queues": "mail"}, {"tasks": "greet"}, {"queues": [""]}, {"tasks": [""]}])
async def test_clear_refuses_what_names_nothing(docket: Docket, wrong: dict[str, Any]):
    await docket.add(greet)()
    with pytest.raises(DovetailError):
        await docket.clear(**wrong)
    assert (await docket.snapshot()).total_tasks == 1


async def test_clear_says_how_far_it_is(docket: Docket):
    await docket.add_many(docket.call(count)(number) for number in range(2100))
    told: list[int] = []
    await docket.clear(progress=told.append)
    assert told[-1] == 2100
    assert told == sorted(told)
    assert len(told) > 2


async def test_clear_takes_more_than_one_batch(docket: Docket):
    await docket.add_many(docket.call(count)(number) for number in range(2100))
    assert await docket.clear() == 2100
    assert (await docket.snapshot()).total_tasks == 0


async def test_clear_counts_what_is_to_run_beside_a_running_run_of_its_key(
    docket: Docket, running: tuple[Execution[Any], asyncio.Event]
):
    execution, release = running
    await docket.replace(greet, later(), "held")()
    assert await docket.clear() == 1
    release.set()
    assert await soon(execution.get_result()) == "held"


# Records that are not kept


async def test_without_retention_nothing_is_kept_of_a_finished_run(docket: Docket, worker: Worker):
    docket.execution_ttl = timedelta()
    await docket.add(greet, key="done")()
    await docket.add(fail, key="failed")()
    await docket.add(greet, key="cancelled")()
    await docket.cancel("cancelled")
    await finish(worker)
    for key in ("done", "failed", "cancelled"):
        assert await docket.get_execution(key) is None
    assert await stored(docket) == 0


async def test_without_retention_what_waits_has_a_record(docket: Docket):
    docket.execution_ttl = timedelta()
    await docket.add(greet, when=later(), key="k")()
    assert await docket.get_execution("k") is not None


# Reading back


async def test_an_execution_is_found_by_its_key(docket: Docket):
    when = later()
    await docket.add(greet, when=when, key="k")("ann")
    found = await docket.get_execution("k")
    assert found is not None
    assert found.function is greet
    assert (found.args, found.kwargs, found.key, found.when, found.attempt) == (("ann",), {}, "k", when, 1)
    assert found.state is ExecutionState.SCHEDULED
    assert found.disposition is Disposition.LOADED


async def test_an_unknown_key_has_no_execution(docket: Docket):
    assert await docket.get_execution("nobody") is None


async def test_a_run_of_an_unregistered_task_can_be_read(docket: Docket):
    await docket.add(greet, key="k")("ann")
    del docket.tasks["greet"]
    found = await docket.get_execution("k")
    assert found is not None
    assert (found.function_name, found.function.__name__, found.args) == ("greet", "greet", ("ann",))


async def test_a_run_whose_payload_cannot_be_read_can_be_seen_and_cancelled(docket: Docket):
    docket.register(greet)
    await docket.engine.schedule([NewRun(new_id(), "garbled", "greet", b"garbage")])
    found = await docket.get_execution("garbled")
    assert found is not None
    assert found.schedule_exception is not None
    assert len((await docket.snapshot()).future) == 1
    await docket.cancel("garbled")
    assert (await run_of(docket, key="garbled")).state is State.CANCELLED


async def test_of_several_runs_of_a_key_the_newest_is_found(docket: Docket, worker: Worker):
    await docket.add(greet, key="k")("first")
    await finish(worker)
    await docket.add(greet, when=later(), key="k")("second")
    found = await docket.get_execution("k")
    assert found is not None
    assert found.args == ("second",)


async def test_a_snapshot_shows_what_waits_and_what_runs(docket: Docket, running: tuple[Execution[Any], asyncio.Event]):
    before = datetime.now(UTC)
    await docket.add(greet, when=later(), key="future")("ann")
    snapshot = await docket.snapshot()
    assert snapshot.total_tasks == 2
    assert before - timedelta(seconds=1) <= snapshot.taken <= datetime.now(UTC) + timedelta(seconds=1)
    assert [execution.key for execution in snapshot.future] == ["future"]
    (held,) = snapshot.running
    assert (held.worker, held.function_name) == ("worker", "hold")
    assert held.started is not None
    assert held.started == held.started_at
    assert [worker.name for worker in snapshot.workers] == ["worker"]


async def test_a_snapshot_has_no_cap(docket: Docket):
    await docket.add_many(docket.call(count, when=later())(number) for number in range(1500))
    snapshot = await docket.snapshot()
    assert len(snapshot.future) == snapshot.total_tasks == 1500


async def test_a_snapshot_shows_tasks_that_nobody_knows(docket: Docket):
    await docket.add(greet)()
    del docket.tasks["greet"]
    assert [execution.function_name for execution in (await docket.snapshot()).future] == ["greet"]


async def test_a_snapshot_leaves_out_what_is_over(docket: Docket, worker: Worker):
    await docket.add(greet)()
    await finish(worker)
    assert (await docket.snapshot()).total_tasks == 0


# Workers


async def test_a_worker_at_work_is_seen_with_its_tasks(docket: Docket, worker: Worker):
    docket.register(greet, names=["alias"])
    faults = behind_a_door(docket)
    async with at_work(worker):
        await faults.called("heartbeat")
        (seen,) = await docket.workers()
        assert seen.name == "worker"
        assert {"alias", "trace"} <= seen.tasks
        assert seen.last_seen is not None
        assert [each.name for each in await docket.task_workers("alias")] == ["worker"]
        assert await docket.task_workers("unknown") == []


async def test_a_worker_that_stopped_is_gone(docket: Docket, worker: Worker):
    faults = behind_a_door(docket)
    async with at_work(worker):
        await faults.called("heartbeat")
    assert await docket.workers() == []


async def test_nobody_is_at_work_at_first(docket: Docket):
    assert await docket.workers() == []


async def test_a_worker_that_fell_silent_is_no_longer_seen(still: Docket, clock: VirtualClock):
    from dovetail.model import WorkerInfo

    await still.engine.heartbeat(WorkerInfo("silent", id="1"), [], lease=timedelta(seconds=10))
    assert len(await still.workers()) == 1
    clock.jump(still.heartbeat_interval * still.missed_heartbeats + timedelta(seconds=1))
    assert await still.workers() == []


async def test_two_workers_of_one_name_are_both_seen(docket: Docket, make_worker: MakeWorker):
    faults = behind_a_door(docket)
    one, two = make_worker(name="same"), make_worker(name="same")
    async with at_work(one, two):
        await faults.called("heartbeat", 4)
        assert [each.name for each in await docket.workers()] == ["same", "same"]
