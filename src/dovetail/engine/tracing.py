"""What is asked of a store, in traces: for those who want to see it.

Instrumentations of drivers would not show it: engines talk to their servers on a level below what these look at.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from opentelemetry.trace import SpanKind

from dovetail.engine.interface import Engine
from dovetail.errors import DovetailError
from dovetail.failures import failure_of
from dovetail.observe.tracing import Attributes, is_suppressed, is_tracing, mark_failed, spanning

VERBS = (
    "schedule", "claim", "finish", "heartbeat", "cancel", "clear", "report", "revive", "discard", "hold", "lift",
    "holds", "find", "survey", "standing", "sweep",
)  # fmt: skip

SYSTEMS = {"memory": "sqlite", "postgres": "postgresql", "rediss": "redis", "unix": "redis", "valkey": "redis"}
"""What OpenTelemetry calls the store of a URL, where it is not called by its scheme."""

Verb = Callable[..., Awaitable[Any]]


def show_calls(engine: Engine, url: str, docket: str) -> Engine:
    """The same engine, with a span around whatever is asked of it and of its twins; unless that happens in the
    background of somebody who did not want to see it."""
    if "twin" in vars(engine):
        return engine  # they are shown already
    scheme = url.partition("://")[0].partition("+")[0].lower()
    attributes: Attributes = {"docket.name": docket, "db.system.name": SYSTEMS.get(scheme, scheme)}
    twin = engine.twin
    shown: dict[str, Any] = {verb: _shown(verb, getattr(engine, verb), attributes) for verb in VERBS}
    vars(engine).update(shown, twin=lambda: show_calls(twin(), url, docket))
    return engine


def _shown(verb: str, ask: Verb, attributes: Attributes) -> Verb:
    said = {**attributes, "db.operation.name": verb}

    @wraps(ask)
    async def show(*args: Any, **kwargs: Any) -> Any:
        if not is_tracing() or is_suppressed():
            return await ask(*args, **kwargs)
        with spanning(f"store.{verb}", said, SpanKind.CLIENT) as span:
            try:
                return await ask(*args, **kwargs)
            except DovetailError as error:
                mark_failed(span, error, failure_of(error))
                raise

    return show
