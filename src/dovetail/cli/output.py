"""What commands print: tables for people, JSON for programs."""

from __future__ import annotations

from typing import Any, NoReturn

import msgspec
import typer
from rich.console import Console

NOT_FOUND = 3
"""The exit code of a command whose answer is no: an unknown key, a check that found something."""
UNAVAILABLE = 4
"""The exit code when the store cannot be reached: the same command may work later."""

console = Console(highlight=False)


def printable(text: str) -> str:
    """Stored text as a terminal may be given it: what could steer one shows as an escape."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def print_json(data: Any) -> None:
    """One document, indented, with moments and durations as ISO 8601 writes them."""
    typer.echo(msgspec.json.format(msgspec.json.encode(data, enc_hook=str), indent=2).decode())


def refuse(message: str, code: int = NOT_FOUND) -> NoReturn:
    """End the command with one line on standard error."""
    typer.echo(f"dovetail: {message}", err=True)
    raise typer.Exit(code)
