"""The formats and levels of logs that can be asked for by name."""

from __future__ import annotations

from enum import StrEnum


class LogFormat(StrEnum):
    RICH = "rich"
    PLAIN = "plain"
    JSON = "json"


class LogLevel(StrEnum):
    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"
    CRITICAL = "CRITICAL"
