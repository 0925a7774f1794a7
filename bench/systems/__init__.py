"""One adapter per system. To add one: a file here, and a line below."""

from __future__ import annotations

from importlib import import_module

from bench.system import System

ENGINES = {
    "sqlite": {
        "minimal": "bench.systems.minimal_sqlite:MinimalSqlite",
        "huey": "bench.systems.huey_sqlite:HueySqlite",
        "dovetail": "bench.systems.dovetail:Dovetail",
    },
    "redis": {
        "minimal": "bench.systems.minimal_redis:MinimalRedis",
        "pydocket": "bench.systems.pydocket_redis:PydocketRedis",
        "dramatiq": "bench.systems.dramatiq_redis:DramatiqRedis",
        "taskiq": "bench.systems.taskiq_redis:TaskiqRedis",
        "dovetail": "bench.systems.dovetail:Dovetail",
    },
    "postgres": {
        "minimal": "bench.systems.minimal_postgres:MinimalPostgres",
        "pgqueuer": "bench.systems.pgqueuer_postgres:PgQueuerPostgres",
        "pgroost": "bench.systems.pgroost_postgres:PgRoostPostgres",
        "dovetail": "bench.systems.dovetail:Dovetail",
    },
}


def load(engine: str, name: str) -> type[System]:
    """The adapter, imported only now: a system that is not installed harms no other."""
    module, _, adapter = ENGINES[engine][name].partition(":")
    return getattr(import_module(module), adapter)
