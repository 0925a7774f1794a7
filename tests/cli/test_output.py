"""Tables as they come out of a pipe."""

from __future__ import annotations

import pytest

from dovetail.cli.output import print_table


def test_a_table_in_a_pipe_is_as_wide_as_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    print_table(("KEY", "TASK", "ERROR"), [("k" * 60, "t" * 40, "e" * 200)])
    assert capsys.readouterr().out.splitlines()[1] == f"{'k' * 60}  {'t' * 40}  {'e' * 200}"
