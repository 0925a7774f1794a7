"""The same processes on Redis: killed, stopped, woken and told to leave."""

# ruff: noqa: F403
from __future__ import annotations

from collections.abc import Iterator

import pytest

from dovetail.model import new_id
from tests.servers import redis as servers
from tests.system.harness import Stage, short_folder
from tests.system.test_forking import *
from tests.system.test_killing import *
from tests.system.test_leases import *
from tests.system.test_sharing import *
from tests.system.test_stopping import *
from tests.system.test_submitting import *
from tests.system.test_waking import *

# What is SQLite's alone.
del test_a_worker_that_was_killed_leaves_no_doorbell_behind  # noqa: F821
del test_a_child_made_by_fork_opens_the_store_for_itself  # noqa: F821


class RedisStage(Stage):
    """A docket of its own on a server, and all processes that play on it."""

    def _can_be_written(self) -> bool:
        return True  # a process that is stopped holds nobody up

    def check(self) -> None:
        for process in self.processes:
            assert "Traceback" not in process.said


@pytest.fixture(scope="session")
def redis_server() -> Iterator[servers.Server]:
    with servers.server("valkey", appendonly="yes") as server:
        yield server


@pytest.fixture
def stage(redis_server: servers.Server) -> Iterator[Stage]:
    with short_folder() as folder:
        stage = RedisStage(folder, folder)
        stage.url = f"{redis_server.url}?prefix={new_id()}"
        try:
            yield stage
        finally:
            stage.clear()
        stage.check()
