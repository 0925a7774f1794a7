"""Hooks and middleware: code of the user's around attempts, around scheduling, and at a worker's start and stop.

    class Timing(Middleware):
        async def around_attempt(self, execution, proceed):
            began = time.monotonic()
            try:
                return await proceed()
            finally:
                observe(execution.function_name, time.monotonic() - began)

    docket = Docket(middleware=[Timing()])

    @docket.hooks.on_error
    def report(execution, error): ...

They look on: what one of them raises is logged, and nothing else comes of it. One that is `critical` has a say.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

from dovetail import checks
from dovetail.errors import InvalidType
from dovetail.tasks import TaskCall

if TYPE_CHECKING:
    from dovetail.execution import Execution
    from dovetail.worker import Worker

F = TypeVar("F", bound=Callable[..., Any])

Proceed = Callable[[], Awaitable[Any]]

logger = logging.getLogger("dovetail.middleware")

MOMENTS = {
    "before_attempt": ("execution",),
    "around_attempt": ("execution", "proceed"),
    "after_attempt": ("execution", "result"),
    "on_error": ("execution", "error"),
    "before_enqueue": ("call",),
    "after_enqueue": ("execution",),
    "on_start": ("worker",),
    "on_stop": ("worker",),
}
"""Every hook, and what it is given."""
ATTEMPTS = frozenset({"before_attempt", "around_attempt", "after_attempt", "on_error"})
ENQUEUES = frozenset({"before_enqueue", "after_enqueue"})


class Middleware:
    """The base of middleware. Override what you need, as `def` or as `async def`; a plain one must not block.

    With `critical`, what a hook raises counts: it fails the attempt, `add` raises it, the worker does not start.
    """

    critical: bool = False

    def before_attempt(self, execution: Execution[Any]) -> Any:
        """An attempt is about to begin."""

    async def around_attempt(self, execution: Execution[Any], proceed: Proceed) -> Any:
        """Run the attempt with `await proceed()`, and return what it returns."""
        return await proceed()

    def after_attempt(self, execution: Execution[Any], result: Any) -> Any:
        """The task has returned."""

    def on_error(self, execution: Execution[Any], error: BaseException) -> Any:
        """The attempt has ended in an exception: the task's own, or that by which it was stopped."""

    def before_enqueue(self, call: TaskCall) -> Any:
        """A call is about to be scheduled. A call that is returned is scheduled instead of it."""

    def after_enqueue(self, execution: Execution[Any]) -> Any:
        """A call was scheduled; `execution.disposition` says what came of it."""

    def on_start(self, worker: Worker) -> Any:
        """A worker starts: nothing has been claimed yet."""

    def on_stop(self, worker: Worker) -> Any:
        """A worker has stopped: everything it had in hand is put down."""


class Hook:
    """One moment. A decorator: `@docket.hooks.on_error`, or `@docket.hooks.on_error(critical=True)`."""

    def __init__(self, hooks: Hooks, moment: str) -> None:
        self._hooks = hooks
        self._moment = moment

    @overload
    def __call__(self, function: F, /) -> F: ...
    @overload
    def __call__(self, function: None = None, /, *, critical: bool = False) -> Callable[[F], F]: ...
    def __call__(self, function: Any = None, /, *, critical: bool = False) -> Any:
        checks.truth(critical, "critical")

        def register(function: Any) -> Any:
            _check_hook(function, self._moment)
            self._hooks.put(Layer({self._moment: function}, critical=critical))
            return function

        return register if function is None else register(function)


class Hooks:
    """The hooks and middleware of a docket or a worker, the first around all others."""

    def __init__(self, middleware: Iterable[Middleware] = ()) -> None:
        self.before_attempt = Hook(self, "before_attempt")
        self.around_attempt = Hook(self, "around_attempt")
        self.after_attempt = Hook(self, "after_attempt")
        self.on_error = Hook(self, "on_error")
        self.before_enqueue = Hook(self, "before_enqueue")
        self.after_enqueue = Hook(self, "after_enqueue")
        self.on_start = Hook(self, "on_start")
        self.on_stop = Hook(self, "on_stop")
        self._layers: list[Layer] = []
        # What busy callers ask first: mostly nobody looks on.
        self.around_attempts: tuple[Layer, ...] = ()
        self.around_enqueues: tuple[Layer, ...] = ()
        for each in _checked(middleware):
            self.put(_layer_of(each))

    def add(self, middleware: Middleware) -> None:
        """Put one more inside all others."""
        for each in _checked([middleware]):
            self.put(_layer_of(each))

    def put(self, layer: Layer) -> None:
        self._layers.append(layer)
        self.around_attempts = tuple(each for each in self._layers if not ATTEMPTS.isdisjoint(each.hooks))
        self.around_enqueues = tuple(each for each in self._layers if not ENQUEUES.isdisjoint(each.hooks))

    async def before_enqueues(self, calls: list[TaskCall]) -> list[TaskCall]:
        """The calls as the hooks would have them."""
        return [await _as_wanted(call, self.around_enqueues) for call in calls]

    async def after_enqueues(self, executions: list[Execution[Any]]) -> None:
        for execution in executions:
            for layer in reversed(self.around_enqueues):
                await layer.call("after_enqueue", execution)

    @asynccontextmanager
    async def lifetime(self, worker: Worker) -> AsyncGenerator[None]:
        """A worker's life, from its start to its stop."""
        async with AsyncExitStack() as stack:
            for layer in self._layers:
                await layer.call("on_start", worker)
                stack.push_async_callback(layer.call, "on_stop", worker)
            yield


