"""Threads for plain functions."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from dovetail.worker.threads import Threads


@pytest.fixture
def threads() -> Iterator[Threads]:
    threads = Threads()
    yield threads
    threads.shutdown()


def test_a_call_gives_its_result(threads: Threads):
    assert threads.submit(lambda a, b: a + b, 1, b=2).result(5) == 3


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
def test_a_call_gives_what_it_raised(threads: Threads, error: type[BaseException]):
    def fail() -> None:
        raise error("no")

    assert isinstance(threads.submit(fail).exception(5), error)
    assert threads.submit(lambda: "still here").result(5) == "still here"


def test_calls_run_side_by_side(threads: Threads):
    meeting = threading.Barrier(5)
    calls = [threads.submit(meeting.wait, 5) for _ in range(5)]
    assert sorted(each.result(5) for each in calls) == [0, 1, 2, 3, 4]


def test_a_call_that_does_not_return_keeps_no_other_waiting(threads: Threads):
    release = threading.Event()
    stuck = threads.submit(release.wait, 20)
    assert threads.submit(lambda: "here").result(5) == "here"
    assert not stuck.done()
    release.set()


def test_a_thread_is_started_only_when_it_is_needed(threads: Threads):
    names = {threads.submit(lambda: threading.current_thread().name).result(5) for _ in range(3)}
    assert len(names) <= 2
    assert all(name.startswith("dovetail-task") for name in names)


def test_threads_do_not_keep_a_process_from_ending(threads: Threads):
    assert threads.submit(lambda: threading.current_thread().daemon).result(5)


def test_a_call_that_was_cancelled_in_time_is_not_made(threads: Threads, monkeypatch: pytest.MonkeyPatch):
    unstarted: list[threading.Thread] = []
    made: list[bool] = []
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", lambda self: unstarted.append(self))
        call = threads.submit(made.append, True)
    assert call.cancel()
    for each in unstarted:
        each.start()
    assert threads.submit(lambda: "after").result(5) == "after"
    assert made == []
