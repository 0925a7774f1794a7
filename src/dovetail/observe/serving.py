"""A small HTTP server in a thread of its own, for what a worker says of itself."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dovetail import checks
from dovetail.errors import InvalidArgument, UsageError

if TYPE_CHECKING:
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

logger = logging.getLogger("dovetail.observe")

EVERYWHERE = "0.0.0.0"  # noqa: S104 - whoever asks is on another host, mostly
SILENCE = 10
"""Seconds after which a client that says nothing is left."""


PLACE = "_DOVETAIL_PLACE"
"""The variable in which a supervisor says which of its places a process has. Each place has ports of its own. A
successor starts before its predecessor has ended: that gives them up first, but the system may be slow to see it."""


@dataclass(frozen=True, slots=True)
class Page:
    """What is answered to a request."""

    body: str
    kind: str = "text/plain"
    status: int = 200


Answer = Callable[[str, str], Page]
"""Makes the page for a path, in what the client accepts."""


@contextmanager
def serving(answer: Answer, host: str, port: int, name: str) -> Generator[int]:
    """Serves while the block runs; yields the port, which is chosen for you if it is 0."""
    if checks.whole(port, "port", least=0) > 65535:
        raise InvalidArgument(f"port must be at most 65535, not {port}")
    try:
        server = _server(checks.text(host, "host"), port, answer)
    except OSError as error:
        raise _taken(host, port, error) from error
    with server:
        logger.info("%s is served on port %d", name, server.server_address[1])
        threading.Thread(target=server.serve_forever, args=(0.1,), name=f"dovetail {name}", daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()


def refuse_taken(ports: Iterable[int], host: str = EVERYWHERE) -> None:
    """Raise if a port is somebody's already: for one who is about to start others that would all stumble over it."""
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # who had it before may have ended just now
            try:
                probe.bind((host, port))
            except OSError as error:
                raise _taken(host, port, error) from error


def _taken(host: str, port: int, error: OSError) -> UsageError:
    return UsageError(f"{host}:{port} cannot be served: {error.strerror or error}; choose another port")


def _server(host: str, port: int, answer: Answer) -> ThreadingHTTPServer:
    # Few processes ever serve: the others should not have to load this.
    import socketserver
    from http.server import ThreadingHTTPServer

    class Server(ThreadingHTTPServer):
        allow_reuse_port = PLACE in os.environ

        def server_bind(self) -> None:
            socketserver.TCPServer.server_bind(self)  # without asking the DNS what this host is called

    return Server((host, port), _handler(answer))


def _handler(answer: Answer) -> type[BaseHTTPRequestHandler]:
    from http.server import BaseHTTPRequestHandler

    class Handler(BaseHTTPRequestHandler):
        timeout = SILENCE

        def do_GET(self) -> None:
            page = answer(self.path.partition("?")[0], self.headers.get("Accept", ""))
            body = page.body.encode()
            self.send_response(page.status)
            self.send_header("Content-Type", page.kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do_HEAD(self) -> None:
            self.do_GET()

        def version_string(self) -> str:
            return "dovetail"

        def log_message(self, format: str, *args: Any) -> None:
            """Probes come every few seconds, and are no news."""

    return Handler
