"""Abroad: a body that runs in a process of its own, seen from the worker."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

from dovetail.errors import PayloadError
from dovetail.injection import current_execution, current_worker
from dovetail.observe.tracing import carried_context
from dovetail.tasks import Task
from dovetail.worker.hooks import Hooks
from dovetail.worker.logs import logger
from dovetail.worker.processes import NotStarted, Processes
from dovetail.worker.processes.errors import got
from dovetail.worker.processes.letters import Order, Raised, Returned, Told, framed
from dovetail.worker.roster import Reason, Tenure


class Unsendable:
    """What stands for a result that could not be sent here: the run has completed, and nothing of it can be kept."""

    def __init__(self, trouble: str) -> None:
        self.error = PayloadError(trouble)


async def call(processes: Processes, tenure: Tenure, task: Task, hooks: Hooks) -> Any:
    """Run the body of the execution at hand; its behaviors are here and over there."""

    async def hear(told: Told) -> None:
        try:
            await hooks.by_parameter[told.parameter].heed(told.what)
        except Exception:
            logger.exception("a behavior of the run %r could not heed what it was told", tenure.claim.key)

    order = _order(tenure, task, hooks)
    tenure.has_begun = True  # as far as one can see from here
    try:
        answer = await processes.carry_out(order, hear, is_urgent=lambda: tenure.reason is Reason.LOST)
    except NotStarted:
        tenure.has_begun = False
        raise
    _take_over(answer.changed, hooks)
    if isinstance(answer, Raised):
        raise got(answer)
    return _result(answer)


def _order(tenure: Tenure, task: Task, hooks: Hooks) -> bytes:
    execution, worker = current_execution.get(), current_worker.get(None)
    packed = {name: behavior.pack() for name, behavior in hooks.by_parameter.items()}
    claim = tenure.claim.but(results=())  # they are among the arguments
    order = Order(
        task.function.__module__, task.function.__qualname__, claim, execution.args, execution.kwargs, packed,
        execution.worker or "", worker.labels() if worker else {}, carried_context(),
    )  # fmt: skip
    try:
        return framed(order)
    except Exception as error:
        raise PayloadError(
            f"the arguments of {tenure.claim.task!r} cannot be sent to a process of its own: {error}"
        ) from error


def _take_over(changed: Mapping[str, bytes], hooks: Hooks) -> None:
    for name, attributes in changed.items():
        vars(hooks.by_parameter[name]).update(pickle.loads(attributes))  # noqa: S301 - from a process of our own


def _result(answer: Returned) -> Any:
    if answer.result is None:
        return Unsendable(answer.trouble or "the result is missing")
    try:
        return pickle.loads(answer.result)  # noqa: S301 - from a process of our own
    except Exception as error:
        return Unsendable(f"the result cannot be read from the process of the run: {error}")
