"""The performer: runs bodies in this process, one at a time, on its main thread."""

from __future__ import annotations

import asyncio
import contextvars
import pickle
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from importlib import import_module
from inspect import iscoroutine
from typing import Any, NoReturn, cast

from uncalled_for import SharedContext

from dovetail.behaviors import Attempt, Behavior
from dovetail.behaviors.base import Host
from dovetail.behaviors.cron import slot_of
from dovetail.clock import SYSTEM_CLOCK, from_microseconds
from dovetail.errors import UsageError
from dovetail.execution import Execution
from dovetail.injection import ask_to_stop, current_docket, current_execution, current_worker
from dovetail.injection.quick import quick_dependencies
from dovetail.model import State
from dovetail.observe.tracing import go_on_within
from dovetail.tasks import Task
from dovetail.tasks.crossing import located
from dovetail.worker.hooks import Hooks
from dovetail.worker.processes import errors
from dovetail.worker.processes.letters import Order, Raised, Returned, Told
from dovetail.worker.setting import Setting, still_asked

Say = Callable[[Any], None]


class Performer:
    """Carries out orders. Dependencies are resolved here, on an event loop of this process, as are `async def` bodies;
    what is `Shared` is shared by the runs of this process."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._runner = asyncio.Runner()
        self._home = contextvars.copy_context()
        self._shared = SharedContext()
        self._awaited: asyncio.Task[Any] | None = None
        self._is_in_body = False
        self._ask_to_stop: Callable[[], bool] = lambda: False
        self.is_at_work = False
        self.is_interrupted = False
        self._run(self._shared.__aenter__(), self._home)

    def perform(self, order: Order) -> Returned | Raised:
        """How a body ended; whatever it does, this does not raise."""
        self.is_at_work = True
        play = Play(order, self._say)
        try:
            result = self._perform(play)
        except BaseException as error:
            return errors.put(error, play.changes())
        finally:
            self.is_at_work = False
        try:
            return Returned(pickle.dumps(result, pickle.HIGHEST_PROTOCOL), None, play.changes())
        except Exception as error:
            trouble = f"the result of {order.claim.task!r} cannot be sent from the process of the run: {error}"
            return Returned(None, trouble, play.changes())

    def _perform(self, play: Play) -> Any:
        context = self._home.copy()
        error: BaseException | None = None
        try:
            call = self._run(play.set_up(), context)
            self._ask_to_stop = partial(context.copy().run, ask_to_stop)
            self._is_in_body = True
            result = context.run(call)
            self._is_in_body = False
            return self._run(result, context) if iscoroutine(result) else result
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._is_in_body = False
            if play.setting is not None and play.setting.has_to_come_down:
                self._run(play.setting.down(error), context)

    def _run(self, work: Coroutine[Any, Any, Any], context: contextvars.Context) -> Any:
        return self._runner.run(self._await(work), context=context)

    async def _await(self, work: Coroutine[Any, Any, Any]) -> Any:
        self._awaited = asyncio.current_task()
        try:
            return await work
        finally:
            self._awaited = None

    def interrupt(self, *_: object) -> None:
        """End the body, as far as it lets itself be ended: raise in the midst of it, or cancel it if it is async. This
        is the handler of a signal."""
        self.is_interrupted = True
        self._ask_to_stop()
        awaited = self._awaited
        if awaited is not None:
            awaited.get_loop().call_soon_threadsafe(awaited.cancel)
        elif self._is_in_body:
            raise asyncio.CancelledError

    def close(self) -> None:
        self._run(self._shared.__aexit__(None, None, None), self._home)
        self._runner.close()


class Play:
    """One order: the body with all that it asks for."""

    def __init__(self, order: Order, say: Say) -> None:
        self._order = order
        self._say = say
        self._before: dict[str, dict[str, Any]] = {}
        self._behaviors: Mapping[str, Behavior] = {}
        self.setting: Setting | None = None

    async def set_up(self) -> Callable[[], Any]:
        """The call of the body."""
        order = self._order
        import_module(order.module)
        go_on_within(order.carried)
        function = located(order.module, order.name)
        task = Task.of(function)
        current_docket.set(cast("Any", NoDocket()))
        current_worker.set(cast("Any", Labels(order.labels)))
        current_execution.set(_execution(order, task))
        hooks = self._bound(task)
        args, kwargs = hooks.fill(task, order.args, order.kwargs, frozenset())
        if task.has_dependencies:
            quick = quick_dependencies(function, but=lambda each: isinstance(each, Behavior))
            self.setting = Setting(function, quick)
            given = task.bind(args, kwargs) if args else kwargs
            values = await self.setting.up({**given, **hooks.by_parameter})
            kwargs = {**kwargs, **still_asked(task, args, values, frozenset())}
        for behavior in hooks.by_parameter.values():
            behavior.begin()
        return partial(function, *args, **kwargs)

    def _bound(self, task: Task) -> Hooks:
        order = self._order
        attempt = Attempt(order.claim, order.args, order.kwargs, SYSTEM_CLOCK, cast("Host", Nobody(task)))
        hooks = Hooks(task, attempt)
        if hooks.error is not None:
            raise hooks.error
        for name, behavior in hooks.by_parameter.items():
            behavior.unpack(order.packed.get(name), partial(self._tell, name))
            self._before[name] = dict(vars(behavior))
        self._behaviors = hooks.by_parameter
        return hooks

    def _tell(self, parameter: str, what: Any) -> None:
        self._say(Told(parameter, what))

    def changes(self) -> dict[str, bytes]:
        """What the body has changed of its behaviors: a perpetual task may have said when it wants to go again."""
        changed = {name: _changed(self._before[name], vars(each)) for name, each in self._behaviors.items()}
        return {name: pickle.dumps(each) for name, each in changed.items() if each}


MISSING: Any = object()


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    changed = {name: value for name, value in after.items() if before.get(name, MISSING) is not value}
    return {name: value for name, value in changed.items() if _is_portable(value)}


def _is_portable(value: Any) -> bool:
    try:
        pickle.dumps(value)
    except Exception:
        return False
    return True


def _execution(order: Order, task: Task) -> Execution[Any]:
    claim = order.claim
    execution = Execution[Any](
        cast("Any", NoDocket()), task.function, order.args, order.kwargs, claim.key, slot_of(claim), claim.attempt,
        claim.headers or None, claim.redelivered, claim.task, claim.epoch,
    )  # fmt: skip
    execution.id = claim.id
    execution.state = State.RUNNING
    execution.worker = order.worker
    execution.started_at = from_microseconds(SYSTEM_CLOCK.microseconds())
    return execution


class NoDocket:
    """In the place of a docket."""

    def __getattr__(self, name: str) -> NoReturn:
        raise UsageError(
            f"a task in a process of its own has no docket, and so no {name!r}; open a docket in the task, or leave out"
            ' executor="process"'
        )


class Labels:
    """What a task's logger asks of the worker."""

    def __init__(self, labels: dict[str, Any]) -> None:
        self._labels = labels

    def labels(self) -> dict[str, Any]:
        return self._labels


class Nobody:
    """Hosts an attempt whose run is hosted elsewhere: here behaviors can ask for its arguments, and no more."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def arguments(self, attempt: Attempt) -> Any:
        return self._task.bind(attempt.args, attempt.kwargs)
