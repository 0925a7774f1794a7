"""Hints between processes: heard at once, lost without harm, and no trouble to those who do not listen."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dovetail.clock import VirtualClock
from dovetail.engines.sqlite import SqliteEngine, doorbell, session
from dovetail.engines.sqlite.doorbell import Listener, Neighbours, bells_of
from dovetail.model import Event, EventKind, Hold, HoldKind, ProgressReport, State, Topic, new_id
from dovetail.testing.conformance.vocabulary import a_run, all_runs, complete, keys, place, start_one, take
from tests.engines.sqlite.words import Opened, Program, mode_of, rung, url_of
from tests.waiting import PATIENCE, soon

WORK, STATE = Topic(EventKind.WORK), Topic(EventKind.STATE)

# A program that listens and says what it hears.
LISTENER = """
doorbell.POLL = 3600.0  # it hears of what is rung for, and does not look by itself
async def main():
    topics = [Topic(EventKind(kind), key or None) for kind, _, key in (text.partition("=") for text in sys.argv[3:])]
    async with engine_at(sys.argv[1]) as engine, engine.watch(*topics) as events:
        say("listening")
        for _ in range(int(sys.argv[2])):
            event = await anext(events)
            say(event.kind.value, event.key or "-", event.state.value if event.state else "-")
asyncio.run(main())
"""


def listening(stack: ExitStack, path: Path, times: int, *topics: str) -> Program:
    program = stack.enter_context(Program(LISTENER, url_of(path), times, *topics))
    assert program.line() == "listening"
    return program


async def heard(events: AsyncIterator[Event]) -> Event:
    return await soon(anext(events))


async def heard_next(events: AsyncIterator[Event]) -> list[Event]:
    """All that is heard in a while from now."""
    found: list[Event] = []
    try:
        async with asyncio.timeout(0.3):
            while True:
                found.append(await anext(events))
    except TimeoutError:
        return found


# Another process


async def test_another_process_hears_at_once_that_there_is_work(engine: SqliteEngine, path: Path) -> None:
    with ExitStack() as stack:
        await assert_heard(engine, listening(stack, path, 5, "work"))


async def assert_heard(engine: SqliteEngine, listener: Program) -> None:
    """Each of five requests is heard before the next: by the bell, since this listener does not look by itself."""
    for n in range(5):
        await place(engine, a_run(f"{n}"))
        assert (await asyncio.to_thread(listener.line)).split()[0] == "work"
    assert await asyncio.to_thread(listener.rest) == []


async def test_another_process_hears_every_kind_of_event(engine: SqliteEngine, path: Path) -> None:
    with ExitStack() as stack:
        listener = listening(stack, path, 5, "work", "stop", "holds", "progress")
        claim = await start_one(engine, a_run("a"))
        await engine.report([ProgressReport("a", increment=1)])
        await engine.cancel(["a"])
        await engine.hold([Hold(HoldKind.PAUSE, queue="other")])
        said = [line.split()[0] for line in await asyncio.to_thread(listener.rest)]
        assert claim
    assert sorted(said) == ["holds", "progress", "stop", "work", "work"]


async def test_another_process_hears_of_the_keys_it_asked_for(engine: SqliteEngine, path: Path) -> None:
    with ExitStack() as stack:
        listener = listening(stack, path, 3, "state=mine")
        await place(engine, a_run("other"), a_run("mine"))
        await complete(engine, *await take(engine, 2))
        said = [tuple(line.split()) for line in await asyncio.to_thread(listener.rest)]
    assert said == [("state", "mine", state) for state in ("queued", "running", "completed")]


async def test_several_processes_hear_the_same(engine: SqliteEngine, path: Path) -> None:
    with ExitStack() as stack:
        listeners = [listening(stack, path, 1, "work") for _ in range(2)]
        assert len(rung(path)) == 2
        await place(engine, a_run("a"))
        for listener in listeners:
            assert len(await asyncio.to_thread(listener.rest)) == 1


async def test_a_listener_that_was_killed_is_forgotten(engine: SqliteEngine, path: Path) -> None:
    with ExitStack() as stack:
        listening(stack, path, 1, "work")
        assert len(rung(path)) == 1
    await place(engine, a_run("a"))
    await settled(engine)
    assert rung(path) == []


async def settled(engine: SqliteEngine) -> None:
    """A writer rings after it has answered: its next answer comes after that."""
    await engine.lift([])


# The same process


@pytest.fixture
def never_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener that looks for itself would hear twice."""
    monkeypatch.setattr(doorbell, "POLL", 3600.0)


