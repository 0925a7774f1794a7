"""Options that several commands have, written once."""

from __future__ import annotations

from typing import Annotated

import typer

Url = Annotated[str | None, typer.Option(help="Where the docket is kept.", envvar="DOVETAIL_URL")]
DocketName = Annotated[str | None, typer.Option(help="The docket's name.", envvar="DOVETAIL_NAME")]
AsJson = Annotated[bool, typer.Option("--json", help="Print data for programs, as JSON.")]
Tasks = Annotated[list[str], typer.Option(help="A collection of tasks, as module:member.", envvar="DOVETAIL_TASKS")]
