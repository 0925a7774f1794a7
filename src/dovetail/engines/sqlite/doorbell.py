"""Hints between processes that share a file: a datagram to every process that listens.

Each listening process binds a Unix socket in a folder beside the database; the end of its name says which kinds of
event it wants. A writer that has something to tell lists the folder (again only when it changed) and sends. A full or
dead socket loses the hint, which costs a listener one slow poll.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from dovetail.model import Event, EventKind
from dovetail.model.identifier import new_id

LONGEST_NAME = 32
"""Bytes that a socket's own name may have, with the slash before it."""
LONGEST_PATH = 100
"""Bytes that a socket's path may have; the smallest limit known is 104 with its NUL."""
LARGEST = 60_000
POLL = 1.0
"""Seconds between looks for hints that did not arrive."""
POLL_WITHOUT_BELL = 0.1
TICK = 50_000_000
"""Nanoseconds: no file system's clock is coarser than this in what it says of its folders."""


def bells_of(database: Path) -> Path:
    """The folder of the sockets: beside the database, or, where that path is too long for a socket, in a private folder
    under the system's temporary one that every process of the same user finds alike."""
    beside = Path(f"{database}-bells")
    if len(os.fsencode(beside)) + LONGEST_NAME <= LONGEST_PATH:
        return beside
    digest = hashlib.sha256(os.fsencode(database.resolve())).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"dovetail-{os.getuid()}-{digest}"


_LETTERS = {
    EventKind.WORK: "w",
    EventKind.STOP: "x",
    EventKind.HOLDS: "h",
    EventKind.STATE: "s",
    EventKind.PROGRESS: "p",
}
_KINDS = {letter: kind for kind, letter in _LETTERS.items()}


class Ring(msgspec.Struct, frozen=True, array_like=True):
    """What goes over the wire."""

    docket: int
    events: list[Event]


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Ring)


