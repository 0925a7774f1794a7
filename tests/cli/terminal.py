"""A terminal for tests: a command runs in it, keys are pressed, and the screen is read."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.waiting import PATIENCE

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>]|\r")
HOME = "\x1b[H"


class Terminal:
    """A pseudo-terminal, and the command in it."""

    def __init__(self, command: list[str], columns: int, lines: int) -> None:
        self._master, slave = pty.openpty()
        self._slave = slave
        self.resize(columns, lines)
        self.before = termios.tcgetattr(slave)
        environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            env={**environment, "TERM": "xterm-256color"},
        )  # fmt: skip
        self.output = ""
        self._seen = 0  # of it

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        self.forget()
        os.write(self._master, keys.encode())

    def forget(self) -> None:
        """Look at nothing more of what was shown so far."""
        self._seen = len(self.output)

    @property
    def screens(self) -> list[str]:
        """What was drawn since the last key was pressed, one after the other."""
        return [_CONTROL.sub("", drawn) for drawn in self.output[self._seen :].split(HOME)]

    @property
    def settings(self) -> list[object]:
        return termios.tcgetattr(self._slave)

    def read(self, patience: float = 0.1) -> None:
        while select.select([self._master], [], [], patience)[0]:
            try:
                data = os.read(self._master, 65536)
            except OSError:
                return
            self.output += data.decode(errors="replace")
            patience = 0.02

    def shows(self, *texts: str) -> None:
        """Wait until a screen shows all of these texts. It may be gone again: messages stay for a while only."""
        deadline = time.monotonic() + PATIENCE
        while not any(all(text in screen for text in texts) for screen in self.screens):
            assert time.monotonic() < deadline, f"{texts} were not shown:\n{self.screens[-1]}"
            assert self.process.poll() is None, f"it ended:\n{self.output}"
            self.read()

    def ends(self) -> int:
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it did not end:\n{self.screens[-1]}"
            self.read()
        self.read()
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)
        os.close(self._slave)


@contextmanager
def terminal(*arguments: str, columns: int = 80, lines: int = 24) -> Iterator[Terminal]:
    """The command, running in a terminal."""
    opened = Terminal([sys.executable, "-m", "dovetail", *arguments], columns, lines)
    try:
        yield opened
    finally:
        opened.close()
