"""The command for continuous integration: would what is queued run with this code?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dovetail.cli.options import AsJson, DocketName, Tasks, Url
from dovetail.cli.output import NOT_FOUND, accounted, console, print_json, shown

if TYPE_CHECKING:
    from dovetail.deploying import CheckReport, Misfit
    from dovetail.docket import Docket


def check(
    tasks: Tasks,
    url: Url = None,
    docket: DocketName = None,
    limit: Annotated[int | None, typer.Option(help="Check at most so many runs, the oldest first.", min=1)] = None,
    as_json: AsJson = False,
) -> None:
    """List what waits and would not run with these tasks. All that waits is bound to them.

    The exit code is 3 if anything would not run. Made for the moment before a deploy.
    """
    from dovetail.cli.opening import on_docket

    async def work(opened: Docket) -> CheckReport:
        with accounted("runs checked") as tell:
            return await opened.check(limit=limit, progress=tell)

    report = on_docket(work, url, docket, tasks)
    if as_json:
        print_json(report)
    else:
        _show(report)
    if not report.is_fit:
        raise typer.Exit(NOT_FOUND)


def _show(report: CheckReport) -> None:
    from rich.text import Text

    task = None
    for misfit in report.findings:
        if misfit.task != task:
            task = misfit.task
            console.print(Text(shown(task), style="bold"))
        for line in _lines(misfit):
            console.print(Text(line))
    more = "" if report.is_whole else "; there is more"
    what = "all would run" if report.is_fit else f"{report.count:,} would not run"
    runs = "1 run" if report.checked == 1 else f"{report.checked:,} runs"
    console.print(f"{runs} checked{more}: {what}")


def _lines(misfit: Misfit) -> list[str]:
    others = misfit.count - len(misfit.keys)
    keys = ", ".join(misfit.keys) + (f" and {others:,} more" if others else "")
    return [shown(f"  {misfit.count:,} {misfit.problem}: {misfit.text}"), shown(f"      {keys}")]
