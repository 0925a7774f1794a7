"""A call is checked against its task's signature, and a result has the task's type."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PYRIGHT = shutil.which("pyright", path=str(Path(sys.executable).parent)) or shutil.which("pyright")


def checked(file: Path) -> list[str]:
    """What pyright finds wrong, as line and message."""
    assert PYRIGHT is not None
    root = HERE.parent.parent
    answer = subprocess.run(
        [PYRIGHT, "--outputjson", "--pythonpath", sys.executable, str(file)],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    found = json.loads(answer.stdout)["generalDiagnostics"]
    return [f"{each['range']['start']['line'] + 1}: {each['message']}" for each in found]


@pytest.mark.skipif(PYRIGHT is None, reason="pyright is not installed")
def test_pyright_finds_the_marked_errors_and_no_others():
    assert checked(HERE / "calls.py") == []


@pytest.mark.skipif(PYRIGHT is None, reason="pyright is not installed")
def test_a_mark_on_a_line_without_an_error_is_found(tmp_path: Path):
    file = tmp_path / "unmarked.py"
    file.write_text(
        "# pyright: strict, reportUnnecessaryTypeIgnoreComment=true\n"
        "from dovetail import Docket\n"
        "async def silent() -> None: ...\n"
        "async def adding(docket: Docket) -> None:\n"
        "    await docket.add(silent)()  # pyright: ignore[reportCallIssue]\n"
        "    await docket.add(silent)(5)\n"
    )
    assert [line.partition(":")[0] for line in checked(file)] == ["5", "6"]
