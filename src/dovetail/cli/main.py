"""The entry point, and which commands there are."""

from __future__ import annotations

import io
import logging
import os
import sys
from typing import Annotated

import typer

from dovetail.cli import adding, control, roost, runs, sight
from dovetail.cli.check import check
from dovetail.cli.doctor import doctor
from dovetail.cli.failed import failed
from dovetail.cli.helping import plainly
from dovetail.cli.migrate import migrate
from dovetail.cli.opening import Surroundings
from dovetail.cli.output import INTERRUPTED, UNAVAILABLE, shown
from dovetail.cli.schedules import app as schedules
from dovetail.cli.strikes import restore, strike, strikes
from dovetail.cli.tasks import tasks
from dovetail.cli.top.command import top
from dovetail.cli.watch import watch
from dovetail.cli.why import why
from dovetail.cli.worker import worker
from dovetail.cli.workers import workers
from dovetail.errors import DovetailError, EngineUnavailable

# Plain help: what typer would draw with rich takes longer to import than all else.
app = typer.Typer(
    help="Dovetail runs Python functions in the background.", no_args_is_help=True, add_completion=True,
    rich_markup_mode=None, pretty_exceptions_enable=False, context_settings={"help_option_names": ["--help", "-h"]},
)  # fmt: skip


def _version(is_asked_for: bool) -> None:
    if is_asked_for:
        version()
        raise typer.Exit


@app.callback()
def commands(
    version: Annotated[
        bool, typer.Option("--version", help="Print the installed version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Dovetail runs Python functions in the background, on the database you already have."""


@app.command()
def version() -> None:
    """Print the installed version."""
    from importlib.metadata import version as installed_version

    typer.echo(installed_version("dovetail-tasks"))


app.command(name="worker")(worker)
app.command(name="run", hidden=True)(worker)
app.command(name="migrate")(migrate)
app.command(name="status")(sight.status)
app.command(name="snapshot")(sight.snapshot)
app.command(name="ls")(runs.ls)
app.command(name="find", hidden=True)(runs.ls)
app.command(name="show")(runs.show)
app.command(name="watch")(watch)
app.command(name="graph")(runs.graph)
app.command(name="add")(adding.add)
app.command(name="enqueue", hidden=True)(adding.add)
app.command(name="cancel")(control.cancel)
app.command(name="retry")(control.retry)
app.command(name="clear")(control.clear)
app.command(name="pause")(control.pause)
app.command(name="resume")(control.resume)
app.command(name="strike")(strike)
app.command(name="restore")(restore)
app.add_typer(failed, name="failed")
app.add_typer(sight.queues, name="queues")
app.add_typer(strikes, name="strikes")
app.add_typer(tasks, name="tasks")
app.add_typer(workers, name="workers")
app.add_typer(schedules, name="schedules")
app.command(name="why")(why)
app.command(name="check")(check)
app.command(name="doctor")(doctor)
app.command(name="top")(top)
app.command(name="init", hidden=True)(roost.init)
app.command(name="requeue", hidden=True)(roost.requeue)
app.add_typer(roost.queue, name="queue", hidden=True)
plainly(app)


def main() -> None:
    """Run a command. What the user can mend is one line, not a traceback."""
    sys.path.insert(0, "")  # a module in the current directory can be named
    Surroundings.is_command_alone = True
    # What a command has to say it prints. Only a worker logs, and sets that up itself.
    logging.getLogger("dovetail").addHandler(logging.NullHandler())
    _write_whatever_the_encoding()
    try:
        app()
    except (DovetailError, ModuleNotFoundError) as error:
        message, code = complaint(error)
        typer.echo(f"dovetail: {message}", err=True)
        sys.exit(code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        _drop_what_is_left()  # nobody reads any more
        sys.exit(1)
    except OSError as error:
        _drop_what_is_left()
        typer.echo(f"dovetail: {shown(error.strerror or error)}", err=True)
        sys.exit(1)


def _write_whatever_the_encoding() -> None:
    """Escape what a terminal or a pipe cannot take, an arrow in ASCII say, rather than fail for it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # None, where there is no such stream
            stream.reconfigure(errors="backslashreplace")


def _drop_what_is_left() -> None:
    """Let what is in the buffer of standard output go nowhere: it would complain once more at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complaint(error: DovetailError | ModuleNotFoundError) -> tuple[str, int]:
    """What is said of an error, in one line, and the exit code."""
    message = shown(" ".join(str(error).split()))
    if isinstance(error, ModuleNotFoundError):
        return f"{message}; run the command where it can be imported, or set PYTHONPATH", 1
    return message, UNAVAILABLE if isinstance(error, EngineUnavailable) else 1
