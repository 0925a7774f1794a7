"""A schedule that is made in the caller's own transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dovetail import Docket
from dovetail.errors import InvalidArgument, UsageError
from tests.stores import Stores

HOUR = timedelta(hours=1)
Connect = Callable[[], Any]


async def report(what: str) -> None: ...


@pytest.fixture(params=["file", "postgres"])
def database(request: pytest.FixtureRequest, stores: Stores, tmp_path: Path) -> Iterator[tuple[str, Connect]]:
    if request.param == "file":
        yield f"sqlite:///{tmp_path}/store.db", lambda: sqlite3.connect(tmp_path / "store.db")
        return
    with stores.place("postgres") as url:
        yield url, lambda: psycopg.connect(url)


async def test_it_is_there_once_the_transaction_is_committed(database: tuple[str, Connect]):
    url, connect = database
    async with Docket("tests", url) as docket:
        with closing(connect()) as connection:
            connection.execute("BEGIN IMMEDIATE" if url.startswith("sqlite") else "SELECT 1")
            await docket.schedules.add("hourly", report, every=HOUR, connection=connection)("sales")
            assert await docket.schedules.get("hourly") is None
            connection.commit()
        assert [schedule.name for schedule in await docket.schedules.list()] == ["hourly"]


async def test_it_is_not_there_if_the_transaction_was_rolled_back(database: tuple[str, Connect]):
    url, connect = database
    async with Docket("tests", url) as docket:
        with closing(connect()) as connection:
            connection.execute("BEGIN IMMEDIATE" if url.startswith("sqlite") else "SELECT 1")
            await docket.schedules.add("hourly", report, every=HOUR, connection=connection)("sales")
            connection.rollback()
        assert await docket.schedules.list() == []


async def test_one_that_is_there_is_altered_in_the_transaction(database: tuple[str, Connect]):
    url, connect = database
    async with Docket("tests", url) as docket:
        await docket.schedules.add("hourly", report, every=HOUR)("sales")
        with closing(connect()) as connection:
            connection.execute("BEGIN IMMEDIATE" if url.startswith("sqlite") else "SELECT 1")
            await docket.schedules.add("hourly", report, every=HOUR, replace=True, connection=connection)("costs")
            connection.commit()
        assert [schedule.args for schedule in await docket.schedules.list()] == [("costs",)]


@pytest.mark.parametrize("is_there", [False, True])
async def test_to_add_it_twice_in_a_transaction_is_refused_and_says_why(database: tuple[str, Connect], is_there: bool):
    url, connect = database
    async with Docket("tests", url) as docket:
        if is_there:
            await docket.schedules.add("hourly", report, every=2 * HOUR)("sales")
        with closing(connect()) as connection:
            connection.execute("BEGIN IMMEDIATE" if url.startswith("sqlite") else "SELECT 1")
            add = docket.schedules.add("hourly", report, every=HOUR, replace=True, connection=connection)
            await add("sales")
            with pytest.raises(InvalidArgument, match="in this transaction before"):
                await add("costs")
            connection.commit()
        assert [(each.args, each.every) for each in await docket.schedules.list()] == [(("sales",), HOUR)]


async def test_a_store_without_transactions_refuses(stores: Stores):
    with stores.place("redis") as url:
        async with Docket("tests", url) as docket:
            with pytest.raises(UsageError, match="connection="):
                await docket.schedules.add("hourly", report, every=HOUR, connection=object())("sales")
