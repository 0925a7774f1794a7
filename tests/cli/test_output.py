"""Tables as they come out of a pipe, and in narrow terminals."""

from __future__ import annotations

import pytest
from rich.console import Console

from dovetail.cli import output
from dovetail.cli.columns import Column, fitting
from dovetail.cli.output import print_table


def test_a_table_in_a_pipe_is_as_wide_as_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    print_table(("KEY", "TASK", "ERROR"), [("k" * 60, "t" * 40, "e" * 200)])
    assert capsys.readouterr().out.splitlines()[1] == f"{'k' * 60}  {'t' * 40}  {'e' * 200}"


def texts(*widths: int) -> list[Column]:
    return [Column(width, width) for width in widths]


def test_columns_that_do_not_fit_give_way_but_the_first() -> None:
    assert fitting(texts(10, 20, 5), 40) == [10, 20, 5]
    assert fitting(texts(36, 40, 9), 60) == [36, 15, 9]
    assert fitting(texts(36, 40, 30), 40) == [24, 8, 8]
    assert fitting(texts(300), 80) == [80]
    assert fitting([Column(300, 300, is_number=True)], 80) == [80]
    assert fitting(texts(3, 3), 2) is None


def test_the_heading_of_a_number_gives_way_before_short_text_and_the_number_never() -> None:
    columns = [Column(5, 5), Column(9, 3, is_number=True), Column(10, 10), Column(7, 7, is_number=True)]
    assert fitting(columns, 29) == [5, 7, 10, 7]
    assert fitting(columns, 26) == [5, 5, 9, 7]
    assert fitting(columns, 24) is None


def test_a_table_that_has_no_room_is_printed_row_by_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setattr(output, "console", Console())
    print_table(("QUEUE", "QUEUED", "FAILED", "OLDEST"), [("mail", "12,000", None, "2 s ago"), ("bulk", "7", "1", "")])
    assert capsys.readouterr().out.splitlines() == [
        "mail", "  queued  12,000", "  oldest  2 s ago", "bulk", "  queued  7", "  failed  1",
    ]  # fmt: skip
