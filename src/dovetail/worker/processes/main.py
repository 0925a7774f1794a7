"""What runs in a process of a worker's own: it waits for orders, and goes when the worker hangs up or dies."""

from __future__ import annotations

import copy
import ctypes
import logging
import os
import pickle
import signal
import socket
import sys
import threading
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from dovetail.worker.processes.child import INTERRUPT
from dovetail.worker.processes.letters import HEAD, Begun, Logged, Order, Welcome, framed, opened
from dovetail.worker.processes.performer import Performer

PR_SET_PDEATHSIG = 1


def main(handle: int, parent: int) -> None:
    die_with(parent)
    line = Line(socket.socket(fileno=handle))
    performer = Performer(line.say)
    # Handlers, rather than to ignore them: what a body starts in turn would inherit that.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave_it_to_the_worker)
    signal.signal(INTERRUPT, performer.interrupt)
    welcome: Welcome = line.hear()
    log_to(line, welcome)
    orders: SimpleQueue[Order | None] = SimpleQueue()
    threading.Thread(target=_listen, args=(line, orders, performer), name="dovetail-line", daemon=True).start()
    while not performer.is_interrupted and (order := orders.get()) is not None:
        line.say(Begun())
        answer = performer.perform(order)
        try:
            line.say(answer)
        except OSError:
            os._exit(1)  # the body has closed the line, and nobody would ever hear of its end
    performer.close()


def _leave_it_to_the_worker(*_: object) -> None: ...


def _listen(line: Line, orders: SimpleQueue[Order | None], performer: Performer) -> None:
    """Pass orders on. When the worker is gone, so is whatever it wanted: nobody would hear of the end."""
    while True:
        try:
            orders.put(line.hear())
        except (OSError, EOFError):
            if performer.is_at_work:
                os._exit(0)
            orders.put(None)
            return


def die_with(parent: int) -> None:
    """Let the system kill this process with its parent: a body in C may not let the thread that listens have a turn."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


class Line:
    """The line to the worker. Any thread may say something."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.RLock()  # the handler of a signal may have something to say as well

    def say(self, letter: Any) -> None:
        data = framed(letter)
        with self._lock:
            self._connection.sendall(data)

    def hear(self) -> Any:
        return opened(self._exactly(int.from_bytes(self._exactly(HEAD), "big")))

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._connection.recv(min(size - len(data), 1 << 20))
            if not part:
                raise EOFError
            data += part
        return bytes(data)


class LineHandler(logging.Handler):
    """Sends what is logged to the worker, whose handlers know what to do with it."""

    def __init__(self, line: Line) -> None:
        super().__init__()
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._line.say(Logged(_portable(self.format(record), record)))
        except Exception:
            self.handleError(record)


def _portable(text: str, record: logging.LogRecord) -> logging.LogRecord:
    """A record as it can be pickled: its text with the traceback, and of what was added, what can go along."""
    record = copy.copy(record)
    record.msg = record.message = text
    record.args = record.exc_info = record.exc_text = record.stack_info = None
    for name, value in list(vars(record).items()):
        try:
            pickle.dumps(value)
        except Exception:
            setattr(record, name, repr(value))
    return record


def log_to(line: Line, welcome: Welcome) -> None:
    logging.root.addHandler(LineHandler(line))
    for name, level in welcome.levels.items():
        logging.getLogger(name or None).setLevel(level)
