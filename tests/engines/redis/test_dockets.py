"""Dockets, executions and behaviors on Redis: what their own tests say, on a server."""

# ruff: noqa: F403
from __future__ import annotations

import pytest

from dovetail import Docket
from dovetail.model import new_id
from tests.behaviors.test_base import *
from tests.behaviors.test_perpetual import *
from tests.behaviors.test_retry import *
from tests.behaviors.test_timeout import *
from tests.servers.redis import Server
from tests.test_docket import *
from tests.test_execution import *
from tests.worker.test_worker import *


@pytest.fixture
def url(valkey: Server) -> str:
    return f"{valkey.url}?prefix={new_id()}"


async def test_these_are_on_redis(docket: Docket) -> None:
    assert docket.url.startswith("redis://")
