"""A stage for every test, and the docket on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from dovetail import Docket
from tests.system.harness import Stage, set_stage, short_folder


@pytest.fixture
def stage() -> Iterator[Stage]:
    with short_folder() as folder, set_stage(folder) as stage:
        yield stage


@pytest.fixture
async def docket(stage: Stage) -> AsyncIterator[Docket]:
    async with stage.docket() as docket:
        yield docket
