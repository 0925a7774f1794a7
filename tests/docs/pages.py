"""The README and the documentation, cut into the blocks that the tests look at."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^```(?P<info>[^`\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block. The first word behind the fence is its language; the others are marks for the tests.

    `python`                 a whole program
    `python fragment`        a part of one, which has to compile
    `python file=tasks.py`   a file that lies beside the programs further down the page; `test_*.py` is run by pytest
    `python worker`          a program that runs beside a worker of the tasks in tasks.py
    `python postgres`        a program that is given the URL of an empty PostgreSQL database in DATABASE_URL
    `text output`            what the program above prints
    """

    page: Path
    line: int
    words: tuple[str, ...]
    body: str

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def is_python(self) -> bool:
        return self.words[:1] == ("python",)

    @property
    def is_program(self) -> bool:
        return self.is_python and "fragment" not in self.words

    @property
    def file(self) -> str | None:
        return next((word.removeprefix("file=") for word in self.words if word.startswith("file=")), None)


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, match.start()) + 1, tuple(match["info"].split()), match["body"])
        for match in _FENCE.finditer(text)
    ]


BLOCKS = {page: blocks_of(page) for page in PAGES}
