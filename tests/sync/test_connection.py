"""Scheduling in the caller's transaction from code that does not await: in the caller's own thread."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import aiosqlite
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from dovetail import UsageError
from dovetail.errors import InvalidArgument, InvalidType
from dovetail.model import RunQuery
from dovetail.sync import Docket
from tests.stores import Stores

Open = Callable[[str], AbstractContextManager[Any]]


class Rollback(Exception):
    """Raised inside a transaction to end it."""


async def noop(number: int) -> None: ...


@contextmanager
def plain_sqlite(url: str) -> Iterator[Any]:
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    try:
        with connection:
            yield connection
    finally:
        connection.close()


@contextmanager
def plain_psycopg(url: str) -> Iterator[Any]:
    with psycopg.connect(url) as connection:
        yield connection


@contextmanager
def session(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        with Session(engine) as session, session.begin():
            yield session
    finally:
        engine.dispose()


@contextmanager
def core(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


EVERY_KIND = pytest.mark.parametrize(
    ("kind", "opened"),
    [
        ("sqlite", plain_sqlite), ("sqlite", session), ("sqlite", core),
        ("postgres", plain_psycopg), ("postgres", session), ("postgres", core),
    ],
)  # fmt: skip


@contextmanager
def place(kind: str, stores: Stores, folder: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'store.db'}"
    else:
        with stores.place(kind) as url:
            yield url


def keys_of(docket: Docket) -> set[str]:
    return {run.key for run in docket.find_all(RunQuery())}


@EVERY_KIND
def test_runs_are_there_once_the_callers_work_is_committed(
    stores: Stores, tmp_path: Path, kind: str, opened: Open
) -> None:
    with place(kind, stores, tmp_path) as url, Docket("tests", url) as docket:
        with opened(url) as connection:
            assert docket.add(noop, key="one", connection=connection)(1).disposition == "scheduled"
            docket.add_many([docket.call(noop, key="two")(2)], connection=connection)
            assert keys_of(docket) == set()
        assert keys_of(docket) == {"one", "two"}


@EVERY_KIND
def test_runs_are_gone_with_what_is_rolled_back(stores: Stores, tmp_path: Path, kind: str, opened: Open) -> None:
    with place(kind, stores, tmp_path) as url, Docket("tests", url) as docket:
        with suppress(Rollback), opened(url) as connection:
            docket.add(noop, connection=connection)(1)
            raise Rollback
        assert keys_of(docket) == set()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_djangos_connection_is_taken(stores: Stores, tmp_path: Path, kind: str) -> None:
    with place(kind, stores, tmp_path) as url, Docket("tests", url) as docket:
        script = Path(__file__).parent / "django_adding.py"
        ran = subprocess.run([sys.executable, str(script), url], capture_output=True, text=True, timeout=120)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert keys_of(docket) == {"committed"}


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_threads_with_transactions_of_their_own_do_not_mix(stores: Stores, tmp_path: Path, kind: str) -> None:
    opened = plain_sqlite if kind == "sqlite" else plain_psycopg
    with place(kind, stores, tmp_path) as url, Docket("tests", url) as docket:

        def work(number: int) -> None:
            with suppress(Rollback), opened(url) as connection:
                docket.add(noop, key=f"n{number}", connection=connection)(number)
                if number % 2:
                    raise Rollback

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(30)
        assert keys_of(docket) == {"n0", "n2", "n4"}


def test_a_docket_that_there_is_already_is_opened_within_a_transaction(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    Docket("tests", url).open()
    docket = Docket("tests", url)
    with plain_sqlite(url) as connection:
        connection.execute("BEGIN IMMEDIATE")
        docket.add(noop, key="one", connection=connection)(1)
    assert keys_of(docket) == {"one"}
    docket.close()


def test_a_stricken_call_is_kept_out_of_a_transaction_too(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    with Docket("tests", url) as docket, plain_sqlite(url) as connection:
        docket.strike(noop)
        assert docket.add(noop, connection=connection)(1).disposition == "struck"


def test_an_error_in_the_callers_thread_comes_back_from_the_call(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    with Docket("tests", url) as docket:
        with pytest.raises(InvalidType, match="connection must be a sqlite3 connection"):
            docket.add(noop, connection="store.db")(1)
        other = plain_sqlite(f"sqlite:///{tmp_path / 'other.db'}")
        with other as connection, pytest.raises(InvalidArgument, match="cannot span two files"):
            docket.add(noop, connection=connection)(1)


def test_a_connection_that_has_to_be_awaited_is_refused(tmp_path: Path) -> None:
    refused = pytest.raises(InvalidType, match=r"aiosqlite\.core\.Connection, which has to be awaited")
    with Docket("tests", f"sqlite:///{tmp_path / 'store.db'}") as docket, refused:
        docket.add(noop, connection=aiosqlite.connect(tmp_path / "store.db"))(1)


def test_a_store_without_transactions_says_so(stores: Stores) -> None:
    refused = pytest.raises(UsageError, match="connection= needs a docket in a database with transactions")
    with stores.place("redis") as url, Docket("tests", url) as docket, refused:
        docket.add(noop, connection=object())(1)