@pytest.mark.usefixtures("never_polls")
async def test_a_writer_of_the_same_process_is_heard_once(engine: SqliteEngine) -> None:
    async with engine.watch(WORK) as events:
        await place(engine, a_run("a"))
        assert (await heard(events)).kind is EventKind.WORK
        assert await heard_next(events) == []


@pytest.mark.usefixtures("never_polls")
async def test_a_writer_on_another_lane_is_heard_once(engine: SqliteEngine) -> None:
    async with engine.twin() as twin, engine.watch(STATE) as events:
        await place(twin, a_run("a"))
        assert (await heard(events)).key == "a"
        assert await heard_next(events) == []


@pytest.mark.usefixtures("never_polls")
async def test_another_docket_of_the_file_is_not_heard(opened: Opened) -> None:
    engine, other = await opened(), await opened(docket="other", lane="other")
    async with engine.watch(WORK, STATE) as events:
        await place(other, a_run("a"))
        assert await heard_next(events) == []


async def test_without_a_listener_no_event_is_even_made(
    engine: SqliteEngine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Event:
        raise AssertionError("an event was made")

    monkeypatch.setattr(session, "Event", refuse)
    await complete(engine, await start_one(engine, a_run("a")))
    await place(engine, a_run("b"))
    await engine.cancel(["b"])
    assert not bells_of(path).exists()


async def test_events_that_only_another_kind_of_listener_wants_are_not_made(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Event:
        raise AssertionError("an event was made")

    async with engine.watch(WORK) as events:
        monkeypatch.setattr(session, "Event", refuse)
        await complete(engine, await start_one(engine, a_run("a")))
        assert (await heard(events)).kind is EventKind.WORK


# The folder of bells


async def test_the_end_of_its_name_says_what_a_listener_wants(engine: SqliteEngine, path: Path) -> None:
    async with engine.watch(WORK):
        (name,) = rung(path)
        assert name.endswith(".w")
        async with engine.watch(STATE, Topic(EventKind.STOP)):
            assert [each.rpartition(".")[2] for each in rung(path)] == ["swx"]
        assert rung(path) == [name]
    assert [each.rpartition(".")[2] for each in rung(path)] == [""]


async def test_a_listener_is_heard_under_its_new_name(engine: SqliteEngine) -> None:
    async with engine.twin() as twin, engine.watch(WORK) as work:
        await place(twin, a_run("a"))
        assert await heard(work)
        async with engine.watch(STATE) as states:
            await place(twin, a_run("b"))
            assert (await heard(states)).key == "b"
            assert await heard(work)
        await place(twin, a_run("c"))
        assert await heard(work)


async def test_the_folder_goes_with_the_last_listener(path: Path, clock: VirtualClock) -> None:
    first, second = [
        SqliteEngine(url_of(path), "tests", clock=clock, durability="process", lane=lane) for lane in ("one", "other")
    ]
    async with first:
        async with second, first.watch(WORK), second.watch(WORK):
            assert len(rung(path)) == 2
        assert len(rung(path)) == 1
    assert not bells_of(path).exists()


@asynccontextmanager
async def bell(path: Path, name: str = "1-stranger.w") -> AsyncIterator[socket.socket]:
    """A socket in the folder of bells, as another process would have one."""
    bells_of(path).mkdir(mode=0o700, exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(str(bells_of(path) / name))
        yield bound


async def test_a_bell_that_nobody_answers_is_removed(engine: SqliteEngine, path: Path) -> None:
    async with bell(path):
        pass
    assert rung(path) == ["1-stranger.w"]
    await place(engine, a_run("a"))
    await settled(engine)
    assert rung(path) == []


async def test_a_bell_that_is_full_loses_hints_and_nothing_else(engine: SqliteEngine, path: Path) -> None:
    async with bell(path) as full:
        for n in range(700):
            await place(engine, a_run(f"{n}"))
        await settled(engine)
        assert rung(path) == ["1-stranger.w"]
        full.setblocking(False)
        assert full.recv(1000)
    assert len(await all_runs(engine)) == 700


async def test_a_hint_that_is_too_large_is_sent_in_parts(engine: SqliteEngine, path: Path) -> None:
    async with bell(path, "1-stranger.s") as states:
        await engine.schedule([a_run(f"{n:0500}") for n in range(300)])
        await settled(engine)
        states.setblocking(False)
        received = messages(states)
    assert len(received) > 1
    assert all(len(message) <= doorbell.LARGEST for message in received)


def messages(bound: socket.socket) -> list[bytes]:
    found: list[bytes] = []
    while True:
        try:
            found.append(bound.recv(1_000_000))
        except BlockingIOError:
            return found


@pytest.mark.parametrize(
    "noise",
    [
        b"",
        b"\x00",
        b"nonsense",
        b"[]",
        b"[1,[{}]]",
        b'["1",[]]',
        b"\xff" * 100,
        b'[1,[{"kind":"dance"}]]',
        bytes(90_000),
    ],
)
async def test_a_listener_is_deaf_to_noise(engine: SqliteEngine, path: Path, noise: bytes) -> None:
    async with engine.watch(WORK) as events:
        (name,) = rung(path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
            stranger.sendto(noise, str(bells_of(path) / name))
        async with engine.twin() as twin:
            await place(twin, a_run("a"))
        assert await heard(events)


# Trouble with the folder


async def test_a_folder_that_vanishes_while_it_is_looked_at_harms_nobody(
    engine: SqliteEngine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last listener removes it, at any moment."""
    bells_of(path).mkdir()

    def vanish(folder: str | Path = ".") -> list[str]:
        raise FileNotFoundError(errno.ENOENT, "gone", str(folder))

    with monkeypatch.context() as patched:
        patched.setattr(doorbell.os, "listdir", vanish)
        await soon(place(engine, a_run("a")))
        await soon(settled(engine))
    await soon(place(engine, a_run("b")))
    assert keys(await all_runs(engine)) == ["a", "b"]


async def a_file_in_its_place(bells: Path) -> None:
    bells.write_text("not a folder")


async def a_folder_among_the_bells(bells: Path) -> None:
    (bells / "stray.w").mkdir(parents=True)


async def a_file_among_the_bells(bells: Path) -> None:
    bells.mkdir()
    (bells / "stray.w").write_text("not a socket")


async def a_name_that_no_socket_can_have(bells: Path) -> None:
    bells.mkdir()
    (bells / f"{'x' * 200}.w").touch()


@pytest.mark.parametrize(
    "trouble", [a_file_in_its_place, a_folder_among_the_bells, a_file_among_the_bells, a_name_that_no_socket_can_have]
)
async def test_whatever_is_found_among_the_bells_runs_are_kept(
    engine: SqliteEngine, path: Path, trouble: Callable[[Path], Any]
) -> None:
    await trouble(bells_of(path))
    await soon(place(engine, a_run("a")))
    await soon(place(engine, a_run("b")))
    async with engine.watch(WORK) as events:
        await soon(place(engine, a_run("c")))
        await heard(events)
    assert keys(await all_runs(engine)) == ["a", "b", "c"]


async def test_a_bell_that_cannot_be_rung_for_now_is_not_removed(path: Path) -> None:
    class Busy:
        def sendto(self, *_: object) -> None:
            raise OSError(errno.ENOBUFS, "no buffer space")

        def close(self) -> None: ...

    async with bell(path):
        neighbours = Neighbours(bells_of(path))
        neighbours._socket = Busy()  # type: ignore[assignment]
        neighbours.ring(1, [Event(EventKind.WORK)])
        assert rung(path) == ["1-stranger.w"]


# Where the path is too long for a socket


@pytest.fixture
def far(folder: Path) -> Iterator[Path]:
    """A file beside which no socket can have a name."""
    deep = folder / ("deep" * 20)
    deep.mkdir()
    yield deep / "store.db"
    assert not bells_of(deep / "store.db").exists()


async def test_bells_that_would_have_too_long_a_name_are_elsewhere(opened: Opened, far: Path) -> None:
    engine = await opened(far)
    async with engine.watch(WORK):
        assert len(rung(far)) == 1
        assert bells_of(far).parent == Path(tempfile.gettempdir())
        assert mode_of(bells_of(far)) == 0o700
    await engine.__aexit__()


def test_bells_elsewhere_are_the_same_for_everyone_and_others_for_other_files(far: Path) -> None:
    assert bells_of(far.parent / ".." / far.parent.name / far.name) == bells_of(far)
    assert bells_of(far.with_name("other.db")) != bells_of(far)


async def test_bells_elsewhere_are_heard_by_another_process(opened: Opened, far: Path) -> None:
    engine = await opened(far)
    with ExitStack() as stack:
        await assert_heard(engine, listening(stack, far, 5, "work"))


async def test_a_folder_of_somebody_else_is_not_rung_in(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events tell of keys and errors. A stranger could put a folder where ours would be, and listen."""
    async with bell(path, "1-stranger.s") as stranger:
        owner = bells_of(path).stat().st_uid
        monkeypatch.setattr(os, "getuid", lambda: owner + 1)
        neighbours = Neighbours(bells_of(path))
        neighbours.ring(1, [Event(EventKind.STATE, "secret")])
        neighbours.close()
        stranger.setblocking(False)
        assert messages(stranger) == []


async def test_a_link_in_the_place_of_the_folder_is_not_followed(
    engine: SqliteEngine, path: Path, folder: Path
) -> None:
    (folder / "precious").mkdir()
    (folder / "precious" / "notes.sh").write_text("mine")
    bells_of(path).symlink_to(folder / "precious")
    async with engine.watch(STATE):
        async with engine.twin() as twin:
            await place(twin, a_run("a"))
            await settled(twin)
        assert [file.name for file in (folder / "precious").iterdir()] == ["notes.sh"]


async def test_what_is_no_bell_is_left_alone(engine: SqliteEngine, path: Path) -> None:
    bells_of(path).mkdir()
    (bells_of(path) / "notes.sh").write_text("mine")
    await place(engine, a_run("a"))
    await settled(engine)
    assert rung(path) == ["notes.sh"]


# Where there can be no bell


@pytest.fixture
def bell_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """No path is short enough for a socket."""
    monkeypatch.setattr(doorbell, "LONGEST_PATH", 10)


@pytest.mark.usefixtures("bell_less")
async def test_without_bells_a_process_still_hears_itself(opened: Opened, path: Path) -> None:
    engine = await opened()
    async with engine.watch(STATE) as events:
        assert rung(path) == []
        await place(engine, a_run("a"))
        event = await heard(events)
        while event.state is None:  # a hint without news, from looking at the file
            event = await heard(events)
        assert event.state is State.QUEUED


@pytest.mark.usefixtures("bell_less")
@pytest.mark.parametrize("kind", EventKind)
async def test_without_bells_a_change_is_still_noticed(opened: Opened, kind: EventKind) -> None:
    engine, other = await opened(), await opened(lane="other")
    async with engine.watch(Topic(kind)) as events:
        for key in ("a", "b"):
            await place(other, a_run(key))
            assert (await heard(events)).kind is kind


@pytest.mark.usefixtures("bell_less")
async def test_without_bells_a_change_is_noticed_from_the_first_moment(opened: Opened) -> None:
    engine, other = await opened(), await opened(lane="other")
    async with engine.watch(WORK) as events:
        await place(other, a_run("a"))
        assert (await heard(events)).kind is EventKind.WORK


async def test_a_hint_that_was_lost_is_made_up_for(
    engine: SqliteEngine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doorbell, "POLL", 0.05)
    async with engine.twin() as twin, engine.watch(WORK) as events:
        monkeypatch.setattr(Neighbours, "ring", lambda *_: None)
        await place(twin, a_run("a"))
        assert await heard(events)


def test_a_listener_that_cannot_look_once_looks_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorbell, "POLL_WITHOUT_BELL", 0.01)
    answers = iter([OSError("not now"), True])
    found: list[Event] = []
    has_looked = threading.Event()

    def note(_: object, events: Sequence[Event]) -> None:
        found.extend(events)
        has_looked.set()

    class Look:
        def since_last_asked(self) -> bool:
            answer = next(answers, False)
            if isinstance(answer, Exception):
                raise answer
            return answer

        def open(self) -> None:
            pass

        def close(self) -> None:
            pass

    listener = Listener(path / "nowhere" / new_id(), note, Look())
    listener.start(frozenset({EventKind.WORK}))
    assert has_looked.wait(PATIENCE)
    listener.stop()
    assert EventKind.WORK in [event.kind for event in found]


async def test_a_watch_that_is_cancelled_while_it_begins_leaves_no_watcher(monkeypatch: pytest.MonkeyPatch):
    async with SqliteEngine(f"memory://{new_id()}", "tests", clock=VirtualClock()) as engine:
        store = engine._opened()  # pyright: ignore[reportPrivateUsage]
        begun, go_on = asyncio.Event(), threading.Event()
        loop, register = asyncio.get_running_loop(), store.watch

        def slowly(watcher: Any) -> None:
            loop.call_soon_threadsafe(begun.set)
            go_on.wait(PATIENCE)
            register(watcher)

        async def watch() -> None:
            async with engine.watch(WORK):
                raise AssertionError("it was cancelled before")

        monkeypatch.setattr(store, "watch", slowly)
        watching = asyncio.create_task(watch())
        await begun.wait()
        watching.cancel()
        go_on.set()
        await asyncio.wait([watching])
        assert watching.cancelled()
        assert not store._watchers  # pyright: ignore[reportPrivateUsage]
