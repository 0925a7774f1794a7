"""Work on one key after the other, and what became of each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from dovetail.cli.opening import on_docket
from dovetail.cli.output import NOT_FOUND, hint, print_json, shown

if TYPE_CHECKING:
    from dovetail.docket import Docket


@dataclass(frozen=True, slots=True)
class Words:
    """How it is said that it was done: to programs, and to people with the key put in."""

    name: str
    sentence: str


def each_of(
    keys: Sequence[str],
    deal: Callable[[Docket, str], Awaitable[object]],
    words: Words,
    url: str | None,
    docket: str | None,
    tasks: Sequence[str] = (),
    *,
    as_json: bool,
) -> None:
    """Deal with the keys, and say with which it was done. Exit code 3 if one was refused.

    Cut short, by Ctrl-C or a store that is lost, it says so of those that it came to.
    """
    from dovetail.errors import CannotDiscard, CannotRetry, UnknownRun

    done: list[str] = []
    refused: dict[str, str] = {}

    async def work(docket: Docket) -> None:
        for key in keys:
            try:
                await deal(docket, key)
            except (CannotDiscard, CannotRetry, UnknownRun) as error:
                refused[key] = str(error)
            else:
                done.append(key)

    try:
        on_docket(work, url, docket, tasks)
    finally:
        if done or refused:
            _tell(done, refused, words, as_json=as_json)
    if refused:
        raise typer.Exit(NOT_FOUND)


def _tell(done: list[str], refused: dict[str, str], words: Words, *, as_json: bool) -> None:
    if as_json:
        print_json({words.name: done, "refused": refused})
        return
    for key in done:
        typer.echo(words.sentence.format(shown(key)))
    for reason in refused.values():
        hint(reason)
