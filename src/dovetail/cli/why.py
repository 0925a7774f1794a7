"""The command that says why a run is not running."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dovetail.cli.options import AsJson, DocketName, Url
from dovetail.cli.output import NOT_FOUND, console, print_json, shown

if TYPE_CHECKING:
    from dovetail.why import Why

NARROWEST = 20
"""Columns that a text has, however narrow the terminal is."""


def why(
    key: Annotated[str, typer.Argument(help="The key of a run, or its id.")],
    url: Url = None,
    docket: DocketName = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option(
            "--tasks",
            "--module",
            "-m",
            envvar="DOVETAIL_TASKS",
            help="Tasks, as module:member: strikes go by their arguments.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say why a run is not running. Every cause that holds, the decisive one first.

    The exit code is 3 if there is no record of such a run.
    """
    from dovetail.cli.opening import on_docket

    found = on_docket(lambda opened: opened.why(key), url, docket, tasks or ())
    if as_json:
        print_json(found)
    else:
        _show(found)
    if not found.is_known:
        raise typer.Exit(NOT_FOUND)


def _show(found: Why) -> None:
    from textwrap import wrap

    if found.is_known:
        typer.echo(shown(f"{found.key} ({found.task}) is {found.state}."))
    margin = max(len(cause.code.value) for cause in found.causes) + 2
    for cause in found.causes:
        first, *others = wrap(shown(cause.text), max(console.width - margin, NARROWEST), break_on_hyphens=False)
        typer.echo(f"{cause.code.value:<{margin}}{first}")
        for line in others:
            typer.echo(f"{'':<{margin}}{line}")
