"""Threads for plain functions. Unlike the standard pool's, they do not keep a process from ending: a worker that is out
of time hands its runs back and goes, and a function that will not return goes with it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_Job = Callable[[], None]


class Threads(Executor):
    """Daemon threads, one more whenever all are busy. Whoever submits bounds their number: a function that was given up
    still has its thread, and must not keep the next one waiting."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._started = 0
        self._idle = 0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()

        def job() -> None:
            _perform(future, fn, args, kwargs)

        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                self._started += 1
                threading.Thread(target=self._work, name=f"dovetail-task-{self._started}", daemon=True).start()
        self._jobs.put(job)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the threads end once they have nothing to do. Nobody waits for them."""
        for _ in range(self._started):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            with self._lock:
                self._idle += 1


def _perform(future: Future[T], call: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call(*args, **kwargs)
    except BaseException as error:  # whoever waits for it is told
        future.set_exception(error)
    else:
        future.set_result(result)
