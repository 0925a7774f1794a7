"""The command that looks a docket over, and puts right what can be put right."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from dovetail.cli.options import AsJson, DocketName, Url, duration
from dovetail.cli.output import NOT_FOUND, UNAVAILABLE, busy, console, print_json, shown
from dovetail.errors import EngineUnavailable, NotADatabase, SchemaOutdated, StoreDamaged

if TYPE_CHECKING:
    from dovetail.docket import Docket
    from dovetail.model import Finding, Repair

INDENT = 10
LEVELS = ("durable", "process", "replicated")
_COLORS = {"ok": "green", "note": "cyan", "warning": "yellow", "problem": "bold red"}


def _level(durability: str) -> str:
    """Refused here, so that it is in the same words for every store."""
    if durability not in LEVELS:
        raise typer.BadParameter(f"must be one of {', '.join(LEVELS)}, not {durability!r}")
    return durability


def doctor(
    url: Url = None,
    docket: DocketName = None,
    as_json: AsJson = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="First put right what can be derived from what is there.")
    ] = False,
    durability: Annotated[
        str,
        typer.Option(callback=_level, help="The durability that is asked for.", envvar="DOVETAIL_DURABILITY"),
    ] = "durable",
    stale_after: Annotated[
        timedelta,
        typer.Option(
            "--worker-stale-after",
            parser=duration,
            metavar="DURATION",
            help="How long a worker may be silent before it counts as dead.",
        ),
    ] = timedelta(seconds=10),
) -> None:
    """Say what is wrong, and what to do. Looks at the store, the workers and the runs.

    The exit code is 0 if there is nothing worse than a note, 3 if there is, and 4 if the store cannot be reached.
    """
    import asyncio

    from dovetail.cli.opening import refuse_memory
    from dovetail.docket import Docket
    from dovetail.engine.finding import problem
    from dovetail.engine.registry import redacted
    from dovetail.model import Severity

    meant = Docket(docket, url, heartbeat_interval=stale_after, missed_heartbeats=1, durability=durability)
    refuse_memory(meant)
    repairs: Sequence[Repair] = ()
    unreachable = False
    try:
        with busy("looking the store over"):
            repairs, findings = asyncio.run(_examine(meant, repair, durability))
    except (EngineUnavailable, SchemaOutdated, NotADatabase, StoreDamaged) as error:
        unreachable = isinstance(error, EngineUnavailable)
        findings = [problem("store", str(error), "nothing more can be said until that is mended")]
    is_well = all(each.severity.rank <= Severity.NOTE.rank for each in findings)
    if as_json:
        told = {"docket": meant.name, "url": redacted(meant.url), "healthy": is_well}
        print_json({**told, "repairs": list(repairs), "findings": findings})
    else:
        _print(meant.name, redacted(meant.url), repairs, findings)
    if not is_well:
        raise typer.Exit(UNAVAILABLE if unreachable else NOT_FOUND)


async def _examine(docket: Docket, repair: bool, durability: str) -> tuple[list[Repair], list[Finding]]:
    missing = await _missing(docket)
    if missing is not None:
        return [], [missing]  # a docket that is opened would make what is missing
    async with await _opened(docket, durability) as opened:
        repairs = await opened.repair() if repair else []
        return repairs, await opened.examine(durability=durability)


async def _opened(docket: Docket, durability: str) -> Docket:
    """The docket, though its store may be refused for what it could lose: that can still be said of it."""
    from dovetail.docket import Docket

    try:
        async with docket:
            return docket
    except EngineUnavailable:
        if durability == "process":
            raise
        return Docket(
            docket.name, docket.url, docket.heartbeat_interval, docket.missed_heartbeats, durability="process"
        )


async def _missing(docket: Docket) -> Finding | None:
    """What is missing of the schema, if anything is."""
    from dovetail.clock import SYSTEM_CLOCK
    from dovetail.engine import Plans
    from dovetail.engine.finding import problem, some
    from dovetail.engine.registry import engine_for, redacted

    engine = engine_for(docket.url, docket.name, clock=SYSTEM_CLOCK, durability="durable")
    if docket.url.startswith("memory:") or not isinstance(engine, Plans):
        return None
    steps = await engine.plan()
    if not steps:
        return None
    advice = "run `dovetail migrate`; a docket or a worker that is opened there does it too, if there is nothing yet"
    return problem("schema", f"{redacted(docket.url)} lacks {some(steps)}", advice)


def _print(name: str, url: str, repairs: Sequence[Repair], findings: Sequence[Finding]) -> None:
    from rich.text import Text

    console.print(Text.assemble((shown(name), "bold"), f" at {shown(url)}\n"), soft_wrap=True)
    for done in repairs:
        console.print(Text.assemble(("repaired  ", "green"), f"{done.count:,} {done.what}"))
    if repairs:
        console.print()
    for each in findings:
        color = _COLORS[each.severity]
        console.print(Text.assemble((f"{each.severity:<{INDENT}}", color), (each.check, "bold")))
        for line in _wrapped(shown(each.found)):
            console.print(Text(line), soft_wrap=True)
        for line in _wrapped(f"→ {shown(each.advice)}") if each.advice else ():
            console.print(Text(line, style="dim"), soft_wrap=True)


def _wrapped(text: str) -> list[str]:
    from textwrap import wrap

    margin = " " * INDENT
    width = max(console.width, 2 * INDENT)
    return wrap(
        text, width, initial_indent=margin, subsequent_indent=margin, break_long_words=False, break_on_hyphens=False
    )
