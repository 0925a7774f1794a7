"""Runs in Redis or Valkey: a single server, Sentinel, or a cluster."""

from dovetail.errors import UsageError

try:
    from dovetail.engines.redis.engine import RedisEngine
except ModuleNotFoundError as error:
    if error.name not in ("hiredis", "redis"):
        raise
    raise UsageError("Redis needs its driver; install it with: pip install 'dovetail-tasks[redis]'") from error

__all__ = ["RedisEngine"]