class Neighbours:
    """The processes that listen, as the folder names them. Nothing that stands in the folder, or in its place, can stop
    a writer: what cannot be read or reached is passed over."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._changed = -1
        self._found: list[tuple[str, frozenset[EventKind]]] = []
        self._socket: socket.socket | None = None
        self._making = threading.Lock()
        self.own: str | None = None  # the name of this process's own socket

    def listening(self) -> list[tuple[str, frozenset[EventKind]]]:
        try:
            status = os.lstat(self._folder)
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
                return []
            if status.st_mtime_ns != self._changed:
                names = os.listdir(self._folder)
                self._found = [(name, _kinds(name)) for name in names if _NAME.fullmatch(name)]
                # A folder that changed just now may change once more within the same tick of its clock.
                settled = time.time_ns() - status.st_mtime_ns > TICK
                self._changed = status.st_mtime_ns if settled else -1
        except OSError:
            return []
        return self._found

    def kinds(self) -> frozenset[EventKind]:
        """What anybody wants to hear of."""
        return frozenset[EventKind]().union(*(kinds for name, kinds in self.listening() if name != self.own))

    def ring(self, docket: int, events: list[Event]) -> None:
        for name, kinds in self.listening():
            wanted = [event for event in events if event.kind in kinds]
            if wanted and name != self.own:
                self._send(name, docket, wanted)

    def _send(self, name: str, docket: int, events: list[Event]) -> None:
        message = _encoder.encode(Ring(docket, events))
        if len(message) > LARGEST:
            half = len(events) // 2
            if half:
                self._send(name, docket, events[:half])
                self._send(name, docket, events[half:])
            return
        path = self._folder / name
        try:
            with self._making:
                if self._socket is None:
                    self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                    self._socket.setblocking(False)
            self._socket.sendto(message, str(path))
        except ConnectionRefusedError:
            _remove_dead(path)
        except OSError:
            return  # it has more hints waiting than it can read, or is no bell at all: it looks for itself soon

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _remove_dead(path: Path) -> None:
    """Take away the socket of a process that is gone, and nothing else."""
    with contextlib.suppress(OSError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            path.unlink()


_NAME = re.compile(r"\d+-\w+\.[a-z]*")


def _kinds(name: str) -> frozenset[EventKind]:
    return frozenset(_KINDS[letter] for letter in name.rpartition(".")[2] if letter in _KINDS)


class Changes(Protocol):
    """Says whether others have changed the file."""

    def since_last_asked(self) -> bool: ...
    def open(self) -> None: ...
    def close(self) -> None: ...


class Listener:
    """Hears the rings of other processes, in a thread of its own, and looks at the file now and then in case one
    was missed."""

    def __init__(self, folder: Path, heard: Callable[[int, list[Event]], None], changes: Changes) -> None:
        self._folder = folder
        self._heard = heard
        self._changes = changes
        self._name = new_id()[-12:]
        self._path: Path | None = None
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._looking = threading.Lock()
        self._stopping = threading.Event()

    def start(self, kinds: frozenset[EventKind]) -> str | None:
        """Listen for these kinds; the name of the socket, or None where there can be none and only polling is left."""
        self._socket = _bound(self._folder, path := self._folder / self._named(kinds))
        self._path = path if self._socket else None
        self._thread = threading.Thread(target=self._run, name="dovetail-doorbell", daemon=True)
        self._thread.start()
        return self._path and self._path.name

    def want(self, kinds: frozenset[EventKind]) -> str | None:
        """Change the kinds that are listened for."""
        if self._path is not None:
            path = self._folder / self._named(kinds)
            with contextlib.suppress(OSError):
                os.rename(self._path, path)
                self._path = path
        return self._path and self._path.name

    def stop(self) -> None:
        self._stopping.set()
        if self._path is not None:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as waker:
                waker.setblocking(False)
                waker.sendto(b"", str(self._path))
            self._path.unlink(missing_ok=True)
        if self._thread is not None:
            self._thread.join()
        self._changes.close()
        if self._socket is not None:
            self._socket.close()
        with contextlib.suppress(OSError):
            self._folder.rmdir()  # if this was the last

    def _named(self, kinds: frozenset[EventKind]) -> str:
        letters = "".join(sorted(_LETTERS[kind] for kind in kinds))
        return f"{os.getpid()}-{self._name}.{letters}"

    def _run(self) -> None:
        has_rung = False  # since the last look: what changed was then told of
        while not self._stopping.is_set():
            if self._socket is None:
                self._stopping.wait(POLL_WITHOUT_BELL)
            else:
                try:
                    self._tell(self._socket.recv(LARGEST * 2))
                    has_rung = True
                    continue
                except TimeoutError:
                    pass
                except OSError:
                    self._stopping.wait(POLL_WITHOUT_BELL)
            has_changed = not self._stopping.is_set() and self._may_have_changed()
            if has_changed and not has_rung:
                # Somebody wrote, and the ring was not heard, or could not be: everyone looks for himself. Those who
                # wait for one run look often enough by themselves, unless there is no bell at all.
                kinds = EventKind if self._socket is None else (EventKind.WORK, EventKind.STOP, EventKind.HOLDS)
                self._heard(0, [Event(kind) for kind in kinds])
            has_rung = False

    def pause(self) -> None:
        """Keep from looking at the file, and let go of it."""
        self._looking.acquire()
        self._changes.close()

    def go_on(self) -> None:
        try:
            self._changes.open()
        finally:
            self._looking.release()

    def _may_have_changed(self) -> bool:
        try:
            with self._looking:
                return self._changes.since_last_asked()
        except Exception:
            return True  # it cannot be told: let everyone look

    def _tell(self, message: bytes) -> None:
        if not message:
            return
        try:
            ring = _decoder.decode(message)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return  # not one of ours
        self._heard(ring.docket, ring.events)


def _bound(folder: Path, path: Path) -> socket.socket | None:
    if not hasattr(socket, "AF_UNIX") or len(os.fsencode(path)) > LONGEST_PATH:
        return None
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = os.lstat(folder)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            raise PermissionError(f"{folder} is not a folder of this user's own")
        listening.bind(str(path))
    except OSError:
        listening.close()
        return None
    listening.settimeout(POLL)
    return listening
