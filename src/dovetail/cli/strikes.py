"""The commands that forbid calls and allow them again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dovetail.cli.opening import on_docket
from dovetail.cli.options import NO_TASKS, AsJson, DocketName, For, Owner, Reason, Tasks, Until, Url, end_of
from dovetail.cli.output import busy, hint, many, print_json, print_table, refuse, shown
from dovetail.cli.reading import value_in
from dovetail.cli.times import now, relative

if TYPE_CHECKING:
    from dovetail.docket import Docket
    from dovetail.strikelist import Strike

SHOWN = 5
"""How many strikes are named beside one that is not there."""

strikes = typer.Typer(help="The strikes that are in force.", no_args_is_help=True)

Function = Annotated[str, typer.Argument(help="The task's name; '*' or '' for any.")]
Parameter = Annotated[str | None, typer.Argument(help="A parameter's name; '*' or '' for none.")]
Comparison = Annotated[str, typer.Argument(metavar="OPERATOR", help="One of == != > >= < <= between.")]
Value = Annotated[
    str | None, typer.Argument(help="What to compare with: text, or type:text, such as int:42 or json:[10,20].")
]

Words = tuple[str | None, str | None, Any, Any]


def strike(
    function: Function,
    parameter: Parameter = None,
    operator: Comparison = "==",
    value: Value = None,
    reason: Reason = None,
    owner: Owner = None,
    until: Until = None,
    lasting: For = None,
    preview: Annotated[bool, typer.Option("--preview", help="Only count what would be kept from starting.")] = False,
    tasks: Tasks = NO_TASKS,
    as_json: AsJson = False,
    docket: DocketName = None,
    url: Url = None,
) -> None:
    """Forbid calls, of a task or with such an argument. What waits of them never starts; what runs goes on."""
    words = _words(function, parameter, operator, value)
    end = end_of(until, lasting)

    async def lay(docket: Docket) -> None:
        await docket.strike(*words, reason=reason, owner=owner, until=end)

    if preview:
        _foresee(words, *on_docket(lambda docket: _look(docket, words), url, docket, tasks), as_json)
        return
    on_docket(lay, url, docket, tasks, may_make=True)
    if as_json:
        print_json({**_named(*words), "reason": reason, "owner": owner, "until": end})
    else:
        typer.echo(f"Striking {_told(*words)}")


async def _look(docket: Docket, words: Words) -> tuple[int, int]:
    """How many runs a strike would hit, and how many cannot be judged here."""
    preview = docket.preview_strike(*words)
    with busy("looking at what waits"):
        return await preview.count(), preview.unjudged


def _foresee(words: Words, hit: int, unjudged: int, as_json: bool) -> None:
    if as_json:
        print_json({**_named(*words), "hit": hit, "unjudged": unjudged})
        return
    typer.echo(f"{many(hit, 'waiting run')} would be kept from starting by striking {_told(*words)}")
    if unjudged:
        hint(
            f"of {many(unjudged, 'run')} that cannot be said: their arguments cannot be told apart here;"
            " name their tasks with --tasks module:member"
        )


def restore(
    function: Function,
    parameter: Parameter = None,
    operator: Comparison = "==",
    value: Value = None,
    as_json: AsJson = False,
    docket: DocketName = None,
    url: Url = None,
) -> None:
    """Allow again what a strike of the same words forbade. Exit code 3 if there is none."""
    from dovetail.holds import Restore

    words = _words(function, parameter, operator, value)

    async def work(docket: Docket) -> list[Strike]:
        before = await docket.strikes()
        await docket.restore(*words)
        return before

    before = on_docket(work, url, docket)
    was_there = any(Restore(*words).is_same_as(each) for each in before)
    if as_json:
        print_json({**_named(*words), "restored": was_there})
    if not was_there:
        refuse(f"there was no strike of {_told(*words)}{_those_there_are(before)}")
    if not as_json:
        typer.echo(f"Restoring {_told(*words)}")


def _those_there_are(strikes: list[Strike]) -> str:
    if not strikes:
        return "; nothing is stricken"
    told = [_told(each.function, each.parameter, each.operator, each.value) for each in strikes[:SHOWN]]
    more = "; all are listed by `dovetail strikes ls`" if len(strikes) > SHOWN else ""
    return f"; in force: {', '.join(told)}{more}"


def _words(function: str, parameter: str | None, operator: str, value: str | None) -> Words:
    task = None if function in ("", "*") else function
    about = None if parameter in ("", "*") else parameter
    if task is None and about is None:
        raise typer.BadParameter("name a task, a parameter, or both: a strike of everything is a pause of all queues")
    if about is not None and value is None:
        raise typer.BadParameter(f"say with which value of {about!r} calls are meant; json:null stands for None")
    return task, about, operator, value_in(value)


def _told(function: str | None, parameter: str | None, operator: str, value: Any) -> str:
    about = "" if parameter is None else f" {parameter} {operator} {value!r}"
    return shown(f"{function or '(all tasks)'}{about}")


@strikes.command("ls")
def ls(as_json: AsJson = False, docket: DocketName = None, url: Url = None) -> None:
    """List the strikes that are in force. What they forbid, who laid them, why and until when."""

    async def work(docket: Docket) -> list[Strike]:
        return await docket.strikes()

    found = on_docket(work, url, docket)
    if as_json:
        print_json([_data(each) for each in found])
    elif not found:
        typer.echo("nothing is stricken")
    else:
        print_table(
            ["TASK", "CONDITION", "OWNER", "SINCE", "UNTIL", "REASON"],
            [
                (
                    each.function or "(all tasks)",
                    f"{each.parameter} {each.operator} {each.value!r}" if each.parameter else None,
                    each.owner, each.since and relative(each.since, now()), each.until and relative(each.until, now()),
                    each.reason,
                )
                for each in found
            ],
        )  # fmt: skip


def _data(strike: Strike) -> dict[str, Any]:
    terms = {name: getattr(strike, name) for name in ("reason", "owner", "since", "until")}
    return _named(strike.function, strike.parameter, strike.operator, strike.value) | terms


def _named(function: str | None, parameter: str | None, operator: str, value: Any) -> dict[str, Any]:
    """The words of a strike as data; a value may be of any type, so that it is written as Python would."""
    about = repr(value) if parameter else None
    return {"function": function, "parameter": parameter, "operator": operator, "value": about}
