"""The command that brings a store's schema up: look first, then do it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dovetail.cli.options import AsJson, Url
from dovetail.cli.output import print_json, refuse
from dovetail.errors import UsageError

if TYPE_CHECKING:
    from dovetail.engine import Engine, Plans


Direction = Annotated[
    str | None, typer.Argument(help="As roost has it: up does it, status is --plan.", show_default=False)
]


def migrate(
    direction: Direction = None,
    back_to: Annotated[
        str | None, typer.Argument(hidden=True, metavar="VERSION", help="Of roost's down; see there.")
    ] = None,
    url: Url = None,
    plan: Annotated[bool, typer.Option("--plan", help="Say what would be done, and do nothing.")] = False,
    sql: Annotated[bool, typer.Option("--sql", help="Print the whole schema as SQL, and do nothing.")] = False,
    roles: Annotated[bool, typer.Option("--roles", help="Print the roles as SQL, and do nothing.")] = False,
    to: Annotated[int | None, typer.Option(help="The version to stop at; the newest, if none is named.")] = None,
    as_json: AsJson = False,
) -> None:
    """Bring the schema of a store to the newest version. Safe while workers run, old ones and new."""
    import asyncio

    from dovetail.clock import SYSTEM_CLOCK
    from dovetail.engine.registry import engine_for, redacted

    _refuse_way_back(direction, back_to)
    plan = plan or direction == "status"
    place = url or os.environ.get("DOVETAIL_URL") or "sqlite:///dovetail.db"
    engine: Any = engine_for(place, "dovetail", clock=SYSTEM_CLOCK, durability="durable")
    if sql:
        typer.echo(_planned(engine, place).script())
    elif roles:
        nobody = f"{redacted(place)} has no roles: who may open it is up to the owner and the mode of the file"
        typer.echo(_planned(engine, place).roles() or refuse(nobody, 1))
    elif plan:
        missing = asyncio.run(_missing(engine))
        _tell({"url": redacted(place), "missing": missing}, "\n".join(missing) or "nothing to do", as_json)
    else:
        version = asyncio.run(_migrate(engine, to))
        _tell({"url": redacted(place), "version": version}, f"{redacted(place)} has version {version}", as_json)


def _refuse_way_back(direction: str | None, back_to: str | None) -> None:
    if direction == "down":
        refuse("a schema only goes forward: older workers work with the newer one; to go back, restore a backup", 1)
    if direction not in (None, "up", "status") or back_to is not None:
        raise typer.BadParameter(f"{back_to or direction!r} means nothing here; there are up and status")


def _tell(data: dict[str, Any], text: str, as_json: bool) -> None:
    if as_json:
        print_json(data)
    else:
        typer.echo(text)


def _planned(engine: Engine, place: str) -> Plans:
    from dovetail.engine import Plans
    from dovetail.engine.registry import redacted

    if not isinstance(engine, Plans):
        raise UsageError(f"{redacted(place)} has no schema to plan for")
    return engine


async def _missing(engine: Engine) -> list[str]:
    from dovetail.engine import Plans

    if isinstance(engine, Plans):
        return await engine.plan()
    async with engine:  # where there is no schema nothing is missing; yet the store has to be there
        return []


async def _migrate(engine: Engine, to: int | None) -> int:
    from dovetail.engine import Plans

    if isinstance(engine, Plans):
        return await engine.migrate(to)  # to be opened, it would need the schema that is to be made
    async with engine:
        return await engine.migrate(to)
