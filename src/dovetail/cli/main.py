"""The entry point, and which commands there are."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed_version

import typer

from dovetail.cli.doctor import doctor
from dovetail.cli.migrate import migrate
from dovetail.cli.output import UNAVAILABLE
from dovetail.cli.top.command import top
from dovetail.cli.worker import worker
from dovetail.errors import DovetailError, EngineUnavailable

app = typer.Typer(help="Dovetail runs Python functions in the background.", no_args_is_help=True, add_completion=True)


@app.callback()
def commands() -> None:
    """Dovetail runs Python functions in the background, on the database you already have."""


@app.command()
def version() -> None:
    """Print the installed version."""
    typer.echo(installed_version("dovetail-tasks"))


app.command(name="worker")(worker)
app.command(name="migrate")(migrate)
app.command(name="doctor")(doctor)
app.command(name="top")(top)


def main() -> None:
    """Run a command. What the user can mend is one line, not a traceback."""
    sys.path.insert(0, "")  # a module in the current directory can be named
    try:
        app()
    except EngineUnavailable as error:
        typer.echo(f"dovetail: {error}", err=True)
        sys.exit(UNAVAILABLE)
    except (DovetailError, ModuleNotFoundError) as error:
        typer.echo(f"dovetail: {error}", err=True)
        sys.exit(1)
