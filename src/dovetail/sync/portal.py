"""The portal: one event loop in a thread of its own, through which all of a process's sync calls go."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from dovetail.errors import EngineUnavailable, UsageError

T = TypeVar("T")

FAREWELL = 5.0
"""Seconds that a process which ends gives to closing what it has open."""

Errand = Callable[[], None]
Outcome = tuple[Any, BaseException | None]
_errands: ContextVar[SimpleQueue[Errand | None]] = ContextVar("dovetail errands of the calling thread")


class Guest(Protocol):
    """Something that is open in the loop, and has to be closed there."""

    async def close(self) -> None: ...


class Portal:
    """Runs coroutines in its loop for threads that wait."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(_Threads(thread_name_prefix="dovetail sync"))
        self.guests: set[Guest] = set()  # only ever touched in the loop
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="dovetail sync", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def call(self, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What the coroutine returns or raises. Meanwhile this thread runs the errands that are its own to run."""
        errands: SimpleQueue[Errand | None] = SimpleQueue()
        running = asyncio.run_coroutine_threadsafe(_captured(start, errands), self._loop)
        running.add_done_callback(lambda _: errands.put(None))
        try:
            while (errand := errands.get()) is not None:
                errand()
            result, error = running.result()
        except CancelledError:
            if self._is_over:
                # Only daemon threads are left by now, and they have nobody to tell: their process ends with them.
                threading.Event().wait()
            raise EngineUnavailable(
                "the docket was closed during the call; what was asked may be done, or not"
            ) from None
        except BaseException:  # Ctrl-C, mostly: nobody waits any more
            running.cancel()
            raise
        if error is not None:
            raise error
        return result

    def post(self, start: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Have a coroutine run, and wait for nothing."""
        with suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(lambda: self._loop.create_task(start(), name="dovetail sync"))

    def close(self) -> None:
        """Close what is open, but never wait long: a process that ends must end."""
        self._is_over = True
        self.post(self._say_farewell)
        self._thread.join(FAREWELL)

    async def _say_farewell(self) -> None:
        try:
            async with asyncio.timeout(FAREWELL / 2):
                await asyncio.gather(*(guest.close() for guest in list(self.guests)), return_exceptions=True)
        except TimeoutError:
            pass  # the server does not answer, and will notice by itself that we are gone
        finally:
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for each in left:
                each.cancel()
            if left:
                await asyncio.wait(left, timeout=1)
            self._loop.stop()


class _Threads(ThreadPoolExecutor):
    """Threads as long as there may be any: once the interpreter is on its way out, no work is given to them."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError:
            done: Future[T] = Future()
            try:
                done.set_result(fn(*args, **kwargs))
            except BaseException as error:
                done.set_exception(error)
            return done


async def _captured(start: Callable[[], Coroutine[Any, Any, T]], errands: SimpleQueue[Errand | None]) -> Outcome:
    """What a coroutine returned, or raised: an event loop takes some exceptions for its own."""
    _errands.set(errands)
    try:
        return await start(), None
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return None, error


async def in_callers_thread(work: Coroutine[Any, Any, T]) -> T:
    """Have the thread that waits for this call do something that does not wait: what it works on belongs there."""
    loop = asyncio.get_running_loop()
    landed: asyncio.Future[T] = loop.create_future()

    def errand() -> None:
        try:
            result = _driven(work)
        except Exception as error:
            loop.call_soon_threadsafe(_fail, landed, error)
        except BaseException:
            loop.call_soon_threadsafe(landed.cancel)
            raise
        else:
            loop.call_soon_threadsafe(_land, landed, result)

    _errands.get().put(errand)
    return await landed


def _land(landed: asyncio.Future[T], result: T) -> None:
    if not landed.done():
        landed.set_result(result)


def _fail(landed: asyncio.Future[Any], error: Exception) -> None:
    if not landed.done():
        landed.set_exception(error)


def _driven(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns that never waits."""
    try:
        work.send(None)
    except StopIteration as ended:
        return ended.value
    work.close()
    raise UsageError("connection= waits for an event loop; the sync Docket takes connections of sync drivers")


class Portals:
    """The portal of this process: made when it is first needed, and never shared with a child made by fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._portal: Portal | None = None
        self._inherited: list[Any] = []
        self._is_over = False
        os.register_at_fork(
            before=self._before_fork, after_in_parent=self._after_fork, after_in_child=self._after_fork_in_child
        )
        atexit.register(self._exit)

    def call(self, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        _refuse_event_loop()
        return self._own().call(start)

    def post(self, start: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Have a coroutine run, if there is still a loop to run it."""
        if self._portal is not None and not self._is_over:
            self._portal.post(start)

    @property
    def guests(self) -> set[Guest]:
        return self._own().guests

    def keep(self, inherited: Any) -> None:
        """Keep what is the parent's, and never touch it: to close it here would close it there."""
        self._inherited.append(inherited)

    def _own(self) -> Portal:
        with self._lock:
            if self._is_over:
                raise EngineUnavailable("the interpreter is about to exit: it is too late to call a docket")
            if self._portal is None:
                self._portal = Portal()
            return self._portal

    def _before_fork(self) -> None:
        self._lock.acquire()

    def _after_fork(self) -> None:
        self._lock.release()

    def _after_fork_in_child(self) -> None:
        self._lock = threading.Lock()
        self._inherited.append(self._portal)
        self._portal = None

    def _exit(self) -> None:
        with self._lock:
            self._is_over = True
            portal = self._portal
        if portal is not None:
            portal.close()


def _refuse_event_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(
        "dovetail.sync.Docket was called in a thread whose event loop is running, and would stop it; use the Docket of"
        " dovetail there, and await its calls"
    )


PORTALS = Portals()
