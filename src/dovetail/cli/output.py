"""What commands print: tables for people, JSON for programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, cast

import typer

from dovetail.cli.columns import Column, fitting
from dovetail.observe.text import escaped

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

NOT_FOUND = 3
"""The exit code of a command whose answer is no: an unknown key, a check that found something."""
UNAVAILABLE = 4
"""The exit code when the store cannot be reached: the same command may work later."""
WRONG_USAGE = 2
"""The exit code when the command was written wrongly."""
INTERRUPTED = 130
"""The exit code when Ctrl-C ended the command."""

UNBOUNDED = 10_000
"""The width of what is not shown on a terminal: nothing is cut off for a program that reads it."""


GAP = 2
"""Between two columns."""


class _Console:
    """rich's console, which is only imported once something is shown on it."""

    _made: Any = None

    def __getattr__(self, name: str) -> Any:
        if self._made is None:
            from rich.console import Console

            self._made = Console(highlight=False)
        return getattr(self._made, name)


console = cast("Console", _Console())


def print_json(data: Any) -> None:
    """One document, indented, with moments and durations as ISO 8601 writes them."""
    import msgspec

    typer.echo(msgspec.json.format(msgspec.json.encode(data, enc_hook=str), indent=2).decode())


def refuse(message: str, code: int = NOT_FOUND) -> NoReturn:
    """End the command with one line on standard error."""
    typer.echo(f"dovetail: {message}", err=True)
    raise typer.Exit(code)


def hint(message: str) -> None:
    """Say something beside the answer, where it is in nobody's way."""
    typer.echo(f"dovetail: {message}", err=True)


def shown(value: object) -> str:
    """A value as text on one line: what would steer a terminal is escaped."""
    return escaped(str(value))


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table, as wide as the terminal allows. A column in which nothing stands is left out."""
    cells = [["" if cell is None else shown(cell) for cell in row] for row in rows]
    kept = [place for place in range(len(headings)) if any(row[place] for row in cells)]
    headings = [headings[place] for place in kept]
    cells = [[row[place] for place in kept] for row in cells]
    columns = [_column(heading, below) for heading, *below in zip(headings, *cells, strict=True)]
    widths = fitting(columns, _width() - GAP * len(columns))
    if widths is None:
        _print_one_below_the_other(headings, cells)
    else:
        _print_side_by_side(headings, cells, columns, widths)


def _column(heading: str, cells: Sequence[str]) -> Column:
    from rich.cells import cell_len

    widest = max(map(cell_len, cells))
    is_number = all(cell.replace(",", "").isdecimal() for cell in cells if cell)
    return Column(max(widest, cell_len(heading)), widest, is_number)


def _print_side_by_side(
    headings: Sequence[str], rows: Iterable[Sequence[str]], columns: Sequence[Column], widths: Sequence[int]
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", padding=(0, GAP, 0, 0), pad_edge=False)
    for place, (heading, column, width) in enumerate(zip(headings, columns, widths, strict=True)):
        # The first column names what the row is about: it is folded rather than cut off.
        table.add_column(
            heading, justify="right" if column.is_number and place > 0 else "left", no_wrap=place > 0, width=width,
            overflow="fold" if place == 0 else "ellipsis",
        )  # fmt: skip
    for row in rows:
        table.add_row(*map(Text, row))
    # A console of the table's own width: the other one would squeeze into 80 columns what goes into a pipe.
    printer = Console(width=_width(), force_terminal=console.is_terminal, highlight=False)
    with printer.capture() as printed:
        printer.print(table)
    for line in printed.get().splitlines():
        typer.echo(line.rstrip())


def _print_one_below_the_other(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """What no terminal of this width can show side by side."""
    widest = max(map(len, headings[1:]), default=0)
    for name, *row in rows:
        typer.echo(name)
        for heading, cell in zip(headings[1:], row, strict=True):
            if cell:
                typer.echo(f"  {heading.lower():<{widest}}  {cell}")


def _width() -> int:
    return console.width if console.is_terminal or os.environ.get("COLUMNS") else UNBOUNDED


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Names and values, one a line; what is nothing is left out."""
    told = [(name, shown(value)) for name, value in fields if value not in (None, "", (), [])]
    widest = max((len(name) for name, _ in told), default=0)
    for name, value in told:
        typer.echo(f"{name:<{widest}}  {value}")


def many(count: int, what: str) -> str:
    """`1 run`, `2 runs`, `12,000 runs`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def confirm(question: str, *, yes: bool, must: bool = True) -> None:
    """Go on if the answer is yes. Without a terminal there is nobody to ask: `--yes` has to say it, if it must."""
    if yes:
        return
    if sys.stdin.isatty():
        if not typer.confirm(f"{question}?", err=True):
            refuse("nothing was done")
    elif must:
        refuse(f"{question}? Say so with --yes; nothing was done", WRONG_USAGE)


@contextmanager
def _in_passing() -> Generator[Callable[[str], None]]:
    """Shows lines in one place of a terminal, until the work is done; elsewhere it says nothing."""
    is_shown = sys.stderr.isatty()

    def show(line: str) -> None:
        if is_shown:
            sys.stderr.write(f"\r{line} …\x1b[K")
            sys.stderr.flush()

    try:
        yield show
    finally:
        if is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


@contextmanager
def busy(what: str) -> Generator[None]:
    """Shows what takes its time."""
    with _in_passing() as show:
        show(what)
        yield


@contextmanager
def totalling(what: str) -> Generator[Callable[[int], None]]:
    """Shows how far long work is, which says how much is done."""
    with _in_passing() as show:
        yield lambda total: show(f"{total:,} {what}")


@contextmanager
def accounted(what: str) -> Generator[Callable[[int], None]]:
    """The same for work that people must know the extent of: if it is cut short, it says how far it came."""
    done = 0
    try:
        with totalling(what) as tell:

            def keep(total: int) -> None:
                nonlocal done
                done = total
                tell(total)

            yield keep
    except BaseException:  # Ctrl-C and a lost store alike; what was under way may or may not have been done
        hint(f"cut short: {done:,} {what} so far")
        raise


@contextmanager
def counting(what: str) -> Generator[Callable[[int], None]]:
    """The same for work which says how much more is done."""
    total = 0
    with totalling(what) as tell:

        def add(more: int) -> None:
            nonlocal total
            total += more
            tell(total)

        yield add
