"""How the help of a command calls the values of its options: by a word, not by a type of Python's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class PlainCommand(TyperCommand):
    """A command whose help shows `--queue QUEUE` and `--healthcheck-port PORT`, whichever typer is installed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _name_values(self.params)


class PlainGroup(TyperGroup):
    """The same for commands that have others within."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _name_values(self.params)


def _name_values(parameters: Iterable[Any]) -> None:
    for parameter in parameters:
        _name_value(parameter)


def _name_value(parameter: Any) -> None:
    if parameter.metavar is not None or getattr(parameter, "is_flag", False) or _has_choices(parameter):
        return
    # Of names that are longer the last word says what it is.
    parameter.metavar = parameter.name.replace("-", "_").rpartition("_")[2].upper()


def _has_choices(parameter: Any) -> bool:
    described = getattr(parameter, "type_descriptor", None)
    return getattr(described, "is_choice", False) or hasattr(getattr(parameter, "type", None), "choices")


def plainly(app: typer.Typer) -> typer.Typer:
    """Let all commands of an app, and of those within it, have such a help."""
    for command in app.registered_commands:
        command.cls = PlainCommand
    for group in app.registered_groups:
        group.cls = PlainGroup
        if group.typer_instance is not None:
            plainly(group.typer_instance)
    return app
