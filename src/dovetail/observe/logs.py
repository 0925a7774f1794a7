"""Log formats: for people at a terminal, for people with a file, and one JSON object a line for machines.

Whatever a record says, it stays one record: control characters are written out, and the further lines of a message or
of a traceback are set in, so that nothing that came with a run can pass for a line of its own.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import IO, Any

from opentelemetry import trace

from dovetail.failures import failure_of
from dovetail.observe.formats import LogFormat, LogLevel
from dovetail.observe.text import escaped

__all__ = ["JsonFormatter", "LogFormat", "LogLevel", "PlainFormatter", "handler_for", "set_up_logging"]

PLAIN = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
FURTHER_LINES = "\n    "

_OWN = frozenset({*vars(logging.LogRecord("", 0, "", 0, "", (), None)), "message", "asctime", "taskName"})
"""What every record has; anything else is an extra of the one who logged it."""


class PlainFormatter(logging.Formatter):
    """A line for people, the further ones set in."""

    def format(self, record: logging.LogRecord) -> str:
        return FURTHER_LINES.join(escaped(line) for line in super().format(record).split("\n"))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name that logging calls
        # Through us and not through the standard library: an exception may have a text that raises.
        return failure_of(ei[1]).traceback.rstrip() if ei[1] is not None else ""


class JsonFormatter(logging.Formatter):
    """One object, on one line: time, level, logger and message, the trace it belongs to, the extras, the exception."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        span = trace.get_current_span().get_span_context()
        if span.is_valid:
            fields |= {"trace_id": trace.format_trace_id(span.trace_id), "span_id": trace.format_span_id(span.span_id)}
        if record.exc_info and record.exc_info[1] is not None:
            failure = failure_of(record.exc_info[1])
            fields["exception"] = {"type": failure.type, "message": failure.message, "traceback": failure.traceback}
        extras = {name: value for name, value in vars(record).items() if name not in _OWN and name not in fields}
        return _as_json({**fields, **extras})


def _as_json(fields: dict[str, Any]) -> str:
    try:
        return json.dumps(fields, default=_shown, allow_nan=False)
    except (TypeError, ValueError, RecursionError):  # keys that are no text, a number that is none, a circle
        return json.dumps({name: value if isinstance(value, str) else _shown(value) for name, value in fields.items()})


def _shown(value: Any) -> str:
    try:
        return repr(value)
    except Exception as error:  # how a value shows itself is its own affair
        return f"<{type(value).__name__}: no repr, {type(error).__name__}>"


def handler_for(format: LogFormat, stream: IO[str] | None = None) -> logging.Handler:
    """A handler that writes records in a format, to standard error unless told otherwise."""
    if format is LogFormat.RICH:
        return _rich(stream)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if format is LogFormat.JSON else PlainFormatter(PLAIN))
    return handler


def _rich(stream: IO[str] | None) -> logging.Handler:
    from rich.console import Console
    from rich.logging import RichHandler

    handler = RichHandler(console=Console(file=stream, stderr=True), show_path=False)
    handler.setFormatter(PlainFormatter("%(message)s"))
    return handler


def set_up_logging(level: LogLevel = LogLevel.INFO, format: LogFormat | None = None) -> None:
    """Write what this process logs to standard error: for a terminal, or plainly, unless a format is named. A program
    that has set up logging already keeps what it has."""
    chosen = format or (LogFormat.RICH if sys.stderr.isatty() else LogFormat.PLAIN)
    logging.basicConfig(level=level.value, handlers=[handler_for(chosen)])
