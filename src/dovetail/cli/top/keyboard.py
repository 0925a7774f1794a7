"""The keyboard of a terminal: keys as they are pressed, without waiting for a line."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

_SEQUENCES = {
    b"\x1b[A": "up", b"\x1b[B": "down", b"\x1b[C": "right", b"\x1b[D": "left",
    b"\x1bOA": "up", b"\x1bOB": "down", b"\x1bOC": "right", b"\x1bOD": "left",
    b"\x1b[Z": "back tab", b"\x1b[5~": "page up", b"\x1b[6~": "page down", b"\x1b[H": "home", b"\x1b[F": "end",
    b"\t": "tab", b"\r": "enter", b"\n": "enter",
}  # fmt: skip


def keys_of(data: bytes) -> list[str]:
    """The keys that were pressed. A terminal sends each in one piece; what is not known is passed over."""
    keys: list[str] = []
    while data:
        known = next((each for each in _SEQUENCES if data.startswith(each)), None)
        if known is not None:
            keys.append(_SEQUENCES[known])
            data = data[len(known) :]
        elif data.startswith(b"\x1b"):
            length = _length_of_sequence(data)
            if length == 1:
                keys.append("escape")
            data = data[length:]
        else:
            character = data[:1].decode("ascii", "ignore")
            if character.isprintable() and character:
                keys.append(character)
            data = data[1:]
    return keys


def _length_of_sequence(data: bytes) -> int:
    """A sequence begins with ESC [ or ESC O, and ends with a letter or a tilde."""
    if data[1:2] not in (b"[", b"O"):
        return 1
    for place, byte in enumerate(data[2:], start=3):
        if 0x40 <= byte <= 0x7E:
            return place
    return len(data)


@contextmanager
def listening(heard: Callable[[str], None]) -> Generator[bool]:
    """Call back with every key, while the terminal is set to give them at once. Whether there is such a terminal."""
    try:
        import termios
        import tty
    except ImportError:  # Windows: the view is shown, and Ctrl-C ends it
        yield False
        return
    if not sys.stdin.isatty():
        yield False
        return
    terminal = sys.stdin.fileno()
    loop = asyncio.get_running_loop()

    def read() -> None:
        try:
            data = os.read(terminal, 1024)
        except OSError:
            data = b""
        if not data:
            loop.remove_reader(terminal)  # the terminal is gone
            heard("q")
        for key in keys_of(data):
            heard(key)

    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        loop.add_reader(terminal, read)
        yield True
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
