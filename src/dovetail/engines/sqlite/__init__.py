"""The SQLite engine: a file, or memory."""

from dovetail.engines.sqlite.engine import SqliteEngine
from dovetail.engines.sqlite.memory import MemoryEngine

__all__ = ["MemoryEngine", "SqliteEngine"]
