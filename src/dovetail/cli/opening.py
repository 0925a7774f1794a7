"""A command's work on a docket: opened before it, closed after it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from dovetail.cli.output import refuse

if TYPE_CHECKING:
    from dovetail.docket import Docket

T = TypeVar("T")


class Surroundings:
    """What is known of the process that a command runs in."""

    is_command_alone = False  # `main` says so: then nobody can have put anything into a memory:// docket


def on_docket(
    work: Callable[[Docket], Awaitable[T]],
    url: str | None,
    name: str | None,
    tasks: Iterable[str] = (),
    *,
    may_make: bool = False,
) -> T:
    """Open the docket, register the collections of tasks, do the work, and close the docket again.

    A store that has no schema yet is refused, unless the command may make one: a URL with a slip in it must not leave
    an empty store behind.
    """
    import asyncio

    from dovetail.docket import Docket

    async def opened() -> T:
        docket = Docket(name, url)
        refuse_memory(docket)
        for collection in tasks:
            docket.register_collection(collection)
        if not may_make:
            await _refuse_empty(docket)
        async with docket:
            return await work(docket)

    return asyncio.run(opened())


def refuse_memory(docket: Docket) -> None:
    """End the command if nobody can have put anything there."""
    if Surroundings.is_command_alone and docket.url.lower().startswith("memory://"):
        refuse(
            "a memory:// docket is not supported here: it lives in the memory of one process, and this is another;"
            " keep it in SQLite, PostgreSQL or Redis",
            code=1,
        )


async def _refuse_empty(docket: Docket) -> None:
    from dovetail.clock import SYSTEM_CLOCK
    from dovetail.engine import Plans
    from dovetail.engine.registry import engine_for, redacted

    engine = engine_for(docket.url, docket.name, clock=SYSTEM_CLOCK, durability="durable")
    is_memory = docket.url.lower().startswith("memory://")
    if not is_memory and isinstance(engine, Plans) and await engine.plan():
        refuse(
            f"there is no docket at {redacted(docket.url)}, or its schema is not the newest: check --url, or run"
            " `dovetail migrate`"
        )
