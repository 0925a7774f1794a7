"""What users write on the command line, read: arguments, values and names of tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import typer

from dovetail.cli.output import refuse
from dovetail.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.docket import Docket
    from dovetail.tasks import Task


def arguments_in(text: str) -> tuple[list[Any], dict[str, Any]]:
    """The arguments that a JSON object names, or that an array lists."""
    given = _read(text, "--args")
    if isinstance(given, dict):
        return [], cast("dict[str, Any]", given)
    if isinstance(given, list):
        return cast("list[Any]", given), {}
    raise typer.BadParameter("--args must be a JSON object of named arguments, or an array of positional ones")


def object_in(text: str, option: str) -> dict[str, Any]:
    """A JSON object."""
    given = _read(text, option)
    if not isinstance(given, dict):
        raise typer.BadParameter(f'{option} must be a JSON object, such as \'{{"name": "value"}}\'')
    return cast("dict[str, Any]", given)


def _read(text: str, option: str) -> Any:
    import json

    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f'{option} is no JSON: {error}; write it as \'{{"name": "value"}}\'') from None


def fitted(task: Task, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments as the task's annotations want them: a moment or a decimal is text in JSON."""
    from dovetail.tasks import compact_signature, positional_names

    try:
        task.signature.bind(*args, **kwargs)
    except TypeError as error:
        raise typer.BadParameter(
            f"{error}; the task is called as {task.name}({compact_signature(task.signature)})"
        ) from None
    hints = hints_of(task.function)
    names = positional_names(task.signature, len(args))
    positional = [_converted(value, hints.get(name), name) for name, value in zip(names, args, strict=True)]
    return positional, {name: _converted(value, hints.get(name), name) for name, value in kwargs.items()}


def hints_of(function: Any) -> dict[str, Any]:
    from typing import get_type_hints

    try:
        return get_type_hints(function)
    except Exception:  # annotations are code of the caller's own; without them the values stay as they are
        return {}


def _converted(value: Any, hint: Any, name: str) -> Any:
    import msgspec

    if hint is None:
        return value
    try:
        return msgspec.convert(value, hint, strict=False)
    except msgspec.ValidationError as error:
        raise typer.BadParameter(f"--args: {name}: {error}") from None
    except TypeError:  # a type that msgspec does not know: the codec has its own way with it
        return value


async def known_task(docket: Docket, name: str) -> Task:
    """The task of that name, or the end of the command: with names that are near, and who knows it."""
    from difflib import get_close_matches

    from dovetail.tasks import Task

    if name not in docket.tasks:
        elsewhere = {task for worker in await docket.workers() for task in worker.tasks}
        near = get_close_matches(name, {*docket.tasks, *elsewhere})
        rather = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        if name in elsewhere:
            rather = "; workers know it, but its declaration has to be known here, too"
        refuse(f"the task {name!r} is not known here{rather} (--tasks module:member)")
    return Task.of(docket.tasks[name])


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _json(text: str) -> Any:
    import json

    return json.loads(text)


def _seconds(text: str) -> Any:
    from datetime import timedelta

    from dovetail.cli.times import duration

    return timedelta(seconds=float(text)) if _is_number(text) else duration(text)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _from(module: str, name: str, method: str | None = None) -> Callable[[str], Any]:
    def make(text: str) -> Any:
        from importlib import import_module

        kind = getattr(import_module(module), name)
        return (getattr(kind, method) if method else kind)(text)

    return make


TYPES: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": _truth,
    "json": _json,
    "decimal.Decimal": _from("decimal", "Decimal"),
    "datetime.datetime": _from("datetime", "datetime", "fromisoformat"),
    "datetime.date": _from("datetime", "date", "fromisoformat"),
    "datetime.timedelta": _seconds,
    "uuid.UUID": _from("uuid", "UUID"),
}


def value_in(text: str | None) -> Any:
    """A value as `type:text`, such as int:42 or json:[10, 20]; text of no such type is itself."""
    if text is None:
        return None
    kind, separator, rest = text.partition(":")
    if not separator or kind not in TYPES:
        return text
    try:
        return TYPES[kind](rest)
    except (ValueError, ArithmeticError):
        raise InvalidArgument(f"{rest!r} is no {kind}") from None
