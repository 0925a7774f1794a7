"""The commands about tasks: which there are, what they take, and a few to try a set-up with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from dovetail.cli.adding import fail, sleep, trace
from dovetail.cli.options import AsJson, Tasks
from dovetail.cli.output import print_json, print_table

if TYPE_CHECKING:
    from dovetail.tasks import Task

tasks = typer.Typer(help="Tasks: which there are, and some to try a set-up with.", no_args_is_help=True)
tasks.command("trace")(trace)
tasks.command("fail")(fail)
tasks.command("sleep")(sleep)

STANDARD = ["dovetail.tasks:standard_tasks"]


@tasks.command("ls")
def ls(tasks: Tasks = STANDARD, as_json: AsJson = False) -> None:
    """List the tasks of collections. Their names, queues and parameters; no store is asked."""
    from dovetail.tasks import compact_signature

    found = _tasks_in(tasks)
    if as_json:
        print_json({"tasks": [_described(task) for task in found]})
        return
    print_table(
        ["TASK", "QUEUE", "PARAMETERS"],
        [(task.name, task.declaration.queue, compact_signature(task.signature) or "-") for task in found],
    )


@tasks.command("export")
def export(tasks: Tasks = STANDARD) -> None:
    """Print the tasks of collections as JSON. With what holds for their calls and a JSON schema of their arguments."""
    print_json({"tasks": [_described(task) for task in _tasks_in(tasks)]})


def _tasks_in(collections: list[str]) -> list[Task]:
    from dovetail.tasks import Task, load_collection

    found = [Task.of(function) for path in collections for function in load_collection(path)]
    return sorted(dict.fromkeys(found), key=lambda task: task.name)


def _described(task: Task) -> dict[str, Any]:
    declared = task.declaration
    return {
        "name": task.name,
        "description": (task.function.__doc__ or "").strip().partition("\n")[0] or None,
        "is_async": task.is_async,
        "defaults": {
            "queue": declared.queue, "priority": declared.priority, "tags": declared.tags,
            "behaviors": [type(each).__name__ for each in task.all_behaviors],
            "retention": declared.retention,
        },
        "args_schema": _schema(task),
    }  # fmt: skip


def _schema(task: Task) -> dict[str, Any]:
    """What `--args` may be, as a JSON schema; a parameter whose type JSON cannot say may be anything."""
    from uncalled_for import Dependency

    from dovetail.cli.reading import hints_of

    hints = hints_of(task.function)
    asked = [each for each in task.signature.parameters.values() if not isinstance(each.default, Dependency)]
    named = [each for each in asked if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    properties, definitions = _property_schemas({each.name: hints.get(each.name, Any) for each in named})
    return {
        "type": "object",
        "properties": properties,
        "required": [each.name for each in named if each.default is each.empty],
        "additionalProperties": any(each.kind is each.VAR_KEYWORD for each in asked),
        **({"$defs": definitions} if definitions else {}),
    }


def _property_schemas(hints: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A schema for each, and the definitions that they refer to."""
    import msgspec

    schemas: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    for name, hint in hints.items():
        try:
            (schemas[name],), more = msgspec.json.schema_components([hint], ref_template="#/$defs/{name}")
        except (TypeError, ValueError):
            schemas[name], more = {}, {}
        definitions |= more
    return schemas, definitions