async def attempt(layers: Sequence[Layer], execution: Execution[Any], body: Proceed) -> Any:
    """Run an attempt inside all layers: the first is the outermost."""
    proceed = body
    for layer in reversed(layers):
        proceed = partial(layer.attempt, execution, proceed)
    return await proceed()


class Layer:
    """The hooks of one middleware."""

    __slots__ = ("critical", "hooks")

    def __init__(self, hooks: dict[str, Callable[..., Any]], *, critical: bool) -> None:
        self.hooks = hooks
        self.critical = critical

    async def call(self, moment: str, *values: Any) -> Any:
        """Call a hook, if there is one. What it raises is told, and raised only if it is critical."""
        hook = self.hooks.get(moment)
        if hook is None:
            return None
        try:
            said = hook(*values)
            return await said if inspect.isawaitable(said) else said
        except BaseException as error:
            if self.critical or not _is_its_own(error, moment):
                raise
            self._tell(moment, error)
            return None

    async def attempt(self, execution: Execution[Any], proceed: Proceed) -> Any:
        await self.call("before_attempt", execution)
        try:
            result = await self._around(execution, proceed)
        except BaseException as error:
            await self.call("on_error", execution, error)
            raise
        await self.call("after_attempt", execution, result)
        return result

    async def _around(self, execution: Execution[Any], proceed: Proceed) -> Any:
        around = self.hooks.get("around_attempt")
        if around is None:
            return await proceed()
        inner = _Once(proceed)
        try:
            result = await around(execution, inner)
        except BaseException as error:
            if self.critical or error is inner.error or not _is_its_own(error, "around_attempt"):
                raise
            self._tell("around_attempt", error)
        else:
            if self.critical:
                return result
        # Whoever only looks on neither keeps the task from running nor changes what came of it.
        return await inner()

    def _tell(self, moment: str, error: BaseException) -> None:
        name = getattr(self.hooks[moment], "__qualname__", self.hooks[moment])
        logger.error("the %s hook %s failed; nothing else comes of it", moment, name, exc_info=error)


def _is_its_own(error: BaseException, moment: str) -> bool:
    """Whether a hook raised this by itself, as against the attempt that is stopped, or the program that ends."""
    if isinstance(error, Exception):
        return True
    if moment not in ATTEMPTS:
        return False
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() == 0
    return isinstance(error, SystemExit)


class _Once:
    """The rest of an attempt, run once however often it is asked for."""

    def __init__(self, proceed: Proceed) -> None:
        self._proceed = proceed
        self._is_over = False
        self._result: Any = None
        self.error: BaseException | None = None

    async def __call__(self) -> Any:
        if not self._is_over:
            self._is_over = True
            try:
                self._result = await self._proceed()
            except BaseException as error:
                self.error = error
        if self.error is not None:
            raise self.error
        return self._result


async def _as_wanted(call: TaskCall, layers: Sequence[Layer]) -> TaskCall:
    for layer in layers:
        said = await layer.call("before_enqueue", call)
        if isinstance(said, TaskCall):
            call = said
    return call


def _layer_of(middleware: Middleware) -> Layer:
    own = {name for name in MOMENTS if getattr(type(middleware), name) is not getattr(Middleware, name)}
    hooks = {name: getattr(middleware, name) for name in MOMENTS if name in own}
    for name, hook in hooks.items():
        _check_hook(hook, name)
    return Layer(hooks, critical=middleware.critical)


def _checked(middleware: Any) -> list[Middleware]:
    members = checks.members(middleware, "middleware must be a list of Middleware", but=(Middleware, type))
    for each in members:
        if not isinstance(each, Middleware):
            hint = "; make one of it: call it" if isinstance(each, type) else ""
            raise InvalidType(f"each of middleware must be a Middleware, not {each!r}{hint}")
    return members


def _check_hook(function: Any, moment: str) -> None:
    given = MOMENTS[moment]
    if not callable(function):
        raise InvalidType(f"the {moment} hook must be a function, not {function!r}")
    if moment == "around_attempt" and not inspect.iscoroutinefunction(function):
        raise InvalidType(f"the around_attempt hook must be async, since it awaits proceed(); {function!r} is not")
    try:
        inspect.signature(function).bind(*given)
    except TypeError:
        raise InvalidType(
            f"the {moment} hook is called with ({', '.join(given)}), and {function!r} does not take that"
        ) from None
    except ValueError:
        return  # a built-in that does not say what it takes
