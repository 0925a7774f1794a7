"""Threads for plain functions."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from dovetail.worker.threads import Threads


@pytest.fixture
def two() -> Iterator[Threads]:
    threads = Threads(2)
    yield threads
    threads.shutdown()


def test_a_call_gives_its_result(two: Threads):
    assert two.submit(lambda a, b: a + b, 1, b=2).result(5) == 3


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
def test_a_call_gives_what_it_raised(two: Threads, error: type[BaseException]):
    def fail() -> None:
        raise error("no")

    assert isinstance(two.submit(fail).exception(5), error)
    assert two.submit(lambda: "still here").result(5) == "still here"


def test_as_many_run_side_by_side_as_there_are_threads(two: Threads):
    meeting = threading.Barrier(2)
    both = [two.submit(meeting.wait, 5) for _ in range(2)]
    assert sorted(each.result(5) for each in both) == [0, 1]


def test_more_than_there_are_threads_wait_their_turn(two: Threads):
    lock, running, most = threading.Lock(), 0, 0

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.001)
        with lock:
            running -= 1

    for each in [two.submit(work) for _ in range(20)]:
        each.result(5)
    assert most <= 2


def test_a_thread_is_started_only_when_it_is_needed(two: Threads):
    names = {two.submit(lambda: threading.current_thread().name).result(5) for _ in range(3)}
    assert len(names) <= 2
    assert all(name.startswith("dovetail-task") for name in names)


def test_threads_do_not_keep_a_process_from_ending(two: Threads):
    assert two.submit(lambda: threading.current_thread().daemon).result(5)


def test_a_call_that_was_cancelled_in_time_is_not_made():
    threads, release = Threads(1), threading.Event()
    first = threads.submit(release.wait, 5)
    made: list[bool] = []
    second = threads.submit(made.append, True)
    assert second.cancel()
    release.set()
    first.result(5)
    assert threads.submit(lambda: "after").result(5) == "after"
    assert made == []
    threads.shutdown()
