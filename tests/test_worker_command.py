"""`dovetail worker`: its options."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dovetail.cli.main import app


def test_queues_are_named_with_their_shares(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    result = CliRunner().invoke(
        app, ["worker", "--url", url, "--once", "--queue", "mail=3:2", "--queue", "bulk", "--ageing", "60"]
    )
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--queue", "mail=much"], "mail"),
        (["--queue", "mail=1", "--queue", "mail=2"], "mail"),
        (["--ageing", "0"], "--ageing"),
    ],
)
def test_an_option_that_makes_no_sense_is_wrong_usage(tmp_path: Path, options: list[str], named: str) -> None:
    result = CliRunner().invoke(app, ["worker", "--url", f"sqlite:///{tmp_path / 'store.db'}", "--once", *options])
    assert result.exit_code == 2
    assert named in result.output
    assert not (tmp_path / "store.db").exists()
