"""The SQLite engine: a file, or memory."""

from dovetail.engines.sqlite.engine import SqliteEngine

__all__ = ["SqliteEngine"]
