"""The PostgreSQL engine."""

from dovetail.engines.postgres.engine import PostgresEngine

__all__ = ["PostgresEngine"]
